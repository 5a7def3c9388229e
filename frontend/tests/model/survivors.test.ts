import { describe, expect, it } from "vitest";

import { survives } from "../../src/model/survivors";
import { timelineOf } from "./timeline-tensors-cases";

/** Six moments: from before the step; two that survive; freed in the step; two more that survive. */
const TIMELINE = timelineOf([
  { category: "held_tensors", start: 0, end: 6, bytes: 1 },
  { category: "held_tensors", start: 2, end: 6, bytes: 2 },
  { category: "held_tensors", start: 3, end: 6, bytes: 3 },
  { category: "activations", start: 1, end: 5, bytes: 4 },
  { category: "held_tensors", start: 1, end: 6, bytes: 5 },
  { category: "held_tensors", start: 1, end: 6, bytes: 6 },
]);

describe("tensors that survive a step", () => {
  it("were allocated in it and are live at its end", () => {
    const rows = Array.from({ length: TIMELINE.rows }, (_, row) => row).filter((row) => survives(TIMELINE, row));
    expect(rows.map((row) => TIMELINE.bytes[row])).toEqual([2, 3, 5, 6]);
  });
});
