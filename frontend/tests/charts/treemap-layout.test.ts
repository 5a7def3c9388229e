import { describe, expect, it } from "vitest";

import { treemap } from "../../src/charts/treemap-layout";

describe("treemap", () => {
  it("covers the box without overlaps, in proportion", () => {
    for (const sizes of [[1], [6, 6, 4, 3, 2, 2, 1], Array.from({ length: 80 }, (_, index) => 1 + ((index * 7919) % 101)), [0, 5, 0]]) {
      const rectangles = treemap(sizes, 600, 400);
      const total = sizes.reduce((sum, size) => sum + size, 0);
      expect(rectangles).toHaveLength(sizes.filter((size) => size > 0).length);
      for (const { index, x, y, width, height } of rectangles) {
        expect(width * height).toBeCloseTo(((sizes[index] as number) / total) * 240000, 3);
        expect(x).toBeGreaterThanOrEqual(-1e-6);
        expect(y).toBeGreaterThanOrEqual(-1e-6);
        expect(x + width).toBeLessThanOrEqual(600 + 1e-6);
        expect(y + height).toBeLessThanOrEqual(400 + 1e-6);
      }
    }
  });

  it("of nothing is nothing", () => {
    expect(treemap([], 10, 10)).toEqual([]);
    expect(treemap([0], 10, 10)).toEqual([]);
    expect(treemap([1], 0, 10)).toEqual([]);
  });
});
