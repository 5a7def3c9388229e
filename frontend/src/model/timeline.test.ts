import { describe, expect, it } from "vitest";

import {
  bandOf,
  bytesOfLayer,
  chosenTimeline,
  groupSeries,
  isCompiled,
  layerSeries,
  liveRows,
  rowsBySize,
  type Timeline,
} from "./timeline";
import { momentSentence, rowFacts, sinceText, timeText, untilText, whatText } from "./timeline-text";

const MIB = 2 ** 20;
const column = (...values: number[]): Float64Array => Float64Array.from(values);

/**
 * Four moments. Weights (8 MiB) live throughout; an activation of `a` (4 MiB) in moments 1 and 2; three temporaries of `b`
 * (2 MiB) in moment 2 only; 1 MiB of an unknown owner until moment 3.
 */
const TIMELINE: Timeline = {
  run: "r",
  step: 5,
  phase: "train",
  device: "GPU:0",
  wall_time: 0,
  mode: "graph",
  in_use_bytes: 15 * MIB,
  allocations: 6,
  moments: 4,
  peak: 2,
  events: 8,
  duration_ns: 4_000_000,
  not_available: [],
  rows: 4,
  owners: [
    { layer: "net/a", category: "weights", trainable: true },
    { layer: "net/a", category: "activations", trainable: true },
    { layer: "net/b", category: "workspace", trainable: false },
  ],
  ops: ["net/a/MatMul"],
  shapes: [{ shape: [8, 128, 1024], dtype: "float32" }],
  lines: ["train.py:42"],
  bands: [
    { name: "forward", start: 0, end: 2 },
    { name: "backward", start: 2, end: 3 },
  ],
  compiled: [{ start: 1, end: 2 }],
  time_ns: [0, 1_000_000, 1_500_000, 3_000_000],
  event: [0, 2, 6, 8],
  start: column(0, 1, 2, 0),
  end: column(4, 3, 3, 3),
  bytes: column(8 * MIB, 4 * MIB, 2 * MIB, MIB),
  count: column(1, 1, 3, 0),
  owner: column(0, 1, 2, NaN),
  op: column(NaN, 0, NaN, NaN),
  tensor: column(0, 1, 2, 3),
  rounding_bytes: column(0, 0, NaN, NaN),
  address: column(0, 9 * MIB, NaN, NaN),
  shape: column(NaN, 0, NaN, NaN),
  line: column(NaN, 0, NaN, NaN),
};
const mib = (bytes: Float64Array | null | undefined): number[] => [...(bytes ?? [])].map((size) => size / MIB);

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
    expect([0, 1, 2, 3].map((moment) => liveRows(TIMELINE, ordered, moment))).toEqual([[0, 3], [0, 1, 3], [0, 1, 2, 3], [0]]);
  });

  it("has passes and compiled modules", () => {
    expect([0, 1, 2, 3].map((moment) => bandOf(TIMELINE, moment)?.name ?? null)).toEqual(["forward", "forward", "backward", null]);
    expect([0, 1, 2].map((moment) => isCompiled(TIMELINE, moment))).toEqual([false, true, false]);
  });

  it("is chosen by step, otherwise by peak", () => {
    const refs = [
      { ...TIMELINE, step: 2, in_use_bytes: 9 },
      { ...TIMELINE, step: 6, in_use_bytes: 7 },
      { ...TIMELINE, step: 8, in_use_bytes: 9 },
    ];
    // Step 4 is as near to 2 as to 6: the first one stays.
    expect([0, 4, 5, 99, null].map((step) => chosenTimeline(refs, step)?.step)).toEqual([2, 2, 6, 8, 2]);
  });
});

describe("words on a timeline", () => {
  it("give times and operations of rows", () => {
    expect([0, 1, 2, 3].map((row) => [sinceText(TIMELINE, row), untilText(TIMELINE, row), whatText(TIMELINE, row)])).toEqual([
      ["before", "after", "allocated before the step"],
      ["1 ms", "3 ms", "net/a/MatMul"],
      ["1.5 ms", "3 ms", "3 smaller allocations"],
      ["before", "3 ms", "allocations unknown"],
    ]);
    expect(whatText({ ...TIMELINE, op: column(NaN, NaN, NaN, NaN) }, 1)).toBe("operation unknown");
    expect([timeText(TIMELINE, 0), timeText(TIMELINE, 4)]).toEqual(["0 ms", "4 ms"]);
  });

  it("give all facts of a row once", () => {
    expect(rowFacts(TIMELINE, 0)).toEqual([
      "net/a: weights, trainable",
      "allocated before the step, live after the step",
      "the trace, step 5",
    ]);
    expect(rowFacts(TIMELINE, 1)).toEqual(["net/a: activations", "net/a/MatMul", "allocated at 1 ms, freed at 3 ms", "the trace, step 5"]);
    expect(rowFacts(TIMELINE, 3)).toEqual([
      "not tied to a layer: unattributed",
      "allocations unknown",
      "allocated before the step, freed at 3 ms",
      "the trace, step 5",
    ]);
  });

  it("describe a moment, largest part first", () => {
    const series = groupSeries(TIMELINE);
    const labels = series.map(({ key }) => key);
    expect(momentSentence(TIMELINE, series, labels, 2)).toBe(
      "at 1.5 ms, backward, peak: 14.0 MiB in use; weights:trainable 8.0 MiB; activations 4.0 MiB; workspace 2.0 MiB",
    );
    expect(momentSentence(TIMELINE, series, labels, 3)).toBe("at 3 ms: 8.0 MiB in use; weights:trainable 8.0 MiB");
  });
});
