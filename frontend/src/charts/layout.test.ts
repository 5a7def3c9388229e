import { describe, expect, it } from "vitest";

import { byteRange, byteTicks, cellEdges, endingEdges, wallLabels, xValues } from "./axis";
import { placeBlocks, placeMarks } from "./marks-layout";
import { bandAt, markedSpans, stackLayout } from "./stack-layout";

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
    expect([...xValues("relative", floats(0, 1, 2, 3), floats(100, 102, 101, NaN), 100)]).toEqual([0, 2, 2, 2]);
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

describe("stack", () => {
  const layout = stackLayout(floats(0, 1), [floats(1, 2), floats(NaN, 3), floats(4, 0)]);

  it("adds up from the bottom", () => {
    expect(layout.tops.map((top) => [...top])).toEqual([
      [1, 2],
      [1, 5],
      [5, 5],
    ]);
  });

  it("finds the band under the pointer", () => {
    expect(bandAt(layout, 0, 0.5)).toBe(0);
    expect(bandAt(layout, 0, 3)).toBe(2);
    expect(bandAt(layout, 1, 4)).toBe(1);
    expect(bandAt(layout, 1, 6)).toBe(-1);
  });

  it("joins neighbouring traced rows and keeps rows before a pause narrow", () => {
    const x = floats(0, 1, 2, 10, 11);
    const edges = cellEdges(x);
    expect(markedSpans(x, edges, floats(1, 1, 0, 0, 0))).toEqual([[-0.5, 1.5]]);
    expect(markedSpans(x, edges, floats(0, 0, 1, 0, 0))).toEqual([[1.5, 2.5]]);
  });
});

describe("marks", () => {
  const width = (label: string): number => label.length * 10;

  it("stand at their places, flip at the edge, and become dots where they would cover each other", () => {
    const [first, second, third] = placeMarks(
      [
        { x: 10, label: "abcdef" },
        { x: 200, label: "abcdef" },
        { x: 205, label: "abcdef" },
      ],
      230,
      width,
      100,
    );
    expect(first).toMatchObject({ left: 10, width: 60, bare: false, flipped: false });
    expect(second).toMatchObject({ left: 140, width: 60, flipped: true });
    expect(third).toMatchObject({ bare: true });
  });

  it("never leave the lane or cover each other, whatever the places", () => {
    for (let seed = 1; seed < 60; seed += 1) {
      const marks = Array.from({ length: 1 + (seed % 9) }, (_, index) => ({
        x: ((index + 1) * seed * 7919) % 500,
        label: "x".repeat(1 + ((seed * index) % 12)),
      }));
      marks.sort((a, b) => a.x - b.x);
      const labels = placeMarks(marks, 500, width, 100).filter(({ bare }) => !bare);
      labels.forEach((mark, index) => {
        expect(mark.left).toBeGreaterThanOrEqual(0);
        expect(mark.left + mark.width).toBeLessThanOrEqual(500);
        const before = labels[index - 1];
        if (before) expect(mark.left).toBeGreaterThanOrEqual(before.left + before.width);
      });
    }
  });

  it("names epochs where there is room and joins those too narrow to see", () => {
    const spans = [0, 1, 2].map((name) => ({ from: name * 100, to: name * 100 + 100, name }));
    expect(placeBlocks(spans, width).map(({ label }) => label)).toEqual(["epoch 0", "epoch 1", "epoch 2"]);
    const many = Array.from({ length: 1000 }, (_, name) => ({ from: name, to: name + 1, name }));
    const blocks = placeBlocks(many, width);
    expect(blocks.length).toBeLessThan(60);
    expect(blocks.at(-1)?.to).toBe(1000);
  });
});
