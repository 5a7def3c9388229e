/**
 * Whether the allocator would serve a request at the instant of a map: its rules (best fit with coalescing) on the map's chunks. The same as
 * `would_fit` in tb_memplugin/analysis/bfc.py, word for word: tests/golden/fits.json holds both to it.
 */

import { formatBytes, formatCount } from "../lib/bytes";
import { stateOf, type AllocatorMap } from "./allocator-map";

const ROUNDING = 256;
const BINS = 21;
/** A chunk is split, whatever the request, if this much would be left over. */
const SPLIT_AT_BYTES = 128 * 2 ** 20;

export interface Fit {
  /** Null where the map does not say. */
  fits: boolean | null;
  /** The request as asked, as the allocator rounds it, and where its search begins. */
  requested_bytes: number;
  rounded_bytes: number;
  bin_bytes: number;
  /** The free chunk that is taken, and what the request gets of it; null if none is. */
  chunk_bytes: number | null;
  allocated_bytes: number | null;
  reason: string;
}

export type FitMap = Pick<
  AllocatorMap,
  "device" | "pool_bytes" | "in_use_bytes" | "capacity_bytes" | "complete" | "rows" | "states" | "state" | "bytes" | "region" | "regions"
>;

const roundedBytes = (requested: number): number => Math.max(ROUNDING, Math.ceil(requested / ROUNDING) * ROUNDING);

/** Smallest chunk of the bin that chunks of a size are in. */
function binBytes(size: number): number {
  let bin = 0;
  while (bin < BINS - 1 && ROUNDING * 2 ** (bin + 1) <= size) bin += 1;
  return ROUNDING * 2 ** bin;
}

const chunkAfterSplit = (chunk: number, rounded: number): number =>
  chunk >= 2 * rounded || chunk - rounded >= SPLIT_AT_BYTES ? rounded : chunk;

/** Free chunks, and the bytes of the regions that hold nothing else. */
function freeBlocks(map: FitMap): { sizes: number[]; idle_bytes: number } {
  const sizes: number[] = [];
  const busy = new Set<number>();
  const seen = new Set<number>();
  for (let chunk = 0; chunk < map.rows; chunk += 1) {
    const region = map.region[chunk] ?? -1;
    seen.add(region);
    if (stateOf(map, chunk) === "free") sizes.push(map.bytes[chunk] ?? 0);
    else busy.add(region);
  }
  const idle = [...seen].filter((region) => !busy.has(region));
  return { sizes, idle_bytes: idle.reduce((sum, region) => sum + (map.regions[region]?.bytes ?? 0), 0) };
}

const sum = (sizes: readonly number[]): number => sizes.reduce((total, size) => total + size, 0);
const largest = (sizes: readonly number[]): number => sizes.reduce((most, size) => Math.max(most, size), 0);

/** What the pool may still grow by within the allocator's limit, in its steps of 256 bytes. */
function unreservedBytes({ capacity_bytes: capacity, pool_bytes: pool }: FitMap): number | null {
  if (capacity === null || pool === null) return null;
  return Math.floor(Math.max(0, capacity - pool) / ROUNDING) * ROUNDING;
}

/** A GPU's allocator frees idle regions before it gives up; the CPU's never does. */
const givesRegionsBack = ({ device }: FitMap): boolean => (device.split("/").at(-1) ?? "").startsWith("GPU");

/** Bytes that may be free in one piece although no block was seen there. */
function unseenFree({ pool_bytes: pool, in_use_bytes: used, capacity_bytes: capacity }: FitMap, sizes: readonly number[]): number {
  if (pool === null || used === null) return capacity ?? Infinity;
  // What was not seen may lie beside the largest block that was.
  return Math.max(0, pool - used - sum(sizes)) + largest(sizes);
}

type Answer = Pick<Fit, "fits" | "reason"> & Partial<Fit>;

function taken(chunk: number, rounded: number): Answer {
  const given = chunkAfterSplit(chunk, rounded);
  const rest =
    chunk === rounded
      ? "it fits exactly"
      : given < chunk
        ? `it is split, and ${formatBytes(chunk - given)} stay free`
        : "it is given as a whole, because it is less than twice the request";
  return { fits: true, reason: `A free block of ${formatBytes(chunk)} takes it: ${rest}.`, chunk_bytes: chunk, allocated_bytes: given };
}

/** The answer where no block that is known to be free is large enough. */
function grown(map: FitMap, rounded: number, sizes: readonly number[], idleBytes: number): Answer {
  const blocks = `the largest free block has ${formatBytes(largest(sizes))} of ${formatBytes(sum(sizes))} free in the pool`;
  const unreserved = unreservedBytes(map);
  if (unreserved !== null && unreserved >= rounded) {
    const grow = `the pool may grow by ${formatBytes(unreserved)} within its limit, as far as the device has that much`;
    return { fits: true, reason: `No free block is large enough (${blocks}), but ${grow}.` };
  }
  const idle = givesRegionsBack(map) && unreserved !== null ? idleBytes : 0;
  if (unreserved !== null && idle > 0 && idle + unreserved >= rounded) {
    const back = `the allocator can give back regions that are wholly free (${formatBytes(idle)}) and take a larger one`;
    return { fits: true, reason: `No free block is large enough (${blocks}), but ${back}.` };
  }
  if (!map.complete && unseenFree(map, sizes) >= rounded) {
    return { fits: null, reason: `That is not known: ${blocks} as far as was seen, and not every block was seen.` };
  }
  if (unreserved === null) {
    return { fits: null, reason: `No free block is large enough: ${blocks}. Whether the pool could grow is not known.` };
  }
  const grow = unreserved > 0 ? `the pool may grow by ${formatBytes(unreserved)} only` : "the pool is at its limit";
  return { fits: false, reason: `No free block is large enough: ${blocks}, and ${grow}.` };
}

/** What the allocator would say to a request of that many bytes, a whole number above 0. */
export function wouldFit(map: FitMap, requested: number): Fit {
  const rounded = roundedBytes(requested);
  const { sizes, idle_bytes } = freeBlocks(map);
  const chunk = sizes.reduce((best, size) => (size >= rounded && size < best ? size : best), Infinity);
  const answer = chunk < Infinity ? taken(chunk, rounded) : grown(map, rounded, sizes, idle_bytes);
  const note = rounded === requested ? "" : ` (The allocator rounds the request up to ${formatCount(rounded)} bytes.)`;
  return {
    requested_bytes: requested,
    rounded_bytes: rounded,
    bin_bytes: binBytes(rounded),
    chunk_bytes: null,
    allocated_bytes: null,
    ...answer,
    reason: answer.reason + note,
  };
}
