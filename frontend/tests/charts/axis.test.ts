import { describe, expect, it } from "vitest";

import {
  byteRange,
  byteTicks,
  cellEdges,
  endingEdges,
  gapsOf,
  withGaps,
  wallLabels,
  xValues,
} from "../../src/charts/axis";

const MIB = 1 << 20;

const floats = (...values: number[]): Float64Array => Float64Array.from(values);

describe("axes", () => {
  it("has round ticks in one unit", () => {
    expect(byteTicks(1.4 * 1024 * MIB, 5).labels).toEqual(["0", "0.5 GiB", "1.0 GiB"]);
    expect(byteTicks(310 * MIB, 6).labels).toEqual(["0", "100 MiB", "200 MiB", "300 MiB"]);
    expect(byteTicks(3, 5).labels).toEqual(["0", "1 B", "2 B", "3 B"]);
  });

  it("shows the capacity only where it does not squash the stack", () => {
    expect(byteRange(600, 1000)).toEqual({ max: 1060, capacityInside: true });
    expect(byteRange(100, 1000).capacityInside).toBe(false);
    expect(byteRange(100, 1000).max).toBeCloseTo(116.64);
    expect(byteRange(0, null).max).toBeGreaterThan(0);
  });

  it("lets no clock run backwards", () => {
    expect([...xValues("relative", floats(0, 1, 2, 3), floats(100, 102, 101, NaN), 100)]).toEqual([
      0, 2, 2, 2,
    ]);
    expect([...xValues("wall", floats(0, 1), floats(NaN, 50), 0)]).toEqual([50, 50]);
    expect([...xValues("step", floats(5, 9), floats(1, 2), 0)]).toEqual([5, 9]);
  });

  it("has a cell for every row", () => {
    expect([...cellEdges(floats(0, 1, 4))]).toEqual([-0.5, 0.5, 2.5, 5.5]);
    expect([...cellEdges(floats(7))]).toEqual([6.5, 7.5]);
    expect([...cellEdges(floats())]).toEqual([0]);
    expect([...cellEdges(floats(3, 3))]).toEqual([2.5, 3, 3.5]);
  });

  it("ends the cell of what is measured after many steps at its own row", () => {
    expect([...endingEdges(floats(39, 79, 119), "step", -0.5)]).toEqual([-0.5, 39.5, 79.5, 119.5]);
    expect([...endingEdges(floats(39, 79), "step", null)]).toEqual([-0.5, 39.5, 79.5]);
    expect([...endingEdges(floats(20, 50), "relative", null)]).toEqual([-10, 20, 50]);
    expect([...endingEdges(floats(39), "step", null)]).toEqual([38.5, 39.5]);
    expect([...endingEdges(floats(39), "step", -0.5)]).toEqual([-0.5, 39.5]);
    expect([...endingEdges(floats(), "step", 3)]).toEqual([0]);
  });

  it("says the date once", () => {
    const noon = new Date(2026, 8, 21, 12, 0, 0).getTime() / 1000;
    expect(wallLabels([noon, noon + 60], 60)).toEqual(["12:00\n2026-09-21", "12:01"]);
    expect(wallLabels([noon, noon + 86400], 86400)).toEqual(["2026-09-21", "2026-09-22"]);
  });
});

it("a line is not drawn over steps that are missing", () => {
  const steps = floats(0, 1, 2, 9, 10);
  const gaps = gapsOf(steps);
  expect(gaps).toEqual([{ after: 2, from: 2.5, to: 8.5 }]);
  const [edges, values] = withGaps(cellEdges(steps), floats(5, 6, 7, 8, 9), gaps);
  expect([...edges]).toEqual([-0.5, 0.5, 1.5, 2.5, 8.5, 9.5, 10.5]);
  expect([...values]).toEqual([5, 6, 7, NaN, 8, 9]);
  expect(gapsOf(floats(0, 10, 20, 30, 45))).toEqual([]);
  expect(gapsOf(floats(3))).toEqual([]);
});
