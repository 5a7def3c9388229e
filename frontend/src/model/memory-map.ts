/** The memory map: the allocator's chunks at one instant, in address order. */

import { addressText, formatBytes, formatExact, formatCount, sumsBy } from "../lib/bytes";
import { lowerBound } from "../lib/search";
import { groupLabel } from "./categories";
import { at } from "./overview";
import { NOT_TIED, isGpu } from "./run";
import type { BlockingChunks, ChunkOwner, MAP_COLUMNS, MapHead, Phase } from "../schema";

export type Place = { device: string; step: number; phase: Phase } | { oom: number };

export type MemoryMap = MapHead & { rows: number } & Record<
    (typeof MAP_COLUMNS)[number],
    Float64Array
  >;

export const COLOURINGS = ["category", "layer", "age"] as const;
export type Colouring = (typeof COLOURINGS)[number];

type ChunkState = "free" | "in_use" | "unknown";

export function stateOf(map: Pick<MemoryMap, "states" | "state">, chunk: number): ChunkState {
  const name = map.states[map.state[chunk] ?? -1];
  return name === "free" || name === "in_use" ? name : "unknown";
}

export const ownerOf = (map: MemoryMap, chunk: number): ChunkOwner | null =>
  map.owners[at(map.owner, chunk) ?? -1] ?? null;

/** First chunk of each region and, last, the number of chunks. Chunks lie region after region. */
export function regionStarts(map: MemoryMap): number[] {
  const starts = map.regions.map((_, index) => lowerBound(map.region, index));
  return [...starts, map.rows];
}

const SOURCES: Record<string, string> = {
  variable: "holds a variable",
  held_tensor: "holds a tensor that Python keeps alive",
  trace: "allocation traced",
  earlier_step: "owner from an earlier traced step: same size at the same point",
  size: "owner inferred: every traced chunk of that size had it",
};

const ownerLabel = (owner: ChunkOwner | null): string =>
  owner === null ? "owner unknown" : `${owner.layer ?? NOT_TIED}: ${groupLabel(owner)}`;

export function chunkFacts(map: MemoryMap, chunk: number): { title: string; facts: string[] } {
  const size = map.bytes[chunk] ?? 0;
  const place = `at ${addressText(map.address[chunk] ?? 0)}`;
  const bytes = `${formatBytes(size)} (${formatExact(size)})`;
  const state = stateOf(map, chunk);
  if (state === "free") return { title: "free", facts: [bytes, place] };
  if (state === "unknown")
    return { title: "unknown: no traced step touched it", facts: [bytes, place] };
  const requested = at(map.requested_bytes, chunk);
  const since = at(map.since, chunk);
  const how = SOURCES[map.sources[map.source[chunk] ?? -1] ?? ""];
  return {
    title: ownerLabel(ownerOf(map, chunk)),
    facts: [
      bytes,
      requested === null ? "requested size unknown" : `${formatExact(requested)} requested`,
      place,
      ...(since === null ? [] : [`first seen at step ${since}`]),
      ...(how === undefined ? [] : [how]),
    ],
  };
}

export function largestLayers(map: MemoryMap, limit: number): string[] {
  const sums = sumsBy(
    map.bytes.keys(),
    (chunk) => ownerOf(map, chunk)?.layer ?? null,
    (chunk) => map.bytes[chunk] ?? 0,
  );
  return [...sums]
    .sort((a, b) => b[1] - a[1])
    .flatMap(([layer]) => layer ?? [])
    .slice(0, limit);
}

export function blockingSentence(
  map: MemoryMap,
  { owner, chunks, bytes, joined_bytes }: BlockingChunks,
): string {
  const name = ownerLabel(map.owners[owner] ?? null);
  const [subject, without] =
    chunks > 1
      ? [`${chunks} chunks (${formatBytes(bytes)}, ${name}) split`, "without one of them"]
      : [`A chunk of ${formatBytes(bytes)} (${name}) splits`, "without it"];
  return `${subject} free memory: ${without}, a free chunk of ${formatBytes(joined_bytes)} would form.`;
}

const ROUNDING = 256;
const BINS = 21;
/** A chunk is split, whatever the request, if this much would be left over. */
const SPLIT_AT_BYTES = 128 * 2 ** 20;

export interface Fit {
  fits: boolean | null;
  /** The request, its rounded size, and the bin where the allocator's search begins. */
  requested_bytes: number;
  rounded_bytes: number;
  bin_bytes: number;
  /** The free chunk that serves the request, and the bytes allocated from it; null if none does. */
  chunk_bytes: number | null;
  allocated_bytes: number | null;
  reason: string;
}

export type FitMap = Pick<
  MemoryMap,
  | "device"
  | "pool_bytes"
  | "in_use_bytes"
  | "capacity_bytes"
  | "complete"
  | "rows"
  | "states"
  | "state"
  | "bytes"
  | "region"
  | "regions"
>;

const roundedBytes = (requested: number): number =>
  Math.max(ROUNDING, Math.ceil(requested / ROUNDING) * ROUNDING);

function binBytes(size: number): number {
  let bin = 0;
  while (bin < BINS - 1 && ROUNDING * 2 ** (bin + 1) <= size) bin += 1;
  return ROUNDING * 2 ** bin;
}

const chunkAfterSplit = (chunk: number, rounded: number): number =>
  chunk >= 2 * rounded || chunk - rounded >= SPLIT_AT_BYTES ? rounded : chunk;

