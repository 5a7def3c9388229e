/** A run's entry in the list of runs. Field names are those of the HTTP API. */

import { shortName } from "./names";

export const PHASES = ["train", "validation", "predict"] as const;
export type Phase = (typeof PHASES)[number];

export interface DeviceInfo {
  device: string;
  capacity_bytes: number | null;
  peak_bytes: number | null;
  peak_step: number | null;
  snapshots: number;
}

export interface RunInfo {
  run: string;
  version: string;
  sessions: number;
  workers: string[];
  steps: number;
  first_step: number | null;
  last_step: number | null;
  started: number | null;
  phases: Phase[];
  devices: DeviceInfo[];
  activation_layers: number;
  /** Number of failed allocations. */
  ooms: number;
  /** Sentences on memory that grows over the steps. */
  findings: string[];
  notes: string[];
  damage: string[];
}

export interface RunsAnswer {
  plugin_version: string;
  runs: RunInfo[];
}

const isCpu = ({ device }: Pick<DeviceInfo, "device">): boolean => shortName(device).toUpperCase().startsWith("CPU");

/** The accelerators, or all devices if there are none: the memory of a CPU is not compared with theirs. */
export function ofOneKind<Device extends Pick<DeviceInfo, "device">>(devices: readonly Device[]): readonly Device[] {
  const accelerators = devices.filter((device) => !isCpu(device));
  return accelerators.length > 0 ? accelerators : devices;
}

/** The most loaded device: that of the least headroom as a share of its capacity; where a capacity is unknown, that of the highest peak. */
export function preferredDevice(run: RunInfo): string | null {
  const devices = ofOneKind(run.devices);
  const used = devices.filter(({ peak_bytes }) => peak_bytes !== null);
  const relative = used.every(({ capacity_bytes }) => capacity_bytes);
  const load = ({ capacity_bytes, peak_bytes }: DeviceInfo): number => (peak_bytes ?? 0) / (relative ? (capacity_bytes ?? 1) : 1);
  return (used.sort((a, b) => load(b) - load(a))[0] ?? devices[0])?.device ?? null;
}

/** What the preferred device of a run of several is called. */
export function preferredLabel(run: RunInfo): string {
  const device = preferredDevice(run) ?? "";
  const kind = ofOneKind(run.devices).length < run.devices.length ? ` ${shortName(device).split(":")[0] ?? ""}` : "";
  return `most loaded${kind}: ${device}`;
}

/** The phase that a run is about, to show first: training if it was recorded. */
export function preferredPhase(run: RunInfo): Phase {
  return run.phases.includes("train") ? "train" : (run.phases[0] ?? "train");
}

/** Whether the run recorded training steps: without them there are no gradients, and nothing is saved for a backward pass. */
export const trains = ({ phases }: Pick<RunInfo, "phases">): boolean => phases.includes("train");
