/** Where the page gets its data. The server is one source; a saved report can be another. */

import type { Activations } from "../model/activations";
import type { Answer, Fixes, Oom } from "../model/answer";
import type { Devices } from "../model/devices";
import type { HostMemory } from "../model/host-memory";
import type { LayersAnswer } from "../model/layers";
import type { MemoryMap, MapRef, Place } from "../model/memory-map";
import type { Overview } from "../model/overview";
import type { DeviceMemory, PoolSteps, Demand } from "../model/pool";
import type { Phase, RunsAnswer } from "../model/run";
import type { LedgerTotals, Snapshot, SnapshotSummary } from "../model/snapshot";
import type { Timeline, TimelineRef } from "../model/timeline";
import type { Conditions, Plan, WhatIf } from "../model/what-if";

export interface OverviewQuery {
  run: string;
  device: string;
  phase: Phase;
  points: number;
  /** First and last step; null for all. */
  span: readonly [number, number] | null;
  /** One attempt of several that recorded the same steps; null for the last one of each step. */
  session: string | null;
}

export interface TotalsQuery {
  run: string;
  device: string;
  phase: Phase;
  /** Null for all layers together. */
  layer: string | null;
  session: string | null;
}

export interface Source {
  /** Sentences on data that a saved report does not contain; a server has none. */
  absent?: readonly string[];
  /** Whether it answers what-if questions for the recorded conditions only, as a saved report does. */
  recordedOnly?: boolean;
  runs(signal: AbortSignal): Promise<RunsAnswer>;
  /** `device`: null for a run without allocator data. */
  answers(run: string, device: string | null, phase: Phase, signal: AbortSignal): Promise<Answer[]>;
  overview(query: OverviewQuery, signal: AbortSignal): Promise<Overview>;
  pool(query: OverviewQuery, signal: AbortSignal): Promise<PoolSteps>;
  devices(run: string, phase: Phase, signal: AbortSignal): Promise<Devices>;
  hostMemory(query: OverviewQuery, signal: AbortSignal): Promise<HostMemory>;
  snapshots(run: string, device: string, signal: AbortSignal): Promise<SnapshotSummary[]>;
  snapshot(run: string, device: string, phase: Phase, step: number, signal: AbortSignal): Promise<Snapshot>;
  ledgerTotals(query: TotalsQuery, signal: AbortSignal): Promise<LedgerTotals>;
  /** `device`: null for a run of one process. */
  layers(run: string, device: string | null, step: number | null, signal: AbortSignal): Promise<LayersAnswer>;
  /** `span`: first and last step; null for all. */
  activations(run: string, points: number, span: readonly [number, number] | null, signal: AbortSignal): Promise<Activations>;
  timelines(run: string, device: string, signal: AbortSignal): Promise<TimelineRef[]>;
  timeline(run: string, device: string, phase: Phase, step: number, signal: AbortSignal): Promise<Timeline>;
  maps(run: string, device: string, signal: AbortSignal): Promise<MapRef[]>;
  map(run: string, place: Place, signal: AbortSignal): Promise<MemoryMap>;
  ooms(run: string, signal: AbortSignal): Promise<Oom[]>;
  /** `oom`: index of the failure in `ooms`. */
  fixes(run: string, oom: number, signal: AbortSignal): Promise<Fixes>;
  deviceMemory(run: string, device: string, step: number | null, signal: AbortSignal): Promise<DeviceMemory>;
  whatIf(run: string, device: string, conditions: Conditions, signal: AbortSignal): Promise<WhatIf>;
  demand(run: string, device: string, signal: AbortSignal): Promise<{ demand: Demand | null }>;
  /** `budget`: a size such as 8GiB; empty for the capacity. */
  plan(run: string, device: string, budget: string, signal: AbortSignal): Promise<Plan>;
  /** TensorBoard's own list of runs, in the order that gives them their colours. */
  hostRuns(signal: AbortSignal): Promise<string[]>;
}
