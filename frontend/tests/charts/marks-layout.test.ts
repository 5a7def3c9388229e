import { describe, expect, it } from "vitest";

import { placeBlocks, placeMarks } from "../../src/charts/marks-layout";

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
    expect(placeBlocks(spans, width).map(({ label }) => label)).toEqual(["epoch 0", "epoch 1", "epoch 2"]);
    const many = Array.from({ length: 1000 }, (_, name) => ({ from: name, to: name + 1, name }));
    const blocks = placeBlocks(many, width);
    expect(blocks.length).toBeLessThan(60);
    expect(blocks.at(-1)?.to).toBe(1000);
  });
});
