/** The stack split into frozen and trainable. */

import { formatBytes } from "../lib/bytes";
import { categoryLabel } from "./categories";
import type { Overview } from "./overview";
import type { LedgerTotals } from "./snapshot";
import { PERSISTENT, type Category, type LayerChange } from "../schema";

export type Side = "frozen" | "trainable" | "other";
export const SIDES: readonly Side[] = ["frozen", "trainable", "other"];

export interface SidePart {
  side: Side;
  category: Category;
  bytes: Float64Array;
}

const sideOf = (trainable: boolean | null): Side =>
  trainable === null ? "other" : trainable ? "trainable" : "frozen";

/** Fractions of a category's bytes that belong to frozen and to trainable layers. */
interface Shares {
  frozen: number;
  trainable: number;
}

function sharesByStep(totals: LedgerTotals | null): Map<number, Map<Category, Shares>> {
  const found = new Map<number, Map<Category, Shares>>();
  for (let row = 0; totals !== null && row < totals.rows; row += 1) {
    const sums = new Map<Category, Record<Side, number>>();
    totals.groups.forEach(({ category, trainable }, index) => {
      const sum = sums.get(category) ?? { frozen: 0, trainable: 0, other: 0 };
      sum[sideOf(trainable)] += totals.bytes[index]?.[row] ?? 0;
      sums.set(category, sum);
    });
    const shares = [...sums].map(([category, { frozen, trainable, other }]): [Category, Shares] => {
      const total = frozen + trainable + other || 1;
      return [category, { frozen: frozen / total, trainable: trainable / total }];
    });
    found.set(totals.step[row] ?? NaN, new Map(shares));
  }
  return found;
}

/**
 * Only trainable weights have gradients and optimizer slots; the split of other categories is
 * unknown without a ledger.
 */
function sharesWithoutLedger(category: Category, table: LayerChange | undefined): Shares {
  if (category === "weight_gradients") return { frozen: 0, trainable: 1 };
  if (category !== "optimizer_state") return { frozen: 0, trainable: 0 };
  const { optimizer_bytes: all, other_optimizer_bytes: others } = table ?? {
    optimizer_bytes: 0,
    other_optimizer_bytes: 0,
  };
  return { frozen: 0, trainable: all > 0 ? (all - others) / all : 1 };
}

/** The layer table that is valid at a row. */
export const tableAt = ({ changes, step }: Overview, row: number): LayerChange | undefined =>
  changes.findLast((change) => change.step <= (step[row] ?? 0)) ?? changes[0];

/**
 * Frozen layers below trainable layers below the rest, in each persistent parts below transient
 * ones.
 */
const order = (part: SidePart): number =>
  2 * SIDES.indexOf(part.side) + (PERSISTENT.includes(part.category) ? 0 : 1);

/**
 * Parts in the order of the stack.
 * A category that the overview does not split is split as in the ledger of the snapshot that its
 * row's breakdown comes from; in every row the parts have the same sum as the groups.
 */
export function splitBySide(overview: Overview, totals: LedgerTotals | null): SidePart[] {
  const parts = new Map<string, SidePart>();
  const part = (side: Side, category: Category): SidePart => {
    const key = `${side}/${category}`;
    const made = parts.get(key) ?? { side, category, bytes: new Float64Array(overview.rows) };
    parts.set(key, made);
    return made;
  };
  const ofStep = sharesByStep(totals);
  const shares = overview.snapshots.map(({ step }) => ofStep.get(step));
  const split = new Set(
    overview.groups.filter(({ trainable }) => trainable !== null).map(({ category }) => category),
  );
  overview.groups.forEach(({ category, trainable }, index) => {
    const bytes = overview.bytes[index] as Float64Array;
    const whole = split.has(category) ? part(sideOf(trainable), category).bytes : null;
    for (let row = 0; row < overview.rows; row += 1) {
      const value = bytes[row] as number;
      if (Number.isNaN(value)) continue;
      if (whole) whole[row] = (whole[row] as number) + value;
      else {
        const known =
          shares[overview.snapshot[row] ?? NaN]?.get(category) ??
          sharesWithoutLedger(category, tableAt(overview, row));
        addSplit(part, category, row, value, known);
      }
    }
  });
  return [...parts.values()]
    .filter(({ bytes }) => bytes.some((value) => value > 0))
    .sort((a, b) => order(a) - order(b));
}

