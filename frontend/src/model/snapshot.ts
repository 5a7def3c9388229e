/** The breakdown of one step: traced, or at its failure. */

import { formatBytes, formatCount, totalBytes, largestFirst, grouped } from "../lib/bytes";
import { maximum } from "../lib/search";
import { groupKey, stackOrder } from "./categories";
import {
  PERSISTENT,
  type Group,
  type HeldTensorGroup,
  type LedgerRow,
  type LedgerTotalsHead,
  type Phase,
  type Replay,
  type SavedRow,
  type Snapshot,
  type ActivationsHead,
} from "../schema";

export const owners = (ledger: readonly LedgerRow[]): { layer: string | null; bytes: number }[] =>
  [...grouped(ledger, ({ layer }) => layer)]
    .map(([layer, rows]) => ({ layer, bytes: totalBytes(rows) }))
    .sort(largestFirst);

export const SIZE_MEANINGS: Record<keyof LayerSizes, string> = {
  persistent: "weights, optimizer state, other state and held tensors",
  saved: "activations saved for the backward pass, at the end of the forward pass",
  total: "total of all categories, at the moment shown: the peak, or the failed allocation",
};

/** The sizes that a phase has: only training steps save activations for a backward pass. */
export const sizesOfPhase = (phase: Phase): readonly (keyof LayerSizes)[] =>
  phase === "train" ? ["total", "persistent", "saved"] : ["total", "persistent"];

/**
 * Sizes of a layer. Layers are ranked by `total`, their bytes at the moment shown: that is what
 * fills the memory then.
 */
export interface LayerSizes {
  persistent: number;
  saved: number;
  total: number;
}

export function layerSizes(
  ledger: readonly LedgerRow[],
  saved: readonly SavedRow[],
): Map<string | null, LayerSizes> {
  const byLayer = new Map<string | null, LayerSizes>();
  const sizesOf = (layer: string | null): LayerSizes => {
    const sizes = byLayer.get(layer) ?? { persistent: 0, saved: 0, total: 0 };
    byLayer.set(layer, sizes);
    return sizes;
  };
  for (const { layer, category, bytes } of ledger) {
    const sizes = sizesOf(layer);
    sizes.total += bytes;
    if (PERSISTENT.includes(category)) sizes.persistent += bytes;
  }
  for (const { layer, bytes } of saved) sizesOf(layer).saved += bytes;
  return byLayer;
}

export const MAX_GROUPS = 8;

interface HeldTensors {
  groups: HeldTensorGroup[];
  more: string | null;
}

export function heldTensors(groups: readonly HeldTensorGroup[]): HeldTensors {
  const ordered = [...groups].sort(largestFirst);
  const rest = ordered.slice(MAX_GROUPS);
  const bytes = totalBytes(rest);
  return {
    groups: ordered.slice(0, MAX_GROUPS),
    more: rest.length > 0 ? `and ${formatCount(rest.length)} more, ${formatBytes(bytes)}` : null,
  };
}

/**
 * What holds the tensors of a shape: the path to them, or the holder; null if unknown or if there
 * are several.
 */
export function holderOf(
  groups: readonly HeldTensorGroup[],
  { shape, dtype }: Pick<HeldTensorGroup, "shape" | "dtype">,
): string | null {
  const [group, ...others] = groups.filter(
    (one) => one.dtype === dtype && sizesText(one.shape) === sizesText(shape),
  );
  return group && others.length === 0 ? (group.retaining_path ?? group.held_by) : null;
}

export const sizesText = (shape: readonly number[]): string => `(${shape.join(", ")})`;

export function replayText({ addresses, of_addresses, chunks, of_chunks }: Replay): string {
  const [placed, allocations, same, all] = [addresses, of_addresses, chunks, of_chunks].map(
    formatCount,
  );
  return `replay: ${placed} of ${allocations} addresses, ${same} of ${all} chunks`;
}

/**
 * `in_use_bytes` is that of the whole device at the step's peak, `bytes` has a column for each
 * group.
 */
export type LedgerTotals = LedgerTotalsHead & { rows: number; bytes: Float64Array[] } & Record<
    "step" | "wall_time" | "in_use_bytes",
    Float64Array
  >;

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
      const sums = made.get(key) ?? {
        group: { category, trainable },
        bytes: new Float64Array(ordered.length),
      };
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

export type Activations = ActivationsHead & {
  rows: number;
  step: Float64Array;
  wall_time: Float64Array;
  bytes: Float64Array[];
};

export interface LayerSeries {
  /** Layer path; null for the sum of the layers that are not shown one by one. */
  layer: string | null;
  count: number;
  bytes: Float64Array;
  max_bytes: number;
}

/**
 * The `limit` layers with the highest recorded bytes, then one series for all others. In order of
 * size.
 */
export function topLayers(activations: Activations, limit: number): LayerSeries[] {
  const all = activations.layers.map((layer, index): LayerSeries => {
    const bytes = activations.bytes[index] ?? new Float64Array(activations.rows).fill(NaN);
    return { layer, count: 1, bytes, max_bytes: maximum(bytes) };
  });
  all.sort((a, b) => b.max_bytes - a.max_bytes);
  if (all.length <= limit + 1) return all;
  const rest = all.slice(limit);
  const sum = new Float64Array(activations.rows).fill(NaN);
  for (const series of rest) {
    series.bytes.forEach((value, row) => {
      if (!Number.isNaN(value))
        sum[row] = (Number.isNaN(sum[row]) ? 0 : (sum[row] as number)) + value;
    });
  }
  return [
    ...all.slice(0, limit),
    { layer: null, count: rest.length, bytes: sum, max_bytes: maximum(sum) },
  ];
}

export function totalAt(series: readonly LayerSeries[], row: number): number | null {
  let total: number | null = null;
  for (const { bytes } of series) {
    const value = bytes[row];
    if (value !== undefined && !Number.isNaN(value)) total = (total ?? 0) + value;
  }
  return total;
}
