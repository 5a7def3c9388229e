import { describe, expect, it } from "vitest";

import { cellEdges } from "../../src/charts/axis";
import {
  bandAt,
  markedSpans,
  stackLayout,
  waterfallLayout,
  labelLines,
  shortened,
  placeBlocks,
  placeMarks,
} from "../../src/charts/layout";

const floats = (...values: number[]): Float64Array => Float64Array.from(values);

describe("stack", () => {
  const layout = stackLayout(cellEdges(floats(0, 1)), [floats(1, 2), floats(NaN, 3), floats(4, 0)]);

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

it("goes from one total to the other, without the changes that are none", () => {
  expect(waterfallLayout(100, [50, 0, -120])).toEqual({
    bars: [
      { index: -1, from: 0, to: 100 },
      { index: 0, from: 100, to: 150 },
      { index: 2, from: 150, to: 30 },
      { index: -2, from: 0, to: 30 },
    ],
    low: 0,
    high: 168,
  });
});

it("begins above 0 where small changes would be lost", () => {
  const { low, high } = waterfallLayout(1000, [10, -4]);
  expect(low).toBe(990);
  expect(high).toBeGreaterThan(1010);
  expect(waterfallLayout(0, []).high).toBeGreaterThan(0);
});

it("breaks labels at spaces and at the separators of names", () => {
  expect(labelLines("workspace", 12, 3)).toEqual(["workspace"]);
  expect(labelLines("weights, frozen or trainable", 13, 3)).toEqual([
    "weights,",
    "frozen or",
    "trainable",
  ]);
  expect(labelLines("A: 2026/vgg_run", 9, 3)).toEqual(["A: 2026/", "vgg_run"]);
});

it("never exceeds its room", () => {
  for (const label of [
    "unattributed",
    "activation gradients",
    "A: a_run_with/a-very.long name that does not fit anywhere",
    "x".repeat(60),
  ]) {
    for (const letters of [6, 9, 13]) {
      const lines = labelLines(label, letters, 3);
      expect(lines.length).toBeLessThanOrEqual(3);
      expect(lines.every((line) => line.length <= letters)).toBe(true);
    }
  }
  expect(shortened("abcdef", 4)).toBe("abc…");
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
      // Nor does a label stand on a dot.
      const placed = placeMarks(marks, 500, width, 100);
      placed.forEach((mark, index) => {
        if (mark.bare) return;
        for (const dot of placed.slice(0, index).filter(({ bare }) => bare)) {
          expect(mark.left).toBeGreaterThanOrEqual(dot.left + dot.width);
        }
      });
    }
  });

  it("names epochs where there is room and joins those too narrow to see", () => {
    const spans = [0, 1, 2].map((name) => ({ from: name * 100, to: name * 100 + 100, name }));
    expect(placeBlocks(spans, width).map(({ label }) => label)).toEqual([
      "epoch 0",
      "epoch 1",
      "epoch 2",
    ]);
    const many = Array.from({ length: 1000 }, (_, name) => ({ from: name, to: name + 1, name }));
    const blocks = placeBlocks(many, width);
    expect(blocks.length).toBeLessThan(60);
    expect(blocks.at(-1)?.to).toBe(1000);
  });
});
