/** Each route's answer, checked by the schema and turned into the model. */

import { readColumns } from "../lib/check";
import type { Devices } from "../model/devices";
import type { MemoryMap } from "../model/memory-map";
import type { Overview } from "../model/overview";
import { HOST_PARTS, type HostMemory, type PoolSteps } from "../model/pool";
import type { Activations, LedgerTotals } from "../model/snapshot";
import { splitRounding, type Timeline } from "../model/timeline";
import * as schema from "../schema";

export const parseRuns = (json: unknown): schema.RunsAnswer => schema.runsAnswer(json, "runs");
export const parseAnswers = (json: unknown): schema.Answer[] => schema.answersAnswer(json, "answers").answers;
export const parseSnapshots = (json: unknown): schema.SnapshotSummary[] => schema.snapshotsAnswer(json, "snapshots").snapshots;
export const parseSnapshot = (json: unknown): schema.Snapshot => schema.snapshot(json, "snapshot");
export const parseLayers = (json: unknown): schema.LayersAnswer => schema.layersAnswer(json, "layers");
export const parseMaps = (json: unknown): schema.MapRef[] => schema.mapsAnswer(json, "maps").maps;
export const parseTimelines = (json: unknown): schema.TimelineRef[] => schema.timelinesAnswer(json, "timelines").timelines;
export const parseOoms = (json: unknown): schema.Oom[] => schema.oomsAnswer(json, "oom").ooms;
export const parseFixes = (json: unknown): schema.Fixes => schema.fixes(json, "fixes");
export const parseDeviceMemory = (json: unknown): schema.DeviceMemory => schema.deviceMemory(json, "device_memory");
export const parseDemand = (json: unknown): schema.DemandAnswer => schema.demandAnswer(json, "demand");
export const parsePlan = (json: unknown): schema.Plan => schema.plan(json, "plan");
export const parseWhatIf = (json: unknown): schema.WhatIf => schema.whatIf(json, "what_if");

/** A column of figures; NaN where one is unknown. */
const column = (values: readonly (number | null)[]): Float64Array => Float64Array.from(values, (one) => one ?? NaN);

export function parseDevices(json: unknown): Devices {
  const { steps, ...answer } = schema.devicesAnswer(json, "devices");
  return {
    ...answer,
    steps: {
      step: column(steps.step),
      max_peak_bytes: column(steps.max_peak_bytes),
      min_peak_bytes: column(steps.min_peak_bytes),
      sum_in_use_bytes: steps.sum_in_use_bytes && column(steps.sum_in_use_bytes),
    },
  };
}

export function parseOverview(buffer: ArrayBuffer): Overview {
  const { answer, numbered } = readColumns(buffer, "overview", schema.overviewHead, [
    "step",
    "epoch",
    "wall_time",
    "in_use_bytes",
    "peak_bytes",
    "capacity_bytes",
    "host_resident_bytes",
    "driver_process_bytes",
    "driver_used_bytes",
    "driver_total_bytes",
    "snapshot",
    "traced",
  ]);
  return { ...answer, bytes: numbered("group", answer.groups) };
}

export function parseActivations(buffer: ArrayBuffer): Activations {
  const { answer, numbered } = readColumns(buffer, "activations", schema.activationsHead, ["step", "wall_time"]);
  return { ...answer, bytes: numbered("layer", answer.layers) };
}

export function parseLedgerTotals(buffer: ArrayBuffer): LedgerTotals {
  const { answer, numbered } = readColumns(buffer, "ledger_totals", schema.ledgerTotalsHead, ["step", "wall_time", "in_use_bytes"]);
  return { ...answer, bytes: numbered("group", answer.groups) };
}

const MAP_COLUMNS = ["address", "bytes", "requested_bytes", "state", "owner", "source", "since", "region"] as const;
export const parseMap = (buffer: ArrayBuffer): MemoryMap => readColumns(buffer, "map", schema.mapHead, MAP_COLUMNS).answer;

const TIMELINE_COLUMNS = ["start", "end", "bytes", "rounding_bytes", "count", "owner", "op", "address", "shape", "line"] as const;
export const parseTimeline = (buffer: ArrayBuffer): Timeline =>
  splitRounding(readColumns(buffer, "timeline", schema.timelineHead, TIMELINE_COLUMNS).answer);

export const parsePool = (buffer: ArrayBuffer): PoolSteps =>
  readColumns(buffer, "pool", schema.poolHead, [
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

export const parseHostMemory = (buffer: ArrayBuffer): HostMemory =>
  readColumns(buffer, "host_memory", schema.hostMemoryHead, ["step", "wall_time", "host_resident_bytes", ...HOST_PARTS]).answer;
