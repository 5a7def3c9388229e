import { describe, expect, it } from "vitest";

import { isHeld, survivors } from "../../src/model/survivors";
import { timelineOf } from "./timeline-tensors-cases";
import type { Timeline } from "../../src/model/timeline";

const all = ({ rows }: Timeline): number[] => Array.from({ length: rows }, (_, row) => row);
const bytesOf = (timeline: Timeline, rows: readonly number[]): unknown[] => rows.map((row) => timeline.bytes[row]);

/** `timelineOf` gives every row an owner of its own; here equal owners have one number, as on the wire. */
function sharedOwners(timeline: Timeline): Timeline {
  const names = timeline.owners.map((owner) => JSON.stringify(owner));
  return { ...timeline, owner: timeline.owner.map((number) => names.indexOf(names[number] ?? "")) };
}

describe("tensors that survive a step", () => {
  it("were allocated in it and are live at its end", () => {
    const timeline = timelineOf([
      { category: "held_tensors", start: 0, end: 6, bytes: 1 },
      { category: "held_tensors", start: 2, end: 6, bytes: 2 },
      { category: "activations", start: 3, end: 6, bytes: 3 },
      { category: "activations", start: 1, end: 5, bytes: 4 },
      { category: "rounding", start: 1, end: 6, bytes: 5 },
    ]);
    expect(bytesOf(timeline, survivors(timeline, all(timeline)))).toEqual([2, 3]);
  });

  it("are more than the new values of what the step freed", () => {
    const weights = { category: "weights", layer: "net/a", trainable: true } as const;
    const timeline = sharedOwners(
      timelineOf([
        { ...weights, start: 0, end: 3, bytes: 8 },
        { ...weights, start: 2, end: 6, bytes: 8 },
        { ...weights, start: 4, end: 6, bytes: 8 },
        { ...weights, start: 2, end: 6, bytes: 9 },
        { ...weights, layer: "net/b", start: 2, end: 6, bytes: 8 },
      ]),
    );
    // Of two new ones of one size, one replaces the old value; another size or layer replaces nothing.
    expect(survivors(timeline, all(timeline))).toHaveLength(3);
    expect(bytesOf(timeline, survivors(timeline, all(timeline))).sort()).toEqual([8, 8, 9]);
  });
});

describe("a tensor that something in Python may hold", () => {
  it("is live at the step's end and belongs to no variable and no input pipeline", () => {
    const timeline = timelineOf([
      { category: "held_tensors", start: 0, end: 6, bytes: 1 },
      { category: "activations", start: 1, end: 6, bytes: 2 },
      { category: "activations", start: 1, end: 5, bytes: 3 },
      { category: "weights", start: 0, end: 6, bytes: 4 },
      { category: "inputs", start: 1, end: 6, bytes: 5 },
    ]);
    expect(
      bytesOf(
        timeline,
        all(timeline).filter((row) => isHeld(timeline, row)),
      ),
    ).toEqual([1, 2]);
  });
});
