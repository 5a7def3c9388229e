/** The deep record of one traced step. */

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
  bytes: number;
  rounding_bytes: number | null;
}

export interface HeldRow {
  layer: string | null;
  bytes: number;
}

export interface Snapshot extends SnapshotSummary {
  run: string;
  ledger: LedgerRow[];
  held_for_backward: HeldRow[];
}

/** Parts of the allocator's pool at a snapshot; null where the allocator does not say. */
export interface PoolParts {
  in_use_bytes: number;
  free_rest: number | null;
  free_largest: number | null;
  pool_bytes: number | null;
  unreserved: number | null;
  /** (free - largest free) / free; null also when nothing is free. */
  fragmentation: number | null;
  /** in use / pool. */
  utilisation: number | null;
}

export function poolParts(snapshot: SnapshotSummary): PoolParts {
  const { pool_bytes: pool, largest_free_bytes: largest, in_use_bytes: used, capacity_bytes: capacity } = snapshot;
  const free = pool === null ? null : pool - used;
  return {
    in_use_bytes: used,
    free_rest: free === null || largest === null ? null : free - largest,
    free_largest: largest,
    pool_bytes: pool,
    unreserved: pool === null || capacity === null ? null : capacity - pool,
    fragmentation: snapshot.fragmentation,
    utilisation: pool ? used / pool : null,
  };
}

export interface Owner {
  layer: string | null;
  bytes: number;
}

/** Bytes by layer over all categories, largest first; null is what belongs to no layer. */
export function owners(ledger: readonly LedgerRow[]): Owner[] {
  const byLayer = new Map<string | null, number>();
  for (const row of ledger) byLayer.set(row.layer, (byLayer.get(row.layer) ?? 0) + row.bytes);
  return [...byLayer].map(([layer, bytes]) => ({ layer, bytes })).sort((a, b) => b.bytes - a.bytes);
}
