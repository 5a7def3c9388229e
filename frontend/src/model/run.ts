/** A run's entry in the list of runs. Field names are those of the HTTP API. */

import { formatBytes, formatShare, plural, withoutTicks } from "../lib/bytes";
import type { DeviceFacts, Phase, RunInfo, RunStatus } from "../schema";

export const NOT_TIED = "not tied to a layer";

export const tail = (path: string, parts: number): string =>
  path.split("/").slice(-parts).join("/");

export const shortName = (path: string): string => tail(path, 1) || path;

/**
 * For each path the shortest end that no other of them has: "layer_03/attention" where "attention"
 * would not do.
 */
export function distinctNames(paths: readonly string[]): string[] {
  const longest = Math.max(1, ...paths.map((path) => path.split("/").length));
  const names = paths.map(shortName);
  for (let parts = 2; parts <= longest; parts += 1) {
    const counts = new Map<string, number>();
    for (const name of names) counts.set(name, (counts.get(name) ?? 0) + 1);
    names.forEach((name, index) => {
      if ((counts.get(name) ?? 0) > 1) names[index] = tail(paths[index] as string, parts);
    });
  }
  return names;
}

export function namesOf(paths: readonly string[]): Map<string, string> {
  const names = distinctNames(paths);
  return new Map(paths.map((path, index) => [path, names[index] ?? path]));
}

export const STATUS_LABELS: Record<RunStatus, string> = {
  failed: "OOM",
  growing: "grows",
  fragmented: "fragmented",
  training: "training",
  ok: "",
  reading: "being read",
  unknown: "",
};

export const peakOf = (run: RunInfo): number | null =>
  run.devices.find(({ device }) => device === preferredDevice(run))?.peak_bytes ?? null;

export const RUN_COLUMNS = ["name", "status", "peak"] as const;
export type RunColumn = (typeof RUN_COLUMNS)[number];
/** A column in its own direction, or after a minus in the other one. */
export const RUN_SORTS = ["status", "name", "peak", "-status", "-name", "-peak"] as const;
export type RunSort = (typeof RUN_SORTS)[number];

const ORDERS: Record<RunColumn, (a: RunInfo, b: RunInfo) => number> = {
  status: (a, b) => a.rank - b.rank,
  name: () => 0,
  peak: (a, b) => (peakOf(b) ?? -1) - (peakOf(a) ?? -1),
};

export const columnOf = (sort: RunSort): RunColumn => sort.replace("-", "") as RunColumn;

export function sortedRuns(runs: readonly RunInfo[], sort: RunSort): RunInfo[] {
  const sorted = [...runs].sort(ORDERS[columnOf(sort)]);
  return sort.startsWith("-") ? sorted.reverse() : sorted;
}

/** Names in the order they had; one that is new goes behind the one that it now follows. */
export function keptOrder(before: readonly string[], now: readonly string[]): string[] {
  const [present, known] = [new Set(now), new Set(before)];
  const order = before.filter((name) => present.has(name));
  now.forEach((name, index) => {
    if (!known.has(name)) order.splice(order.indexOf(now[index - 1] ?? "") + 1, 0, name);
  });
  return order;
}

export function runFacts(run: RunInfo): string[] {
  const facts = [run.run, plural(run.steps, "step")];
  if (run.sessions > 1) facts.push(plural(run.sessions, "session"));
  for (const { device, peak_bytes } of run.devices)
    if (peak_bytes !== null) facts.push(`${device} peak ${formatBytes(peak_bytes)}`);
  if (run.activation_layers > 0)
    facts.push(`activations of ${plural(run.activation_layers, "layer")}`);
  if (run.largest_at_failure) facts.push(`at the failure: ${run.largest_at_failure.sentence}`);
  return [...facts, ...run.damage, ...run.notes].map(withoutTicks);
}

/**
 * The layer or category that held most when the run failed, and its share; null if no breakdown of
 * a failure is known.
 */
export const culpritOf = ({ largest_at_failure: of }: RunInfo): string | null =>
  of && `${of.name} ${formatShare(of.share)}`;

export const whyNoDevice = ({ devices, notes }: Pick<RunInfo, "devices" | "notes">): string[] =>
  devices.length > 0 ? [] : notes.filter((note) => note.includes("Not recording "));

const kindOf = (device: string): string => shortName(device).split(":")[0]?.toUpperCase() ?? "";
const isCpu = (device: string): boolean => kindOf(device) === "CPU";
export const isGpu = (device: string): boolean => kindOf(device) === "GPU";

/**
 * The accelerators, or all devices if there are none: the memory of a CPU is not compared with
 * theirs.
 */
export function ofOneKind<Device extends Pick<DeviceFacts, "device">>(
  devices: readonly Device[],
): readonly Device[] {
  const accelerators = devices.filter(({ device }) => !isCpu(device));
  return accelerators.length > 0 ? accelerators : devices;
}

export const preferredDevice = (run: RunInfo): string | null =>
  run.most_loaded ?? ofOneKind(run.devices)[0]?.device ?? null;

export function preferredLabel(run: RunInfo): string {
  const device = preferredDevice(run) ?? "";
  const kind = ofOneKind(run.devices).length < run.devices.length ? ` ${kindOf(device)}` : "";
  return `most loaded${kind}: ${device}`;
}

export const preferredPhase = (run: RunInfo): Phase =>
  run.phases.includes("train") ? "train" : (run.phases[0] ?? "train");

/**
 * Whether the run recorded training steps: without them there are no gradients, and nothing is
 * saved for a backward pass.
 */
export const trains = ({ phases }: Pick<RunInfo, "phases">): boolean => phases.includes("train");
