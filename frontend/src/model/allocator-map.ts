/** The allocator's address space at one instant, chunk by chunk in the order of addresses. */

import { formatBytes, formatExact } from "../lib/bytes";
import { lowerBound } from "../lib/search";
import { groupLabel, type Category, type Group } from "./categories";
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

/** Free blocks of one of the allocator's bins: from `bin_bytes` to twice that. */
export interface Bin {
  bin_bytes: number;
  chunks: number;
  free_bytes: number;
}

/** Chunks in use that lie alone between two free blocks. */
export interface Pin {
  /** Index into the owners, -1: not seen. */
  owner: number;
  chunks: number;
  bytes: number;
  /** The largest block that would come about without one of them. */
  joined_bytes: number;
}

export interface MapSummary {
  free_bytes: number;
  largest_free_bytes: number;
  unreserved_bytes: number | null;
  rounding_bytes: number | null;
  owned_bytes: number;
  not_seen_bytes: number;
  unknown_bytes: number;
  bins: Bin[];
  pins: Pin[];
}

export interface AllocatorMap extends MapRef {
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

/** What the chunks of a map can be coloured by. */
export const COLOURINGS = ["category", "layer", "age"] as const;
export type Colouring = (typeof COLOURINGS)[number];

export type ChunkState = "free" | "in_use" | "unknown";

export function stateOf(map: Pick<AllocatorMap, "states" | "state">, chunk: number): ChunkState {
  const name = map.states[map.state[chunk] ?? -1];
  return name === "free" || name === "in_use" ? name : "unknown";
}

export const ownerOf = (map: AllocatorMap, chunk: number): ChunkOwner | null => map.owners[at(map.owner, chunk) ?? -1] ?? null;

/** First chunk of each region and, last, the number of chunks. Chunks lie region after region. */
export function regionStarts(map: AllocatorMap): number[] {
  const starts = map.regions.map((_, index) => lowerBound(map.region, index));
  return [...starts, map.rows];
}

const SOURCES: Record<string, string> = {
  variable: "a variable's value lies there",
  held_tensor: "a tensor that Python holds lies there",
  trace: "its allocation was traced",
  earlier_step: "an earlier traced step had a chunk of that size at the same point",
  size: "in earlier traced steps every chunk of that size had this owner",
};

export const ownerLabel = (owner: ChunkOwner | null): string =>
  owner === null ? "owner not seen" : `${owner.layer ?? "no layer"}: ${groupLabel(owner)}`;

export interface ChunkFacts {
  title: string;
  facts: string[];
}

/** Everything known of a chunk: what it is, then its figures. */
export function chunkFacts(map: AllocatorMap, chunk: number): ChunkFacts {
  const size = map.bytes[chunk] ?? 0;
  const place = `at 0x${(map.address[chunk] ?? 0).toString(16)}`;
  const bytes = `${formatBytes(size)} (${formatExact(size)})`;
  const state = stateOf(map, chunk);
  if (state === "free") return { title: "free", facts: [bytes, place] };
  if (state === "unknown") return { title: "not known: no traced step touched it", facts: [bytes, place] };
  const requested = at(map.requested_bytes, chunk);
  const since = at(map.since, chunk);
  const how = SOURCES[map.sources[map.source[chunk] ?? -1] ?? ""];
  return {
    title: ownerLabel(ownerOf(map, chunk)),
    facts: [
      bytes,
      requested === null ? "requested size not known" : `${formatExact(requested)} requested`,
      place,
      ...(since === null ? [] : [`seen since step ${since}`]),
      ...(how === undefined ? [] : [how]),
    ],
  };
}

/** Bytes in use by owner's category and trainability, largest first; null is "owner not seen". */
export function bytesByGroup(map: AllocatorMap): { group: Group | null; category: Category | null; bytes: number }[] {
  const sums = new Map<string, { group: Group | null; category: Category | null; bytes: number }>();
  for (let chunk = 0; chunk < map.rows; chunk += 1) {
    if (stateOf(map, chunk) !== "in_use") continue;
    const owner = ownerOf(map, chunk);
    const trainable = owner?.category === "weights" ? owner.trainable : null;
    const key = owner === null ? "" : `${owner.category}/${trainable}`;
    const sum = sums.get(key) ?? {
      group: owner && { category: owner.category, trainable },
      category: owner?.category ?? null,
      bytes: 0,
    };
    sum.bytes += map.bytes[chunk] ?? 0;
    sums.set(key, sum);
  }
  return [...sums.values()].sort((a, b) => b.bytes - a.bytes);
}

/** The layers that hold most of a map, largest first. */
export function largestLayers(map: AllocatorMap, limit: number): string[] {
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

/** "3 chunks of vgg/conv1: weights, together 1.2 MiB, …". */
export function pinSentence(map: AllocatorMap, pin: Pin): string {
  const owner = ownerLabel(map.owners[pin.owner] ?? null);
  const many = pin.chunks > 1;
  const what = many
    ? `${pin.chunks} chunks (${formatBytes(pin.bytes)}) of ${owner} lie`
    : `A chunk of ${formatBytes(pin.bytes)} of ${owner} lies`;
  return `${what} alone between free blocks; without ${many ? "one of them" : "it"} there would be a free block of ${formatBytes(pin.joined_bytes)}.`;
}
