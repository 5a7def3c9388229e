/** What is known of the allocator's pool at every step, and how it grew. Columns are as long as `rows`; NaN means "not known". */

import { formatBytes, formatExact } from "../lib/bytes";
import { formatShare } from "../lib/format";
import { at } from "./overview";
import type { Phase } from "./run";

export const POOL_SOURCES = ["none", "bounded", "inferred", "traced"] as const;
export type PoolSource = (typeof POOL_SOURCES)[number];

/** Whether a band was there at a step: values of `there`. */
export const MAYBE = 1;
export const THERE = 2;

/** A part of the pool that came at once. */
export interface PoolBand {
  bytes: number;
  /** Whether it is one region; else it came between two traced steps in some number of them. */
  region: boolean;
  /** Index into the growths. */
  growth: number;
}

export interface PoolGrowth {
  /** The traced step before; null for the first one of a session. */
  after_step: number | null;
  by_step: number;
  bytes: number;
  pool_bytes: number;
}

export interface PoolSteps {
  run: string;
  device: string;
  phase: Phase;
  rows: number;
  total_rows: number;
  sources: PoolSource[];
  bands: PoolBand[];
  growths: PoolGrowth[];
  sentences: string[];
  step: Float64Array;
  wall_time: Float64Array;
  in_use_bytes: Float64Array;
  peak_bytes: Float64Array;
  capacity_bytes: Float64Array;
  pool_low_bytes: Float64Array;
  pool_high_bytes: Float64Array;
  pool_source: Float64Array;
  largest_free_bytes: Float64Array;
  rounding_bytes: Float64Array;
  fragmentation: Float64Array;
  /** Of each band, in the order of `bands`: 0, `MAYBE` or `THERE`. */
  there: Float64Array[];
}

/** The pool at one step's peak; null where it is not known. */
export interface PoolFacts {
  step: number | null;
  source: PoolSource;
  in_use_bytes: number | null;
  pool_bytes: number | null;
  low_bytes: number | null;
  high_bytes: number | null;
  /** pool − in use. */
  idle: number | null;
  free_largest: number | null;
  free_rest: number | null;
  capacity_bytes: number | null;
  unreserved: number | null;
  rounding_bytes: number | null;
  /** The allocator's own figure; null also when nothing is free. */
  fragmentation: number | null;
  utilisation: number | null;
}

export function poolFacts(pool: PoolSteps, row: number): PoolFacts {
  const [low, high] = [at(pool.pool_low_bytes, row), at(pool.pool_high_bytes, row)];
  const used = at(pool.peak_bytes, row);
  const capacity = at(pool.capacity_bytes, row);
  const largest = at(pool.largest_free_bytes, row);
  const bytes = low !== null && low === high ? low : null;
  const idle = bytes === null || used === null ? null : bytes - used;
  return {
    step: at(pool.step, row),
    source: pool.sources[at(pool.pool_source, row) ?? 0] ?? "none",
    in_use_bytes: used,
    pool_bytes: bytes,
    low_bytes: low,
    high_bytes: high,
    idle,
    free_largest: largest,
    free_rest: idle === null || largest === null ? null : idle - largest,
    capacity_bytes: capacity,
    unreserved: bytes === null || capacity === null ? null : Math.max(capacity - bytes, 0),
    rounding_bytes: at(pool.rounding_bytes, row),
    fragmentation: at(pool.fragmentation, row),
    utilisation: bytes && used !== null ? used / bytes : null,
  };
}

/** Where the figures of a step were learned. */
export function poolProvenance({ source, low_bytes: low, high_bytes: high, capacity_bytes: capacity, idle }: PoolFacts): string {
  const split = idle === 0 ? "" : " How its free part is split is not known between traced steps.";
  switch (source) {
    case "traced":
      return "Measured: this step was traced.";
    case "inferred":
      return `In use is measured; the pool follows from the traced steps around.${split}`;
    case "bounded": {
      const upper = high === null ? " or more" : high === capacity ? ` or more, up to the limit` : ` to ${formatBytes(high)}`;
      return `In use is measured; the pool had ${formatBytes(low ?? 0)}${upper}: it is known at traced steps only.`;
    }
    default:
      return "In use is measured; the pool is not known, because no traced step of this attempt tells it.";
  }
}

/** Where a figure was learned; only `in_use_bytes` is measured at every step. */
export function figureSource(name: keyof PoolFacts, { source, step }: PoolFacts): string {
  const measured = `the allocator's own figure, at the peak of step ${step ?? "?"}`;
  if (source === "traced" || name === "in_use_bytes" || name === "capacity_bytes") return measured;
  if (name === "free_largest" || name === "free_rest" || name === "rounding_bytes" || name === "fragmentation") {
    return "known at traced steps only";
  }
  return source === "inferred" ? `inferred from the traced steps around step ${step ?? "?"}` : "the pool is known at traced steps only";
}

/** The allocator's own fragmentation as it gives it: 0/0 where the pool is full. */
export function fragmentationText({ fragmentation, idle }: PoolFacts): string {
  if (idle === 0) return "0/0";
  return fragmentation === null ? "–" : formatShare(fragmentation);
}

/** "step 3: pool 1.0 GiB; in use …", for a screen reader. */
export function poolSentence(facts: PoolFacts): string {
  const { low_bytes: low, high_bytes: high } = facts;
  const text = (bytes: number | null): string => (bytes === null ? "not known" : formatBytes(bytes));
  const bounds = low === null ? "not known" : `${formatBytes(low)} ${high === null ? "or more" : `to ${formatBytes(high)}`}`;
  const figures = [
    `in use at the peak ${text(facts.in_use_bytes)}`,
    `pool ${facts.pool_bytes === null ? bounds : formatBytes(facts.pool_bytes)}`,
    `idle ${text(facts.idle)}`,
    `largest free block ${text(facts.free_largest)}`,
    `fragmentation ${fragmentationText(facts)}`,
    `utilisation ${facts.utilisation === null ? "not known" : formatShare(facts.utilisation)}`,
  ];
  return `step ${facts.step ?? "unknown"}, ${facts.source}: ${figures.join("; ")}`;
}

/** What the pool's state means for the next allocation; null where it is not known. */
export function poolFinding(facts: PoolFacts): string | null {
  const { free_largest: largest, idle, unreserved } = facts;
  if (largest === null || idle === null) return null;
  if (idle === 0) return `At step ${facts.step ?? "?"}, all of the pool is in use.`;
  const where = `At step ${facts.step ?? "?"}, ${formatBytes(idle)} of the pool lie idle; the largest free block is ${formatBytes(largest)}`;
  if (unreserved === null) return `${where}.`;
  if (unreserved > 0) return `${where}, and the pool can still grow by ${formatBytes(unreserved)}.`;
  return `${where}, so a tensor above ${formatBytes(largest)} (${formatExact(largest)}) fails.`;
}

/** Whether the pool takes memory as it needs it, as far as what was seen tells; null where that is open. */
export function poolGrows(pool: PoolSteps): boolean | null {
  const first = pool.growths[0];
  if (first === undefined) return null;
  const capacity = pool.capacity_bytes.find((value) => !Number.isNaN(value));
  if (pool.growths.length > 1 || pool.bands.length > 1) return true;
  if (capacity === undefined) return null;
  // An allocator hands out steps of 256 bytes; what is left of its limit is none of the pool.
  return capacity - first.pool_bytes < 256 ? false : true;
}
