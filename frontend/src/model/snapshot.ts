/** The breakdown of one step: traced, or at its failure. */

import { formatBytes, formatCount } from "../lib/bytes";
import { PERSISTENT, groupKey, stackOrder, type Category, type Group } from "./categories";
import type { Mode } from "./overview";
import type { Phase } from "./run";

export interface SnapshotSummary {
  step: number;
  phase: Phase;
  device: string;
  mode: Mode | null;
  /** Examples in the step's batch; null if unknown. */
  batch_size: number | null;
  /** Whether the step ran out of memory, and this is its breakdown at the failed allocation. */
  at_failure: boolean;
  wall_time: number;
  in_use_bytes: number;
  pool_bytes: number | null;
  largest_free_bytes: number | null;
  capacity_bytes: number | null;
  fragmentation: number | null;
  rounding_bytes: number | null;
  not_available: string[];
}

export interface LedgerRow {
  layer: string | null;
  category: Category;
  trainable: boolean | null;
  /** Requested bytes, or rounding; allocated bytes where the request is unknown. */
  bytes: number;
  /** How many of them were not requested: none, all of them in category `rounding`, null where it is unknown. */
  rounding_bytes: number | null;
}

export interface SavedRow {
  layer: string | null;
  bytes: number;
}

/** Tensors of one shape and dtype that one holder keeps: a Python object, a function, a data set or an optimizer. */
export interface HeldTensorGroup {
  shape: number[];
  dtype: string;
  count: number;
  bytes: number;
  /** The holder, such as "list `history` in module __main__" or "data set"; null if unknown. */
  held_by: string | null;
  /** The Python line that made them, e.g. "train.py:42"; null if unknown. */
  line: string | null;
  /** The references from a Python module or function to them, "…" where they differ; null if unknown. */
  retaining_path: string | null;
  category: Category;
}

/** How much of the step its replay reproduced from the memory map at its start. */
export interface Replay {
  addresses: number;
  of_addresses: number;
  chunks: number;
  of_chunks: number;
  peak_bytes: number;
}

export interface Snapshot extends SnapshotSummary {
  run: string;
  replay: Replay | null;
  ledger: LedgerRow[];
  saved_for_backward: SavedRow[];
  held_tensors: HeldTensorGroup[];
}

export function owners(ledger: readonly LedgerRow[]): { layer: string | null; bytes: number }[] {
  const byLayer = new Map<string | null, number>();
  for (const row of ledger) byLayer.set(row.layer, (byLayer.get(row.layer) ?? 0) + row.bytes);
  return [...byLayer].map(([layer, bytes]) => ({ layer, bytes })).sort((a, b) => b.bytes - a.bytes);
}

export const SIZE_MEANINGS: Record<keyof LayerSizes, string> = {
  persistent: "weights, optimizer state, other state and held tensors",
  saved: "activations saved for the backward pass, at the end of the forward pass",
  total: "total of all categories, at the peak",
};

/** The sizes that a phase has: only training steps save activations for a backward pass. */
export const sizesOfPhase = (phase: Phase): readonly (keyof LayerSizes)[] =>
  phase === "train" ? ["persistent", "saved", "total"] : ["persistent", "total"];

/** Sizes of a layer. Layers are ranked by `persistent + saved`: temporaries that happen to live at the peak do not count. */
export interface LayerSizes {
  persistent: number;
  saved: number;
  total: number;
}

/** The figure that ranks layers, the same in the table, the treemap and the panels. */
export const rankOf = ({ persistent, saved }: LayerSizes): number => persistent + saved;

export function layerSizes(ledger: readonly LedgerRow[], saved: readonly SavedRow[]): Map<string | null, LayerSizes> {
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

/** The layers with the most persistent and saved bytes, largest first; equal ones in alphabetical order. */
export function rankedLayers(sizes: ReadonlyMap<string | null, LayerSizes>, limit: number): string[] {
  const layers = [...sizes].filter((entry): entry is [string, LayerSizes] => entry[0] !== null);
  return layers
    .sort((a, b) => rankOf(b[1]) - rankOf(a[1]) || a[0].localeCompare(b[0]))
    .slice(0, limit)
    .map(([layer]) => layer);
}

export const MAX_GROUPS = 8;

interface HeldTensors {
  groups: HeldTensorGroup[];
  /** "and 3 more, 1.2 MiB"; null if all groups are shown. */
  more: string | null;
}

export function heldTensors(groups: readonly HeldTensorGroup[]): HeldTensors {
  const ordered = [...groups].sort((a, b) => b.bytes - a.bytes);
  const rest = ordered.slice(MAX_GROUPS);
  const bytes = rest.reduce((sum, group) => sum + group.bytes, 0);
  return {
    groups: ordered.slice(0, MAX_GROUPS),
    more: rest.length > 0 ? `and ${formatCount(rest.length)} more, ${formatBytes(bytes)}` : null,
  };
}

/** What holds the tensors of a shape: the path to them, or the holder; null if unknown or if there are several. */
export function holderOf(groups: readonly HeldTensorGroup[], { shape, dtype }: Pick<HeldTensorGroup, "shape" | "dtype">): string | null {
  const [group, ...others] = groups.filter((one) => one.dtype === dtype && sizesText(one.shape) === sizesText(shape));
  return group && others.length === 0 ? (group.retaining_path ?? group.held_by) : null;
}

export const sizesText = (shape: readonly number[]): string => `(${shape.join(", ")})`;

/** "replay: 3,080 of 3,080 addresses, 659 of 659 chunks". */
export function replayText({ addresses, of_addresses, chunks, of_chunks }: Replay): string {
  const [placed, allocations, same, all] = [addresses, of_addresses, chunks, of_chunks].map(formatCount);
  return `replay: ${placed} of ${allocations} addresses, ${same} of ${all} chunks`;
}

export interface LedgerTotals {
  run: string;
  device: string;
  phase: Phase;
  layer: string | null;
  rows: number;
  groups: Group[];
  step: Float64Array;
  wall_time: Float64Array;
  /** Of the whole device at the step's peak. */
  in_use_bytes: Float64Array;
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
