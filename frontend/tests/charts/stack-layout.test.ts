import { describe, expect, it } from "vitest";

import { cellEdges } from "../../src/charts/axis";
import { bandAt, markedSpans, stackLayout } from "../../src/charts/stack-layout";

const floats = (...values: number[]): Float64Array => Float64Array.from(values);

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