function freeChunks(map: FitMap): { sizes: number[]; idle_bytes: number } {
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
  return {
    sizes,
    idle_bytes: idle.reduce((sum, region) => sum + (map.regions[region]?.bytes ?? 0), 0),
  };
}

const sum = (sizes: readonly number[]): number => sizes.reduce((total, size) => total + size, 0);
const largest = (sizes: readonly number[]): number =>
  sizes.reduce((most, size) => Math.max(most, size), 0);

/** Bytes by which the pool can grow within the allocator's limit, a multiple of 256. */
function unreservedBytes({ capacity_bytes: capacity, pool_bytes: pool }: FitMap): number | null {
  if (capacity === null || pool === null) return null;
  return Math.floor(Math.max(0, capacity - pool) / ROUNDING) * ROUNDING;
}

/** A GPU's allocator releases unused regions before an allocation fails; the CPU's never does. */
const releasesRegions = ({ device }: FitMap): boolean => isGpu(device);

/** Largest free chunk that may exist among chunks whose state is unknown. */
function unseenFree(
  { pool_bytes: pool, in_use_bytes: used, capacity_bytes: capacity }: FitMap,
  sizes: readonly number[],
): number {
  if (pool === null || used === null) return capacity ?? Infinity;
  // Unknown memory may lie next to the largest known free chunk.
  return Math.max(0, pool - used - sum(sizes)) + largest(sizes);
}

type Answer = Pick<Fit, "fits" | "reason"> & Partial<Fit>;

function served(chunk: number, rounded: number): Answer {
  const given = chunkAfterSplit(chunk, rounded);
  const split =
    chunk === rounded
      ? "an exact fit"
      : given < chunk
        ? `the allocator splits it and ${formatBytes(chunk - given)} stay free`
        : "the allocator does not split it, because the chunk is smaller than twice the request";
  return {
    fits: true,
    reason: `A free chunk of ${formatBytes(chunk)} serves the request: ${split}.`,
    chunk_bytes: chunk,
    allocated_bytes: given,
  };
}

function grown(map: FitMap, rounded: number, sizes: readonly number[], idleBytes: number): Answer {
  const chunks = `the largest free chunk is ${formatBytes(largest(sizes))} of ${formatBytes(sum(sizes))} free in the pool`;
  const unreserved = unreservedBytes(map);
  if (unreserved !== null && unreserved >= rounded) {
    const grow = `the pool can grow by ${formatBytes(unreserved)} if the device has that much memory`;
    return { fits: true, reason: `No free chunk is large enough (${chunks}), but ${grow}.` };
  }
  const idle = releasesRegions(map) && unreserved !== null ? idleBytes : 0;
  if (unreserved !== null && idle > 0 && idle + unreserved >= rounded) {
    const release = `the allocator can release unused regions (${formatBytes(idle)}) and reserve a larger one`;
    return { fits: true, reason: `No free chunk is large enough (${chunks}), but ${release}.` };
  }
  if (!map.complete && unseenFree(map, sizes) >= rounded) {
    return { fits: null, reason: `Unknown: ${chunks}, but the state of some chunks is unknown.` };
  }
  if (unreserved === null) {
    return {
      fits: null,
      reason: `No free chunk is large enough: ${chunks}. Whether the pool can grow is unknown.`,
    };
  }
  const grow =
    unreserved > 0
      ? `the pool can grow by only ${formatBytes(unreserved)}`
      : "the pool is at its limit";
  return { fits: false, reason: `No free chunk is large enough: ${chunks}, and ${grow}.` };
}

/**
 * Whether the allocator would serve a request of that many bytes, a whole number above 0: its rules
 * (best fit with coalescing) on the map's chunks. tests/golden/fits.json holds the expected
 * figures.
 */
export function wouldFit(map: FitMap, requested: number): Fit {
  const rounded = roundedBytes(requested);
  const { sizes, idle_bytes } = freeChunks(map);
  const chunk = sizes.reduce(
    (best, size) => (size >= rounded && size < best ? size : best),
    Infinity,
  );
  const answer = chunk < Infinity ? served(chunk, rounded) : grown(map, rounded, sizes, idle_bytes);
  const note =
    rounded === requested
      ? ""
      : ` (The allocator rounds the request up to ${formatCount(rounded)} bytes.)`;
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

export function freeBySize(map: MemoryMap): number[] {
  const free = Array.from({ length: map.rows }, (_, chunk) => chunk).filter(
    (chunk) => stateOf(map, chunk) === "free",
  );
  return free.sort((a, b) => (map.bytes[b] ?? 0) - (map.bytes[a] ?? 0) || a - b);
}

export function requestPlace(
  map: MemoryMap,
  chunk: number,
  requested: number,
): { holds: boolean | null; sentence: string } {
  const { rounded_bytes: needed } = wouldFit(map, requested);
  const size = map.bytes[chunk] ?? 0;
  const state = stateOf(map, chunk);
  if (state === "unknown")
    return { holds: null, sentence: "Unknown: the state of this chunk is unknown." };
  if (state === "in_use")
    return {
      holds: false,
      sentence: `In use: ${formatBytes(size)}, ${chunkFacts(map, chunk).title}.`,
    };
  if (size >= needed)
    return {
      holds: true,
      sentence: `Holds it: ${formatBytes(size)} free, ${formatBytes(needed)} needed.`,
    };
  return {
    holds: false,
    sentence: `Too small: ${formatBytes(size)} free, ${formatBytes(needed)} needed, ${formatBytes(needed - size)} short.`,
  };
}
