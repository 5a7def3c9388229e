import { describe, expect, it } from "vitest";

import {
  momentAt,
  orderEdges,
  placeStretches,
  rangeOfSpan,
  spanOfRange,
  timeEdges,
  timelineCells,
  totalPath,
} from "../../src/charts/timeline-layout";
import { stackLayout } from "../../src/charts/layout";

const edges = Float64Array.from([0, 1, 1, 4, 10]);

describe("moments", () => {
  it("are found by their places, the later of two at one place", () => {
    expect([-1, 0, 0.5, 1, 3.9, 4, 10, 99].map((x) => momentAt(edges, x))).toEqual([
      0, 0, 0, 1, 2, 3, 3, 3,
    ]);
  });

  it("lie on an axis of time or of order", () => {
    expect([...timeEdges([0, 1_000_000, 3_000_000], 4_000_000)]).toEqual([0, 1, 3, 4]);
    expect(timeEdges([0, 1_000_000], 1_000_000)[2]).toBeGreaterThan(1);
    expect([...timeEdges([0], 0)]).toEqual([0, 1e-6]);
    expect([...orderEdges(3)]).toEqual([0, 1, 2, 3]);
  });

  it("are zoomed to and back", () => {
    expect(rangeOfSpan(edges, [2, 2])).toEqual([1, 4]);
    expect(rangeOfSpan(edges, [1, 1])).toEqual([0, 10]);
    expect(rangeOfSpan(edges, [7, 900])).toEqual([4, 10]);
    expect(rangeOfSpan(edges, null)).toEqual([0, 10]);
    expect(spanOfRange(edges, 1.5, 5)).toEqual([2, 3]);
    expect(spanOfRange(edges, -5, 50)).toBeNull();
    expect(spanOfRange(edges, 2, 3)).toBeNull();
  });
});

describe("the stack", () => {
  const layout = stackLayout(edges, [
    Float64Array.from([1, 1, 1, 1]),
    Float64Array.from([0, 9, 2, 0]),
  ]);

  it("adds up and is pointed at", () => {
    expect([...layout.total]).toEqual([1, 10, 3, 1]);
  });

  it("keeps a peak that takes no time", () => {
    expect(timelineCells(layout, [0, 10], 100).map(({ moment }) => moment)).toContain(1);
    expect(timelineCells(layout, [0, 10], 3).map(({ moment }) => moment)).toContain(1);
    expect(timelineCells(layout, [4, 10], 60)).toEqual([{ from: 0, to: 60, moment: 3 }]);
  });
});

describe("stretches above the plot", () => {
  it("are clipped and take the longest label that fits", () => {
    const all = [
      { from: -20, to: 30, labels: ["forward", "f"] },
      { from: 30, to: 44, labels: ["backward", "b"] },
      { from: 44, to: 45, labels: ["update"] },
      { from: 200, to: 300, labels: ["beyond"] },
    ];
    expect(placeStretches(all, [0, 100], (label) => label.length * 3, 4)).toEqual([
      { from: 0, to: 30, label: "forward" },
      { from: 30, to: 44, label: "b" },
      { from: 44, to: 45, label: "" },
    ]);
  });
});

describe("the path of the whole", () => {
  it("has the height of each moment, and keeps a peak without width", () => {
    const layout = stackLayout(Float64Array.of(0, 2, 4), [Float64Array.of(5, 10)]);
    expect(totalPath(layout, [0, 4], 40, 10)).toBe("M0 10L0 5H20L20 0H40V10Z");
  });
});
