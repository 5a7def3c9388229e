import { describe, expect, it } from "vitest";

import { lowerBound, maximum, nearestIndex } from "../../src/lib/search";

describe("search", () => {
  it("finds the nearest, the earlier of two", () => {
    expect(nearestIndex([], 3)).toBe(-1);
    expect(nearestIndex([1, 4, 8], 2.5)).toBe(0);
    expect(nearestIndex([1, 4, 8], 7)).toBe(2);
    expect(nearestIndex([1, 4, 8], 99)).toBe(2);
    expect(lowerBound([1, 4, 4, 8], 4)).toBe(1);
  });

  it("finds the highest known value", () => {
    expect(
      [[NaN, 3, NaN, 7, 2], [NaN], [], [-1]].map((values) => maximum(Float64Array.from(values))),
    ).toEqual([7, 0, 0, 0]);
  });
});
