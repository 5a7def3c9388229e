/** Answers of the timeline routes, checked and turned into the model. */

import { CATEGORIES } from "../model/categories";
import type { ChunkOwner } from "../model/memory-map";
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
import { MODES } from "./answers";
import { flag, list, maybe, number, numbers, object, oneOf, text, type Check } from "./check";
import { readColumns } from "./columns";

const refFields: { [K in keyof TimelineRef]: Check<TimelineRef[K]> } = {
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

const timelinesAnswer = object<{ timelines: TimelineRef[] }>({ timelines: list(object<TimelineRef>(refFields)) });
export const parseTimelines = (json: unknown): TimelineRef[] => timelinesAnswer(json, "timelines").timelines;

type Head = TimelineRef & Pick<Timeline, "run" | "owners" | "ops" | "shapes" | "lines" | "bands" | "compiled" | "time_ns" | "event">;

const head = object<Head>({
  ...refFields,
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

const COLUMNS = ["start", "end", "bytes", "rounding_bytes", "count", "owner", "op", "address", "shape", "line"] as const;

export function parseTimeline(buffer: ArrayBuffer): Timeline {
  const { answer } = readColumns(buffer, "timeline", head, COLUMNS);
  return splitRounding(answer);
}
