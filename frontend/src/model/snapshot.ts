/** The record of one traced step. */

import type { Category } from "./categories";
import type { Mode } from "./overview";
import type { Phase } from "./run";

export interface SnapshotSummary {
  step: number;
  phase: Phase;
  device: string;
  mode: Mode;
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

/** Tensors of one shape and dtype that one holder in Python keeps alive. */
export interface HeldTensorGroup {
  shape: number[];
  dtype: string;
  count: number;
  /** Requested bytes of all of them. */
  bytes: number;
  /** The Python object that keeps them alive; null if unknown. */
  held_by: string | null;
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
  /** Null without memory maps. */
  replay: Replay | null;
  ledger: LedgerRow[];
  saved_for_backward: SavedRow[];
  held_tensors: HeldTensorGroup[];
}

interface Owner {
  layer: string | null;
  bytes: number;
}

/** Bytes by layer over all categories, largest first; null is memory not tied to a layer. */
export function owners(ledger: readonly LedgerRow[]): Owner[] {
  const byLayer = new Map<string | null, number>();
  for (const row of ledger) byLayer.set(row.layer, (byLayer.get(row.layer) ?? 0) + row.bytes);
  return [...byLayer].map(([layer, bytes]) => ({ layer, bytes })).sort((a, b) => b.bytes - a.bytes);
}
