/** A run's entry in the list of runs. Field names are those of the HTTP API. */

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

/** Accelerators first: that is where memory runs out. */
export function preferredDevice(run: RunInfo): string | null {
  const byUse = [...run.devices].sort(
    (a, b) => Number(b.device.startsWith("GPU")) - Number(a.device.startsWith("GPU")) || (b.peak_bytes ?? 0) - (a.peak_bytes ?? 0),
  );
  return byUse[0]?.device ?? null;
}

/** The phase that a run is about, to show first: training if it was recorded. */
export function preferredPhase(run: RunInfo): Phase {
  return run.phases.includes("train") ? "train" : (run.phases[0] ?? "train");
}

/** Whether the run recorded training steps: without them there are no gradients, and nothing is saved for a backward pass. */
export const trains = ({ phases }: Pick<RunInfo, "phases">): boolean => phases.includes("train");
