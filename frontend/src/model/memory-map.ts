/** The memory map: the allocator's chunks at one instant, in address order. */

import { addressText, formatBytes, formatExact } from "../lib/bytes";
import { lowerBound } from "../lib/search";
import { groupLabel, type Group } from "./categories";
import { NOT_TIED } from "./names";
import { at } from "./overview";
import type { Phase } from "./run";

/** A map of a traced step, or of a failure by its number. */
export type Place = { device: string; step: number; phase: Phase } | { oom: number };

export interface MapRef {
  /** Null for an imported file. */
  step: number | null;
  phase: Phase | null;
  device: string;
  wall_time: number;
  chunks: number;
  in_use_bytes: number | null;
  pool_bytes: number | null;
  capacity_bytes: number | null;
  complete: boolean;
  not_available: string[];
}

export interface ChunkOwner extends Group {
  layer: string | null;
}

export interface Region {
  address: number;
  bytes: number;
}

/** Free chunks of one of the allocator's bins: from `bin_bytes` to twice that. */
export interface Bin {
  bin_bytes: number;
  chunks: number;
  free_bytes: number;
}

/** Chunks in use between two free chunks, by owner. */
export interface BlockingChunks {
  /** Index into the owners, -1: unknown. */
  owner: number;
  chunks: number;
  bytes: number;
  /** The largest free chunk that would form without one of them. */
  joined_bytes: number;
}

export interface MapSummary {
  free_bytes: number;
  largest_free_bytes: number;
  unreserved_bytes: number | null;
  rounding_bytes: number | null;
  owned_bytes: number;
  owner_unknown_bytes: number;
  unknown_bytes: number;
  bins: Bin[];
  blocking_chunks: BlockingChunks[];
}

export interface MemoryMap extends MapRef {
  run: string;
  rows: number;
  states: string[];
  sources: string[];
  owners: ChunkOwner[];
  regions: Region[];
  summary: MapSummary;
  address: Float64Array;
  bytes: Float64Array;
  requested_bytes: Float64Array;
  state: Float64Array;
  owner: Float64Array;
  source: Float64Array;
  since: Float64Array;
  region: Float64Array;
}

/** Colourings of a memory map. */
export const COLOURINGS = ["category", "layer", "age"] as const;
export type Colouring = (typeof COLOURINGS)[number];

type ChunkState = "free" | "in_use" | "unknown";

export function stateOf(map: Pick<MemoryMap, "states" | "state">, chunk: number): ChunkState {
  const name = map.states[map.state[chunk] ?? -1];
  return name === "free" || name === "in_use" ? name : "unknown";
}

export const ownerOf = (map: MemoryMap, chunk: number): ChunkOwner | null => map.owners[at(map.owner, chunk) ?? -1] ?? null;

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

interface ChunkFacts {
  title: string;
  facts: string[];
}

/** Title and facts of a chunk. */
export function chunkFacts(map: MemoryMap, chunk: number): ChunkFacts {
  const size = map.bytes[chunk] ?? 0;
  const place = `at ${addressText(map.address[chunk] ?? 0)}`;
  const bytes = `${formatBytes(size)} (${formatExact(size)})`;
  const state = stateOf(map, chunk);
  if (state === "free") return { title: "free", facts: [bytes, place] };
  if (state === "unknown") return { title: "unknown: no traced step touched it", facts: [bytes, place] };
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

/** The layers with the most bytes in a map, largest first. */
export function largestLayers(map: MemoryMap, limit: number): string[] {
  const sums = new Map<string, number>();
  for (let chunk = 0; chunk < map.rows; chunk += 1) {
    const layer = ownerOf(map, chunk)?.layer;
    if (layer !== null && layer !== undefined) sums.set(layer, (sums.get(layer) ?? 0) + (map.bytes[chunk] ?? 0));
  }
  return [...sums]
    .sort((a, b) => b[1] - a[1])
    .slice(0, limit)
    .map(([layer]) => layer);
}

/** "3 chunks (1.2 MiB, conv1: weights) split free memory: …". */
export function blockingSentence(map: MemoryMap, { owner, chunks, bytes, joined_bytes }: BlockingChunks): string {
  const name = ownerLabel(map.owners[owner] ?? null);
  const [subject, without] =
    chunks > 1
      ? [`${chunks} chunks (${formatBytes(bytes)}, ${name}) split`, "without one of them"]
      : [`A chunk of ${formatBytes(bytes)} (${name}) splits`, "without it"];
  return `${subject} free memory: ${without}, a free chunk of ${formatBytes(joined_bytes)} would form.`;
}
