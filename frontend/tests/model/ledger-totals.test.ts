import { describe, expect, it } from "vitest";

import { totalsOf } from "../../src/model/ledger-totals";
import type { LedgerRow, Snapshot } from "../../src/model/snapshot";

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
  batch_size: 32,
  at_failure: false,
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