function addSplit(
  part: (side: Side, category: Category) => SidePart,
  category: Category,
  row: number,
  value: number,
  shares: Shares,
): void {
  const frozen = Math.round(value * shares.frozen);
  const trainable = Math.min(Math.round(value * shares.trainable), value - frozen);
  const amounts: [Side, number][] = [
    ["frozen", frozen],
    ["trainable", trainable],
    ["other", value - frozen - trainable],
  ];
  for (const [side, amount] of amounts) {
    if (amount <= 0) continue;
    const { bytes } = part(side, category);
    bytes[row] = (bytes[row] as number) + amount;
  }
}

function categoriesOf(parts: readonly SidePart[], side: Side, row: number): Map<Category, number> {
  const own = parts
    .filter((part) => part.side === side)
    .map(({ category, bytes }): [Category, number] => [category, bytes[row] ?? 0]);
  return new Map(own.filter(([, bytes]) => bytes > 0).sort((a, b) => b[1] - a[1]));
}

const total = (bytes: ReadonlyMap<Category, number>): number =>
  [...bytes.values()].reduce((sum, one) => sum + one, 0);

const WHY: Record<"frozen" | "trainable", Partial<Record<Category, string>>> = {
  frozen: {
    weights: "weights, which every forward pass reads",
    activations: "activations, saved for the backward pass to trainable weights",
    activation_gradients: "activation gradients, propagated to trainable weights",
    workspace: "workspace of ops running at the peak",
  },
  trainable: {
    weights: "weights",
    optimizer_state: "optimizer state, kept for every trainable weight",
    weight_gradients: "weight gradients",
    activations: "activations, saved for the backward pass",
    activation_gradients: "activation gradients",
    workspace: "workspace of ops running at the peak",
  },
};

function costSentence(
  parts: readonly SidePart[],
  side: "frozen" | "trainable",
  row: number,
  step: number,
): string | null {
  const bytes = categoriesOf(parts, side, row);
  if (bytes.size === 0) return null;
  const named = [...bytes].map(
    ([category, one]) => `${formatBytes(one)} of ${WHY[side][category] ?? categoryLabel(category)}`,
  );
  return `At step ${step}, ${side} layers use ${formatBytes(total(bytes))}: ${named.join("; ")}.`;
}

function unfreezingSentence(change: LayerChange): string | null {
  const {
    unfreezing_weight_bytes: frozen,
    trainable_weight_bytes: trained,
    optimizer_bytes: slots,
  } = change;
  if (frozen === 0) return null;
  const gradients = `up to ${formatBytes(frozen)} of weight gradients`;
  const rest = "and the activations saved for the longer backward pass";
  if (trained === 0 || slots === 0)
    return `Unfreezing all weights would add ${gradients}, their optimizer state, ${rest}.`;
  const ratio = slots / trained;
  const kept = `${formatBytes(Math.round(frozen * ratio))} of optimizer state (${Number(ratio.toFixed(2))} × the weights, as for those trained now)`;
  return `Unfreezing all weights would add ${kept}, ${gradients}, ${rest}.`;
}

const NOT_TRAINED =
  "This run has no training steps, so no weight has gradients, frozen or trainable.";

export function costSentences(
  overview: Overview,
  parts: readonly SidePart[],
  row: number,
  training = true,
): string[] {
  const step = overview.step[row] ?? 0;
  const table = tableAt(overview, row);
  return [
    // Statistics of trainable layers are not trained either, but no layer is frozen because of
    // them.
    table?.frozen_layers === 0 ? null : costSentence(parts, "frozen", row, step),
    costSentence(parts, "trainable", row, step),
    training ? table && unfreezingSentence(table) : NOT_TRAINED,
  ].filter((sentence) => sentence !== null && sentence !== undefined);
}
