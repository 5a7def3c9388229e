import { describe, expect, it } from "vitest";

import { topLayers, totalAt, type Activations } from "./activations";
import { totalsOf } from "./ledger-totals";
import type { LedgerRow, Snapshot } from "./snapshot";
import { owners } from "./snapshot";

const column = (...values: number[]): Float64Array => Float64Array.from(values);

describe("recorded activations", () => {
  const ACTIVATIONS: Activations = {
    run: "r",
    rows: 3,
    total_rows: 3,
    layers: ["a", "b", "c", "d"],
    step: column(0, 1, 2),
    wall_time: column(0, 1, 2),
    bytes: [column(1, 2, NaN), column(9, NaN, 1), column(NaN, 4, NaN), column(3, 3, NaN)],
  };

  it("are the largest layers by their maximum, and the sum of the others", () => {
    const top = topLayers(ACTIVATIONS, 1);
    expect(top.map(({ layer, count, max_bytes }) => [layer, count, max_bytes])).toEqual([
      ["b", 1, 9],
      [null, 3, 9],
    ]);
    expect([...(top[1]?.bytes ?? [])]).toEqual([4, 9, NaN]);
    expect([0, 1, 2].map((row) => totalAt(top, row))).toEqual([13, 9, 1]);
  });

  it("need no band for the others if there is only one", () => {
    expect(topLayers(ACTIVATIONS, 3).map(({ layer }) => layer)).toEqual(["b", "c", "d", "a"]);
    expect(totalAt(topLayers({ ...ACTIVATIONS, layers: [], bytes: [] }, 3), 0)).toBeNull();
  });
});

const row = (layer: string | null, category: LedgerRow["category"], trainable: boolean | null, bytes: number): LedgerRow => ({
  layer,
  category,
  trainable,
  bytes,
  rounding_bytes: 0,
});
const snapshot = (step: number, in_use_bytes: number, ledger: LedgerRow[]): Snapshot => ({
  run: "r",
  step,
  phase: "train",
  device: "GPU:0",
  mode: "graph",
  wall_time: 10 * step,
  in_use_bytes,
  pool_bytes: null,
  largest_free_bytes: null,
  capacity_bytes: null,
  fragmentation: null,
  rounding_bytes: null,
  not_available: [],
  replay: null,
  ledger,
  saved_for_backward: [],
  held_tensors: [],
});

describe("totals of ledgers", () => {
  const snapshots = [
    snapshot(7, 60, [row("a", "weights", true, 40), row(null, "inputs", null, 20)]),
    snapshot(2, 35, [row("a", "weights", false, 10), row("a", "weights", false, 5), row("b", "weights", true, 20)]),
  ];
  const place = { run: "r", device: "GPU:0", phase: "train" } as const;

  it("are ordered by step, split by category and trainability", () => {
    const totals = totalsOf(snapshots, null, place);
    expect([totals.rows, [...totals.step], [...totals.wall_time], [...totals.in_use_bytes]]).toEqual([2, [2, 7], [20, 70], [35, 60]]);
    expect(totals.groups).toEqual([
      { category: "weights", trainable: false },
      { category: "weights", trainable: true },
      { category: "inputs", trainable: null },
    ]);
    expect(totals.bytes.map((bytes) => [...bytes])).toEqual([
      [15, 0],
      [20, 40],
      [0, 20],
    ]);
  });

  it("are those of one layer, at every step", () => {
    const totals = totalsOf(snapshots, "b", place);
    expect([[...totals.step], totals.groups.length, totals.bytes.map((bytes) => [...bytes])]).toEqual([[2, 7], 1, [[20, 0]]]);
    expect(totalsOf(snapshots, "none", place).groups).toEqual([]);
  });
});

describe("owners", () => {
  it("are layers by their sum, memory without a layer included", () => {
    const ledger = [row("a", "weights", true, 5), row(null, "inputs", null, 7), row("a", "activations", true, 3)];
    expect(owners(ledger)).toEqual([
      { layer: "a", bytes: 8 },
      { layer: null, bytes: 7 },
    ]);
  });
});
