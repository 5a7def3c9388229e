import { describe, expect, it } from "vitest";

import {
  bandOf,
  bytesOfLayer,
  chosenTimeline,
  groupSeries,
  isCompiled,
  layerSeries,
  liveRows,
  lineOfRow,
  ownerOfRow,
  shapeOfRow,
  splitRounding,
  type Timeline,
  type StoredTimeline,
} from "../../src/model/timeline";
import { MIB, column, rowsBySize, TIMELINE } from "./timeline-cases";

const mib = (bytes: Float64Array | null | undefined): number[] =>
  [...(bytes ?? [])].map((size) => size / MIB);

describe("a timeline", () => {
  it("adds up by category at every moment", () => {
    expect(groupSeries(TIMELINE).map(({ key, bytes }) => [key, mib(bytes)])).toEqual([
      ["weights:trainable", [8, 8, 8, 8]],
      ["activations", [0, 4, 4, 0]],
      ["workspace", [0, 0, 2, 0]],
    ]);
  });

  it("adds up by layer, the others and memory without a layer last", () => {
    const untied = {
      ...TIMELINE,
      owners: [...TIMELINE.owners, { layer: null, category: "inputs" as const, trainable: null }],
      owner: column(0, 1, 2, 3),
    };
    expect(layerSeries(untied, 1).map(({ key, bytes }) => [key, mib(bytes)])).toEqual([
      ["layer:net/a", [8, 12, 12, 8]],
      ["others", [0, 0, 2, 0]],
      ["no_layer", [1, 1, 1, 0]],
    ]);
    expect(mib(bytesOfLayer(TIMELINE, "net/a"))).toEqual([8, 12, 12, 8]);
    expect(bytesOfLayer(TIMELINE, "net")).toBeNull();
  });

  it("has live rows, largest first: freed at a moment means not live at it", () => {
    const ordered = rowsBySize(TIMELINE);
    expect([...ordered]).toEqual([0, 1, 2, 3]);
    expect([0, 1, 2, 3].map((moment) => liveRows(TIMELINE, ordered, moment))).toEqual([
      [0, 3],
      [0, 1, 3],
      [0, 1, 2, 3],
      [0],
    ]);
  });

  it("has passes and compiled modules", () => {
    expect([0, 1, 2, 3].map((moment) => bandOf(TIMELINE, moment)?.name ?? null)).toEqual([
      "forward",
      "forward",
      "backward",
      null,
    ]);
    expect([0, 1, 2].map((moment) => isCompiled(TIMELINE, moment))).toEqual([false, true, false]);
  });

  it("is chosen by step, otherwise by peak", () => {
    const refs = [
      { ...TIMELINE, step: 2, in_use_bytes: 9 },
      { ...TIMELINE, step: 6, in_use_bytes: 7 },
      { ...TIMELINE, step: 8, in_use_bytes: 9 },
    ];
    // Step 4 is as near to 2 as to 6: the first one stays.
    expect([0, 4, 5, 99, null].map((step) => chosenTimeline(refs, step)?.step)).toEqual([
      2, 2, 6, 8, 2,
    ]);
  });
});

/**
 * A weight of 1,000 bytes in a chunk of 1,024, an unsplit remainder, activations of unknown
 * rounding.
 */
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
    return [
      layer,
      category,
      trainable,
      timeline.bytes[row],
      timeline.start[row],
      timeline.end[row],
    ];
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
    expect([0, 1, 2, 3].map((row) => shapeOfRow(timeline, row)?.shape ?? null)).toEqual([
      [250],
      null,
      null,
      null,
    ]);
    expect([0, 1, 2, 3].map((row) => lineOfRow(timeline, row))).toEqual([
      "train.py:42",
      "train.py:42",
      null,
      null,
    ]);
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
