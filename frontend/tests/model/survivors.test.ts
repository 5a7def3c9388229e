import { describe, expect, it } from "vitest";

import { madeAt, survives } from "../../src/model/survivors";
import { timelineOf } from "./timeline-tensors-cases";

/** Six moments: from before the step; a leak of two lines; freed in the step; of another shape; of an unknown line. */
const TIMELINE = timelineOf([
  { category: "held_tensors", start: 0, end: 6, bytes: 1, shape: 0, line: 0 },
  { category: "held_tensors", start: 2, end: 6, bytes: 2, shape: 0, line: 1 },
  { category: "held_tensors", start: 3, end: 6, bytes: 3, shape: 0, line: 1 },
  { category: "activations", start: 1, end: 5, bytes: 4, shape: 0, line: 0 },
  { category: "held_tensors", start: 1, end: 6, bytes: 5, shape: 1, line: 0 },
  { category: "held_tensors", start: 1, end: 6, bytes: 6, shape: 0 },
]);

describe("tensors that survive a step", () => {
  it("were allocated in it and are live at its end", () => {
    const rows = Array.from({ length: TIMELINE.rows }, (_, row) => row).filter((row) => survives(TIMELINE, row));
    expect(rows.map((row) => TIMELINE.bytes[row])).toEqual([2, 3, 5, 6]);
  });

  it("have the lines that made those of the same shape and dtype", () => {
    expect(madeAt(TIMELINE, { shape: [64, 32, 3], dtype: "float32" })).toEqual(["train.py:10"]);
    expect(madeAt(TIMELINE, { shape: [8], dtype: "string" })).toEqual(["train.py:9"]);
    expect(madeAt(TIMELINE, { shape: [8], dtype: "float32" })).toEqual([]);
  });
});
