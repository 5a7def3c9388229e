import { describe, expect, it } from "vitest";

import { placeOf } from "../../src/charts/plot";
import { momentAt } from "../../src/charts/timeline-layout";

describe("the cursor", () => {
  const edges = Float64Array.of(0, 1, 1, 4, 10);
  const x = edges.subarray(0, -1);
  const rowAt = (value: number): number => momentAt(edges, value);

  it("stands where its row begins, or where the range does if the row reaches into it", () => {
    const places = (from: number) => [0, 1, 2, 3].map((row) => placeOf({ x, rowAt, range: [from, 10] }, row));
    expect(places(0)).toEqual([0, 1, 1, 4]);
    expect(places(2)).toEqual([0, 1, 2, 4]);
    expect(placeOf({ x, rowAt, range: [0, 10] }, 4)).toBeNull();
  });

  it("stands at its row where rows are points", () => {
    expect(placeOf({ x, range: [2, 10] }, 2)).toBe(1);
  });
});
