/** Totals of the traced steps' ledgers by category and trainability, for all layers or one. */

import { groupKey, stackOrder, type Group } from "./categories";
import type { Phase } from "./run";
import type { Snapshot } from "./snapshot";

export interface LedgerTotals {
  run: string;
  device: string;
  phase: Phase;
  /** Null: of all. */
  layer: string | null;
  rows: number;
  groups: Group[];
  step: Float64Array;
  wall_time: Float64Array;
  /** Of the whole device at the step's peak. */
  in_use_bytes: Float64Array;
  /** Bytes of each group, in the order of `groups`. */
  bytes: Float64Array[];
}

/** The totals of given snapshots, ordered by step, then by bytes in use. */
export function totalsOf(
  snapshots: readonly Snapshot[],
  layer: string | null,
  place: Pick<LedgerTotals, "run" | "device" | "phase">,
): LedgerTotals {
  const ordered = [...snapshots].sort((a, b) => a.step - b.step || a.in_use_bytes - b.in_use_bytes);
  const made = new Map<string, { group: Group; bytes: Float64Array }>();
  ordered.forEach(({ ledger }, row) => {
    for (const { category, trainable, bytes, layer: owner } of ledger) {
      if (layer !== null && owner !== layer) continue;
      const key = groupKey({ category, trainable });
      const sums = made.get(key) ?? { group: { category, trainable }, bytes: new Float64Array(ordered.length) };
      sums.bytes[row] = (sums.bytes[row] ?? 0) + bytes;
      made.set(key, sums);
    }
  });
  const all = [...made.values()].sort((a, b) => stackOrder(a.group) - stackOrder(b.group));
  return {
    ...place,
    layer,
    rows: ordered.length,
    groups: all.map(({ group }) => group),
    step: Float64Array.from(ordered, ({ step }) => step),
    wall_time: Float64Array.from(ordered, ({ wall_time }) => wall_time),
    in_use_bytes: Float64Array.from(ordered, ({ in_use_bytes }) => in_use_bytes),
    bytes: all.map(({ bytes }) => bytes),
  };
}
