import { describe, expect, it } from "vitest";

import type { Category } from "./categories";
import type { Timeline } from "./timeline";
import { timelineFile } from "./timeline-file";
import { addressPlaces, stackOrder } from "./timeline-order";
import { splitRounding, type StoredTimeline } from "./timeline-rounding";
import { LARGEST_FIRST, ascends, nextSort, sortedRows } from "./timeline-sort";
import { largestTensor, shapeText, sizeFormula, sizeText, tensorOf, tensorStops } from "./timeline-tensor";
import { atPeakText, lifetimeText, tensorLines } from "./timeline-text";

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

function timelineOf(rows: readonly Row[]): Timeline {
  const column = (of: (row: Row) => number | undefined): Float64Array => Float64Array.from(rows, (row) => of(row) ?? NaN);
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
    owners: rows.map(({ layer = null, category, trainable = null }) => ({ layer, category, trainable })),
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
const TIMELINE = timelineOf([
  { category: "activations", layer: "net/b", start: 2, end: 4, bytes: 24_832, rounding: 256, address: 9000, shape: 0, line: 1 },
  { category: "unattributed", start: 0, end: 6, bytes: 9000, count: 0 },
  { category: "optimizer_state", layer: "net/a", start: 0, end: 6, bytes: 512, rounding: 0, address: 0 },
  { category: "workspace", layer: "net/a", start: 1, end: 2, bytes: 100, address: 9000, shape: 1, line: 0 },
  { category: "weights", layer: "net/b", trainable: true, start: 0, end: 6, bytes: 900, rounding: 0 },
  { category: "weights", layer: "net/a", trainable: false, start: 0, end: 6, bytes: 300, rounding: 44 },
  { category: "inputs", start: 0, end: 3, bytes: 50, rounding: 0, address: 512 },
  { category: "other_state", start: 1, end: 5, bytes: 60, rounding: 0 },
]);

describe("the order of the stack", () => {
  it("has persistent memory at the bottom, then what lives throughout, then the rest as it is allocated", () => {
    const order = [...stackOrder(TIMELINE)].map((row) => TIMELINE.tensor[row]);
    expect(order).toEqual([5, 5, 4, 2, 1, 7, 6, 3, 0, 0]);
  });

  it("has the rounding of a tensor above it", () => {
    const order = [...stackOrder(TIMELINE)];
    const activations = order.filter((row) => TIMELINE.tensor[row] === 0).map((row) => TIMELINE.bytes[row]);
    expect(activations).toEqual([24_576, 256]);
  });
});

describe("places by address", () => {
  it("are the addresses, with unused ranges cut down", () => {
    const places = addressPlaces(TIMELINE);
    const used = 512 + 50 + 24_832;
    const gap = used / 16;
    expect(places?.cuts).toEqual([562 + gap / 2]);
    const ofTensor = (tensor: number): number[] =>
      [...TIMELINE.tensor.keys()].filter((row) => TIMELINE.tensor[row] === tensor).map((row) => places?.place[row] ?? NaN);
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
    expect(addressPlaces(near)).toEqual({ place: Float64Array.of(0, 1700), height: 3300, cuts: [], unknown: 0, unknown_bytes: 0 });
    expect(addressPlaces(timelineOf([{ category: "inputs", start: 0, end: 3, bytes: 16 }]))).toBeNull();
  });
});

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

  it("has a lifetime in words", () => {
    const row = (tensor: number): number => TIMELINE.tensor.indexOf(tensor);
    expect(lifetimeText(TIMELINE, row(4))).toBe("throughout the step");
    expect(lifetimeText(TIMELINE, row(6))).toBe("from before the step to 3 ms");
    const late = timelineOf([{ category: "inputs", start: 2, end: 6, bytes: 16 }]);
    expect([lifetimeText(late, 0), atPeakText(TIMELINE, row(3))]).toEqual(["2 ms to after the step", "no"]);
  });

  it("is the largest of a moment among those with a known owner", () => {
    expect([0, 2].map((moment) => largestTensor(TIMELINE, moment))).toEqual([4, 0]);
    expect(largestTensor(timelineOf([{ category: "unattributed", start: 0, end: 6, bytes: 9, count: 0 }]), 0)).toBeNull();
  });
});

describe("the list", () => {
  const tensors = (rows: Uint32Array): number[] => [...rows].map((row) => TIMELINE.tensor[row] ?? -1);

  it("is sorted by any column, unknown values last", () => {
    expect(tensors(sortedRows(TIMELINE, LARGEST_FIRST))).toEqual([0, 1, 4, 2, 5, 0, 3, 7, 6, 5]);
    expect(tensors(sortedRows(TIMELINE, { key: "line", reversed: false })).slice(0, 3)).toEqual([3, 0, 0]);
    expect(tensors(sortedRows(TIMELINE, { key: "line", reversed: true })).slice(0, 3)).toEqual([0, 0, 3]);
    expect(tensors(sortedRows(TIMELINE, { key: "layer", reversed: false })).slice(-3)).toEqual([1, 7, 6]);
    expect(tensors(sortedRows(TIMELINE, { key: "dtype", reversed: true })).slice(0, 2)).toEqual([3, 0]);
    expect(tensors(sortedRows(TIMELINE, { key: "freed", reversed: false }))[0]).toBe(3);
  });

  it("stops once at each tensor, though its rounding is a row further down", () => {
    expect(tensorStops(TIMELINE, [...sortedRows(TIMELINE, LARGEST_FIRST)])).toEqual([0, 1, 4, 2, 5, 3, 7, 6]);
  });

  it("turns round with a second click", () => {
    const reversed = nextSort(LARGEST_FIRST, "bytes");
    expect([ascends(LARGEST_FIRST), ascends(reversed), ascends(nextSort(reversed, "layer"))]).toEqual([false, true, true]);
  });

  it("is saved with shape, dtype, line, address and tensor", () => {
    const { columns, rows } = timelineFile(TIMELINE);
    const first = Object.fromEntries(columns.map((name, index) => [name, rows[0]?.[index]]));
    expect(first).toMatchObject({ shape: "(64, 32, 3)", dtype: "float32", line: "train.py:10", address: 9000, tensor: 0, bytes: 24_576 });
    const rounding = Object.fromEntries(columns.map((name, index) => [name, rows[1]?.[index]]));
    expect(rounding).toMatchObject({ category: "rounding", shape: null, dtype: null, tensor: 0, bytes: 256, count: 0 });
    const unplaced = TIMELINE.address.findIndex(Number.isNaN);
    expect(rows[unplaced]?.[columns.indexOf("address")]).toBeNull();
  });
});
