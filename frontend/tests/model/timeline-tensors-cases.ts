/** A timeline of eight stored rows, in an order that the stack must not keep. */

import { splitRounding, type Timeline, type StoredTimeline } from "../../src/model/timeline";
import type { Category } from "../../src/schema";

interface Row {
  category: Category;
  layer?: string;
  trainable?: boolean;
  start: number;
  end: number;
  bytes: number;
  rounding?: number;
  address?: number;
  shape?: number;
  line?: number;
  count?: number;
}

const MOMENTS = 6;

export function timelineOf(rows: readonly Row[]): Timeline {
  const column = (of: (row: Row) => number | undefined): Float64Array =>
    Float64Array.from(rows, (row) => of(row) ?? NaN);
  const stored: StoredTimeline = {
    run: "r",
    step: 3,
    phase: "train",
    device: "GPU:0",
    wall_time: 0,
    mode: "graph",
    in_use_bytes: 0,
    allocations: rows.length,
    moments: MOMENTS,
    peak: 2,
    events: 5,
    duration_ns: 6_000_000,
    not_available: [],
    rows: rows.length,
    owners: rows.map(({ layer = null, category, trainable = null }) => ({
      layer,
      category,
      trainable,
    })),
    ops: ["net/a/MatMul"],
    shapes: [
      { shape: [64, 32, 3], dtype: "float32" },
      { shape: [8], dtype: "string" },
    ],
    lines: ["train.py:9", "train.py:10"],
    bands: [],
    compiled: [],
    time_ns: [0, 1e6, 2e6, 3e6, 4e6, 5e6],
    event: [0, 1, 2, 3, 4, 5],
    start: column(({ start }) => start),
    end: column(({ end }) => end),
    bytes: column(({ bytes }) => bytes),
    rounding_bytes: column(({ rounding }) => rounding),
    count: column(({ count }) => count ?? 1),
    owner: Float64Array.from(rows.keys()),
    op: column(({ start }) => (start === 0 ? NaN : 0)),
    address: column(({ address }) => address),
    shape: column(({ shape }) => shape),
    line: column(({ line }) => line),
  };
  return splitRounding(stored);
}

/** Stored rows in an order that the stack must not keep. */
export const TENSORS = timelineOf([
  {
    category: "activations",
    layer: "net/b",
    start: 2,
    end: 4,
    bytes: 24_832,
    rounding: 256,
    address: 9000,
    shape: 0,
    line: 1,
  },
  { category: "unattributed", start: 0, end: 6, bytes: 9000, count: 0 },
  {
    category: "optimizer_state",
    layer: "net/a",
    start: 0,
    end: 6,
    bytes: 512,
    rounding: 0,
    address: 0,
  },
  {
    category: "workspace",
    layer: "net/a",
    start: 1,
    end: 2,
    bytes: 100,
    address: 9000,
    shape: 1,
    line: 0,
  },
  {
    category: "weights",
    layer: "net/b",
    trainable: true,
    start: 0,
    end: 6,
    bytes: 900,
    rounding: 0,
  },
  {
    category: "weights",
    layer: "net/a",
    trainable: false,
    start: 0,
    end: 6,
    bytes: 300,
    rounding: 44,
  },
  { category: "inputs", start: 0, end: 3, bytes: 50, rounding: 0, address: 512 },
  { category: "other_state", start: 1, end: 5, bytes: 60, rounding: 0 },
]);
