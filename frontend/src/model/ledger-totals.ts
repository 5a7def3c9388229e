/** What the ledgers of the traced steps sum to by category and trainability, of all layers or of one. */

import { CATEGORIES, groupKey, type Group } from "./categories";
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
  /** Of those, what was not asked for, as far as it is known. */
  rounding_bytes: Float64Array[];
}

const rank = ({ category, trainable }: Group): number => 3 * CATEGORIES.indexOf(category) + (trainable === null ? 2 : Number(trainable));

/** The totals of snapshots that are at hand; of several of a step, the one with the most in use. */
export function totalsOf(
  snapshots: readonly Snapshot[],
  layer: string | null,
  place: Pick<LedgerTotals, "run" | "device" | "phase">,
): LedgerTotals {
  const taken = [...snapshots].sort((a, b) => a.step - b.step || a.in_use_bytes - b.in_use_bytes);
  const made = new Map<string, { group: Group; bytes: Float64Array; rounding: Float64Array }>();
  taken.forEach(({ ledger }, row) => {
    for (const { category, trainable, bytes, rounding_bytes, layer: owner } of ledger) {
      if (layer !== null && owner !== layer) continue;
      const key = groupKey({ category, trainable });
      const sums = made.get(key) ?? {
        group: { category, trainable },
        bytes: new Float64Array(taken.length),
        rounding: new Float64Array(taken.length),
      };
      sums.bytes[row] = (sums.bytes[row] ?? 0) + bytes;
      sums.rounding[row] = (sums.rounding[row] ?? 0) + (rounding_bytes ?? 0);
      made.set(key, sums);
    }
  });
  const all = [...made.values()].sort((a, b) => rank(a.group) - rank(b.group));
  return {
    ...place,
    layer,
    rows: taken.length,
    groups: all.map(({ group }) => group),
    step: Float64Array.from(taken, ({ step }) => step),
    wall_time: Float64Array.from(taken, ({ wall_time }) => wall_time),
    in_use_bytes: Float64Array.from(taken, ({ in_use_bytes }) => in_use_bytes),
    bytes: all.map(({ bytes }) => bytes),
    rounding_bytes: all.map(({ rounding }) => rounding),
  };
}
