/** Answers of the routes about the allocator, checked and turned into the model. */

import { VERDICTS, type Fix, type Fixes, type Oom } from "../model/answer";
import { CATEGORIES } from "../model/categories";
import { HOST_PARTS, type HostMemory } from "../model/host-memory";
import type { MemoryMap, Bin, ChunkOwner, MapRef, MapSummary, BlockingChunks, Region } from "../model/memory-map";
import { PARTS, POOL_SOURCES, type DeviceMemory, type Segment, type PoolGrowth, type PoolSteps } from "../model/pool";
import { PHASES } from "../model/run";
import {
  BAND_NAMES,
  splitRounding,
  type Band,
  type CompiledSpan,
  type TensorShape,
  type Timeline,
  type TimelineRef,
} from "../model/timeline";
import { ledgerRow, MODES } from "./answers";
import { flag, list, maybe, number, object, oneOf, text, readColumns, numbers, type Check } from "./check";

const phase = oneOf(PHASES);
const category = oneOf(CATEGORIES);

const refFields: { [K in keyof MapRef]: Check<MapRef[K]> } = {
  step: maybe(number),
  phase: maybe(phase),
  device: text,
  wall_time: number,
  chunks: number,
  in_use_bytes: maybe(number),
  pool_bytes: maybe(number),
  capacity_bytes: maybe(number),
  complete: flag,
  not_available: list(text),
};

const mapsAnswer = object<{ maps: MapRef[] }>({ maps: list(object<MapRef>(refFields)) });
export const parseMaps = (json: unknown): MapRef[] => mapsAnswer(json, "maps").maps;

type MapHead = MapRef & Pick<MemoryMap, "run" | "states" | "sources" | "owners" | "regions" | "summary">;

const mapHead = object<MapHead>({
  ...refFields,
  run: text,
  states: list(text),
  sources: list(text),
  owners: list(object<ChunkOwner>({ layer: maybe(text), category, trainable: maybe(flag) })),
  regions: list(object<Region>({ address: number, bytes: number })),
  summary: object<MapSummary>({
    free_bytes: number,
    largest_free_bytes: number,
    unreserved_bytes: maybe(number),
    rounding_bytes: maybe(number),
    owned_bytes: number,
    owner_unknown_bytes: number,
    unknown_bytes: number,
    bins: list(object<Bin>({ bin_bytes: number, chunks: number, free_bytes: number })),
    blocking_chunks: list(object<BlockingChunks>({ owner: number, chunks: number, bytes: number, joined_bytes: number })),
  }),
});

export function parseMap(buffer: ArrayBuffer): MemoryMap {
  return readColumns(buffer, "map", mapHead, ["address", "bytes", "requested_bytes", "state", "owner", "source", "since", "region"]).answer;
}

const oomsAnswer = object<{ ooms: Oom[] }>({
  ooms: list(
    object<Oom>({
      status: text,
      step: maybe(number),
      phase: maybe(phase),
      during: maybe(text),
      device: text,
      wall_time: number,
      requested_bytes: maybe(number),
      free_bytes: maybe(number),
      largest_free_bytes: maybe(number),
      in_use_bytes: maybe(number),
      pool_bytes: maybe(number),
      capacity_bytes: maybe(number),
      verdict: maybe(oneOf(VERDICTS)),
      reason: text,
      op: maybe(text),
      layer: maybe(text),
      line: maybe(text),
      shape: maybe(text),
      batch_size: maybe(number),
      chunks: maybe(number),
      ledger: list(ledgerRow),
      not_available: list(text),
    }),
  ),
});
export const parseOoms = (json: unknown): Oom[] => oomsAnswer(json, "oom").ooms;

const fixesAnswer = object<Fixes>({
  fixes: list(
    object<Fix>({
      kind: text,
      change: text,
      sentence: text,
      enough: maybe(flag),
      batch_size: maybe(number),
      capacity_bytes: maybe(number),
      freeze: maybe(text),
      budget_bytes: maybe(number),
      peak_bytes: maybe(number),
      code: maybe(text),
    }),
  ),
  note: maybe(text),
});
export const parseFixes = (json: unknown): Fixes => fixesAnswer(json, "fixes");

