import { describe, expect, it } from "vitest";

import { groupKey } from "../../src/model/categories";
import type { Timeline } from "../../src/model/timeline";
import {
  addressPlaces,
  stackOrder,
  LARGEST_FIRST,
  ascends,
  nextSort,
  sortedRows,
  spanStatistics,
  isHeld,
  survivors,
} from "../../src/model/timeline-order";
import { timelineOf, TENSORS } from "./timeline-tensors-cases";

describe("the order of the stack", () => {
  it("has persistent memory at the bottom, then what lives throughout, then the rest as it is allocated", () => {
    const order = [...stackOrder(TENSORS)].map((row) => TENSORS.tensor[row]);
    expect(order).toEqual([5, 5, 4, 2, 1, 7, 6, 3, 0, 0]);
  });

  it("has the rounding of a tensor above it", () => {
    const order = [...stackOrder(TENSORS)];
    const activations = order
      .filter((row) => TENSORS.tensor[row] === 0)
      .map((row) => TENSORS.bytes[row]);
    expect(activations).toEqual([24_576, 256]);
  });
});

describe("places by address", () => {
  it("are the addresses, with unused ranges cut down", () => {
    const places = addressPlaces(TENSORS);
    const used = 512 + 50 + 24_832;
    const gap = used / 16;
    expect(places?.cuts).toEqual([562 + gap / 2]);
    const ofTensor = (tensor: number): number[] =>
      [...TENSORS.tensor.keys()]
        .filter((row) => TENSORS.tensor[row] === tensor)
        .map((row) => places?.place[row] ?? NaN);
    expect(ofTensor(2)).toEqual([0]);
    expect(ofTensor(6)).toEqual([512]);
    expect(ofTensor(3)).toEqual([562 + gap]);
    expect(ofTensor(0)).toEqual([562 + gap, 562 + gap + 24_576]);
    expect(ofTensor(4)).toEqual([NaN]);
    expect(places?.height).toBe(562 + gap + 24_832);
    expect([places?.unknown, places?.unknown_bytes]).toEqual([4, 9000 + 900 + 300 + 60]);
  });

  it("keep short gaps, and are none where no address is known", () => {
    const near = timelineOf([
      { category: "inputs", start: 0, end: 3, bytes: 1600, rounding: 0, address: 0 },
      { category: "inputs", start: 0, end: 3, bytes: 1600, rounding: 0, address: 1700 },
    ]);
    expect(addressPlaces(near)).toEqual({
      place: Float64Array.of(0, 1700),
      height: 3300,
      cuts: [],
      unknown: 0,
      unknown_bytes: 0,
    });
    expect(
      addressPlaces(timelineOf([{ category: "inputs", start: 0, end: 3, bytes: 16 }])),
    ).toBeNull();
  });
});

describe("the list", () => {
  const tensors = (rows: Uint32Array): number[] =>
    [...rows].map((row) => TENSORS.tensor[row] ?? -1);

  it("is sorted by any column, unknown values last", () => {
    expect(tensors(sortedRows(TENSORS, LARGEST_FIRST))).toEqual([0, 1, 4, 2, 5, 0, 3, 7, 6, 5]);
    expect(tensors(sortedRows(TENSORS, { key: "line", reversed: false })).slice(0, 3)).toEqual([
      3, 0, 0,
    ]);
    expect(tensors(sortedRows(TENSORS, { key: "line", reversed: true })).slice(0, 3)).toEqual([
      0, 0, 3,
    ]);
    expect(tensors(sortedRows(TENSORS, { key: "layer", reversed: false })).slice(-3)).toEqual([
      1, 7, 6,
    ]);
    expect(tensors(sortedRows(TENSORS, { key: "dtype", reversed: true })).slice(0, 2)).toEqual([
      3, 0,
    ]);
    expect(tensors(sortedRows(TENSORS, { key: "freed", reversed: false }))[0]).toBe(3);
  });
});

describe("the sorting", () => {
  it("turns round with a second click", () => {
    const reversed = nextSort(LARGEST_FIRST, "bytes");
    expect([
      ascends(LARGEST_FIRST),
      ascends(reversed),
      ascends(nextSort(reversed, "layer")),
    ]).toEqual([false, true, true]);
  });
});

/** Bytes in use, added up moment by moment. */
const total = Float64Array.from({ length: TENSORS.moments }, (_, moment) =>
  TENSORS.bytes.reduce(
    (sum, bytes, row) =>
      sum + ((TENSORS.start[row] ?? 0) <= moment && moment < (TENSORS.end[row] ?? 0) ? bytes : 0),
    0,
  ),
);

const of = (first: number, last: number) => spanStatistics(TENSORS, total, [first, last]);

describe("the statistics of a span", () => {
  it("are what its events allocate and free", () => {
    const found = of(1, 2);
    // Moment 1 allocates the temporary and the state, moment 2 the activation, and frees the
    // temporary.
    expect([found.allocated_bytes, found.freed_bytes]).toEqual([100 + 60 + 24_832, 100]);
    expect([found.allocated, found.freed]).toEqual([3, 1]);
    expect(
      found.groups.map(({ group, allocated_bytes, freed_bytes }) => [
        groupKey(group),
        allocated_bytes,
        freed_bytes,
      ]),
    ).toEqual([
      ["activations", 24_832 - 256, 0],
      ["rounding", 256, 0],
      ["workspace", 100, 100],
      ["other_state", 60, 0],
    ]);
    expect(found.largest).toEqual([0, 3, 7]);
    expect([found.peak, found.peak_bytes]).toEqual([2, total[2]]);
  });

  it("differ by the change of the bytes in use, in every span", () => {
    for (let first = 0; first < TENSORS.moments; first += 1) {
      for (let last = first; last < TENSORS.moments; last += 1) {
        const found = of(first, last);
        expect(found.allocated_bytes - found.freed_bytes).toBe(
          (total[last] ?? 0) - (total[Math.max(first - 1, 0)] ?? 0),
        );
        expect(found.peak_bytes).toBe(Math.max(...total.subarray(first, last + 1)));
        for (const flow of ["allocated_bytes", "freed_bytes", "allocated", "freed"] as const)
          expect(found.groups.reduce((sum, group) => sum + group[flow], 0)).toBe(found[flow]);
      }
    }
  });

  it("leave out what lives before the step", () => {
    expect(of(0, 0)).toMatchObject({
      allocated_bytes: 0,
      freed_bytes: 0,
      largest: [],
      groups: [],
      peak: 0,
      peak_bytes: total[0],
    });
  });
});

const all = ({ rows }: Timeline): number[] => Array.from({ length: rows }, (_, row) => row);
const bytesOf = (timeline: Timeline, rows: readonly number[]): unknown[] =>
  rows.map((row) => timeline.bytes[row]);

/**
 * `timelineOf` gives every row an owner of its own; here equal owners have one number, as on the
 * wire.
 */
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
    // Of two new ones of one size, one replaces the old value; another size or layer replaces
    // nothing.
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
