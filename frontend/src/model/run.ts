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
  /** Number of steps that ran out of memory. */
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

const isGpu = ({ device }: DeviceInfo): boolean => shortName(device).startsWith("GPU");

/** Those that are considered first: memory runs out on accelerators. */
function considered({ devices }: RunInfo): DeviceInfo[] {
  const gpus = devices.filter(isGpu);
  return gpus.length > 0 ? gpus : devices;
}

/** The most loaded device: that of the least headroom, where a capacity is unknown that of the highest peak; an accelerator if there is one. */
export function preferredDevice(run: RunInfo): string | null {
  const devices = considered(run);
  const used = devices.filter(({ peak_bytes }) => peak_bytes !== null);
  const byHeadroom = used.every(({ capacity_bytes }) => capacity_bytes !== null);
  const room = ({ capacity_bytes, peak_bytes }: DeviceInfo): number => (byHeadroom ? (capacity_bytes ?? 0) : 0) - (peak_bytes ?? 0);
  return (used.sort((a, b) => room(a) - room(b))[0] ?? devices[0])?.device ?? null;
}

/** What the preferred device of a run of several is called. */
export function preferredLabel(run: RunInfo): string {
  const among = considered(run).length < run.devices.length ? "most loaded GPU" : "most loaded";
  return `${among}: ${preferredDevice(run) ?? ""}`;
}

/** The phase to show first: training if it was recorded. */
export function preferredPhase(run: RunInfo): Phase {
  return run.phases.includes("train") ? "train" : (run.phases[0] ?? "train");
}
