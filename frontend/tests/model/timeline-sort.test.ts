import { describe, expect, it } from "vitest";

import { LARGEST_FIRST, ascends, nextSort, sortedRows } from "../../src/model/timeline-sort";
import { TIMELINE } from "./timeline-tensors-cases";

describe("the list", () => {
  const tensors = (rows: Uint32Array): number[] => [...rows].map((row) => TIMELINE.tensor[row] ?? -1);

  it("is sorted by any column, unknown values last", () => {
    expect(tensors(sortedRows(TIMELINE, LARGEST_FIRST))).toEqual([0, 1, 4, 2, 5, 0, 3, 7, 6, 5]);
    expect(tensors(sortedRows(TIMELINE, { key: "line", reversed: false })).slice(0, 3)).toEqual([3, 0, 0]);
    expect(tensors(sortedRows(TIMELINE, { key: "line", reversed: true })).slice(0, 3)).toEqual([0, 0, 3]);
    expect(tensors(sortedRows(TIMELINE, { key: "layer", reversed: false })).slice(-3)).toEqual([1, 7, 6]);
    expect(tensors(sortedRows(TIMELINE, { key: "dtype", reversed: true })).slice(0, 2)).toEqual([3, 0]);
    expect(tensors(sortedRows(TIMELINE, { key: "freed", reversed: false }))[0]).toBe(3);
  });
});

describe("the sorting", () => {
  it("turns round with a second click", () => {
    const reversed = nextSort(LARGEST_FIRST, "bytes");
    expect([ascends(LARGEST_FIRST), ascends(reversed), ascends(nextSort(reversed, "layer"))]).toEqual([false, true, true]);
  });
});
