import { describe, expect, it } from "vitest";

import { groupSeries, lineOfRow, ownerOfRow, shapeOfRow, type Timeline } from "../../src/model/timeline";
import { splitRounding, type StoredTimeline } from "../../src/model/timeline-rounding";

const column = (...values: number[]): Float64Array => Float64Array.from(values);

/** A weight of 1,000 bytes in a chunk of 1,024, an unsplit remainder, activations of unknown rounding. */
const STORED: StoredTimeline = {
  run: "r",
  step: 3,
  phase: "train",
  device: "GPU:0",
  wall_time: 0,
  mode: "graph",
  in_use_bytes: 1024 + 512 + 4096,
  allocations: 3,
  moments: 3,
  peak: 1,
  events: 2,
  duration_ns: 10,
  not_available: [],
  rows: 3,
  owners: [
    { layer: "a", category: "weights", trainable: false },
    { layer: null, category: "workspace", trainable: null },
    { layer: "a", category: "activations", trainable: false },
  ],
  ops: ["a/MatMul"],
  shapes: [{ shape: [250], dtype: "float32" }],
  lines: ["train.py:42"],
  bands: [],
  compiled: [],
  time_ns: [0, 1, 2],
  event: [0, 1, 2],
  start: column(0, 0, 1),
  end: column(3, 3, 2),
  bytes: column(1024, 512, 4096),
  rounding_bytes: column(24, 512, NaN),
  count: column(1, 1, 1),
  owner: column(0, 1, 2),
  op: column(NaN, NaN, 0),
  address: column(4096, NaN, 8192),
  shape: column(0, NaN, NaN),
  line: column(0, NaN, NaN),
};

describe("the rounding of a step's allocations", () => {
  const timeline: Timeline = splitRounding(STORED);
  const rows = Array.from({ length: timeline.rows }, (_, row) => {
    const { layer, category, trainable } = ownerOfRow(timeline, row);
    return [layer, category, trainable, timeline.bytes[row], timeline.start[row], timeline.end[row]];
  });

  it("is a row of its own, with the owner's layer", () => {
    expect(rows).toEqual([
      ["a", "weights", false, 1000, 0, 3],
      ["a", "rounding", false, 24, 0, 3],
      [null, "rounding", null, 512, 0, 3],
      ["a", "activations", false, 4096, 1, 2],
    ]);
  });

  it("keeps the tensor's number and line, lies above it and has no shape", () => {
    expect([...timeline.tensor]).toEqual([0, 0, 1, 2]);
    expect([...timeline.address]).toEqual([4096, 5096, NaN, 8192]);
    expect([...timeline.rounding_bytes]).toEqual([24, 24, 512, NaN]);
    expect([0, 1, 2, 3].map((row) => shapeOfRow(timeline, row)?.shape ?? null)).toEqual([[250], null, null, null]);
    expect([0, 1, 2, 3].map((row) => lineOfRow(timeline, row))).toEqual(["train.py:42", "train.py:42", null, null]);
  });

  it("is a category of the stack", () => {
    const shown = groupSeries(timeline).map(({ key, bytes }) => [key, [...bytes]]);
    expect(shown).toEqual([
      ["weights:frozen", [1000, 1000, 1000]],
      ["activations", [0, 4096, 0]],
      ["rounding", [536, 536, 536]],
    ]);
  });
});
