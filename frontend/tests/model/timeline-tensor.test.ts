import { describe, expect, it } from "vitest";

import { LARGEST_FIRST, sortedRows } from "../../src/model/timeline-sort";
import { largestTensor, shapeText, sizeFormula, sizeText, tensorOf, tensorStops } from "../../src/model/timeline-tensor";
import { atPeakText, lifetimeText, tensorLines } from "../../src/model/timeline-text";
import { timelineOf, TIMELINE } from "./timeline-tensors-cases";

describe("a tensor", () => {
  it("has all that is known of it", () => {
    const tensor = tensorOf(TIMELINE, 0);
    expect(tensor).toMatchObject({ bytes: 24_832, requested_bytes: 24_576, rounding_bytes: 256, address: 9000, line: "train.py:10" });
    expect(tensor?.shape && shapeText(tensor.shape)).toBe("(64, 32, 3) float32");
    expect(tensor?.shape && sizeFormula(tensor.shape)).toBe("64 × 32 × 3 × 4 B = 24,576 B");
    expect(tensor && tensorLines(TIMELINE, tensor)).toEqual([
      "24.3 KiB · (64, 32, 3) float32",
      "net/b: activations",
      "net/a/MatMul",
      "2 ms to 4 ms: 2 ms",
      "train.py:10",
    ]);
    const first = tensor?.rows[0] ?? -1;
    expect([lifetimeText(TIMELINE, first), atPeakText(TIMELINE, first)]).toEqual(["2 ms to 4 ms: 2 ms", "yes"]);
  });

  it("says what is unknown", () => {
    const unknown = { requested_bytes: null, rounding_bytes: null, address: null, shape: null, line: null };
    expect(tensorOf(TIMELINE, 1)).toMatchObject({ bytes: 9000, ...unknown });
    expect(tensorOf(TIMELINE, 99)).toBeNull();
    expect([sizeText(null), sizeText(512), sizeText(2048)]).toEqual(["unknown", "512 B", "2.0 KiB (2,048 B)"]);
    expect(sizeFormula({ shape: [8], dtype: "string" })).toBeNull();
    expect(sizeFormula({ shape: [], dtype: "int64" })).toBe("8 B = 8 B");
  });
});

describe("the largest tensor", () => {
  it("is the largest of a moment among those with a known owner", () => {
    expect([0, 2].map((moment) => largestTensor(TIMELINE, moment))).toEqual([4, 0]);
    expect(largestTensor(timelineOf([{ category: "unattributed", start: 0, end: 6, bytes: 9, count: 0 }]), 0)).toBeNull();
  });
});

describe("the keyboard", () => {
  it("stops once at each tensor, though its rounding is a row further down", () => {
    expect(tensorStops(TIMELINE, [...sortedRows(TIMELINE, LARGEST_FIRST)])).toEqual([0, 1, 4, 2, 5, 3, 7, 6]);
  });
});
