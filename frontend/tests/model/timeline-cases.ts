/** A timeline of four moments. */

import type { Timeline } from "../../src/model/timeline";

export const MIB = 2 ** 20;
export const column = (...values: number[]): Float64Array => Float64Array.from(values);

/**
 * Four moments. Weights (8 MiB) live throughout; an activation of `a` (4 MiB) in moments 1 and 2;
 * three temporaries of `b` (2 MiB) in moment 2 only; 1 MiB of an unknown owner until moment 3.
 */
export const TIMELINE: Timeline = {
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

/** All rows, largest first. */
export function rowsBySize(timeline: Timeline): Uint32Array {
  const rows = Uint32Array.from({ length: timeline.rows }, (_, row) => row);
  return rows.sort(
    (a, b) =>
      (timeline.bytes[b] ?? 0) - (timeline.bytes[a] ?? 0) ||
      (timeline.start[a] ?? 0) - (timeline.start[b] ?? 0),
  );
}