const deviceMemoryAnswer = object<DeviceMemory>({
  run: text,
  device: text,
  step: number,
  phase,
  at_failure: flag,
  in_use_bytes: number,
  pool_bytes: maybe(number),
  capacity_bytes: maybe(number),
  total_bytes: maybe(number),
  driver_process_bytes: maybe(number),
  driver_used_bytes: maybe(number),
  driver_total_bytes: maybe(number),
  segments: list(object<Segment>({ part: oneOf(PARTS), category: maybe(category), trainable: maybe(flag), bytes: number })),
  notes: list(text),
});
export const parseDeviceMemory = (json: unknown): DeviceMemory => deviceMemoryAnswer(json, "device_memory");

const poolHead = object<Pick<PoolSteps, "run" | "device" | "phase" | "total_rows" | "sources" | "growths" | "sentences">>({
  run: text,
  device: text,
  phase: oneOf(PHASES),
  total_rows: number,
  sources: list(oneOf(POOL_SOURCES)),
  growths: list(
    object<PoolGrowth>({ after_step: maybe(number), by_step: number, bytes: number, pool_bytes: number, peak_rise_bytes: maybe(number) }),
  ),
  sentences: list(text),
});

export const parsePool = (buffer: ArrayBuffer): PoolSteps =>
  readColumns(buffer, "pool", poolHead, [
    "step",
    "wall_time",
    "session",
    "in_use_bytes",
    "peak_bytes",
    "capacity_bytes",
    "pool_source",
    "pool_bytes",
    "largest_free_bytes",
    "fragmentation",
    "rounding_bytes",
  ]).answer;

const timelineFields: { [K in keyof TimelineRef]: Check<TimelineRef[K]> } = {
  step: number,
  phase: oneOf(PHASES),
  device: text,
  wall_time: number,
  mode: oneOf(MODES),
  in_use_bytes: number,
  allocations: number,
  moments: number,
  peak: number,
  events: number,
  duration_ns: number,
  not_available: list(text),
};

const timelinesAnswer = object<{ timelines: TimelineRef[] }>({ timelines: list(object<TimelineRef>(timelineFields)) });
export const parseTimelines = (json: unknown): TimelineRef[] => timelinesAnswer(json, "timelines").timelines;

type Head = TimelineRef & Pick<Timeline, "run" | "owners" | "ops" | "shapes" | "lines" | "bands" | "compiled" | "time_ns" | "event">;

const timelineHead = object<Head>({
  ...timelineFields,
  run: text,
  owners: list(object<ChunkOwner>({ layer: maybe(text), category: oneOf(CATEGORIES), trainable: maybe(flag) })),
  ops: list(text),
  shapes: list(object<TensorShape>({ shape: list(number), dtype: text })),
  lines: list(text),
  bands: list(object<Band>({ name: oneOf(BAND_NAMES), start: number, end: number })),
  compiled: list(object<CompiledSpan>({ start: number, end: number })),
  time_ns: numbers,
  event: numbers,
});

const TIMELINE_COLUMNS = ["start", "end", "bytes", "rounding_bytes", "count", "owner", "op", "address", "shape", "line"] as const;

export function parseTimeline(buffer: ArrayBuffer): Timeline {
  const { answer } = readColumns(buffer, "timeline", timelineHead, TIMELINE_COLUMNS);
  return splitRounding(answer);
}

const hostHead = object<Pick<HostMemory, "run" | "device" | "phase" | "worker" | "total_rows" | "summary">>({
  run: text,
  device: text,
  phase: oneOf(PHASES),
  worker: text,
  total_rows: number,
  summary: maybe(object<NonNullable<HostMemory["summary"]>>({ sentence: text, growth: maybe(object<object>({})) })),
});

export const parseHostMemory = (buffer: ArrayBuffer): HostMemory =>
  readColumns(buffer, "host_memory", hostHead, ["step", "wall_time", "host_resident_bytes", ...HOST_PARTS]).answer;
