/** Every device of a run side by side. Field names are those of the HTTP API. */

import { formatBytes, isMinor, plural, type Table } from "../lib/bytes";
import { groupKey, stackOrder } from "./categories";
import { layerFigures, type LayerFigures } from "./layers";
import { ofOneKind } from "./run";
import type {
  Category,
  DeviceRow,
  DevicesAnswer,
  Group,
  GroupBytes,
  LedgerRow,
  TracedPeak,
  WorkerInfo,
} from "../schema";

interface DeviceSteps {
  step: Float64Array;
  max_peak_bytes: Float64Array;
  min_peak_bytes: Float64Array;
  /** Null if it is known at no step. */
  sum_in_use_bytes: Float64Array | null;
}

export type Devices = Omit<DevicesAnswer, "steps"> & { steps: DeviceSteps };

export const DEVICE_SORTS = [
  "device",
  "peak_bytes",
  "peak_step",
  "headroom_bytes",
  "capacity_bytes",
  "pool_bytes",
  "ooms",
] as const;
export type DeviceSort = (typeof DEVICE_SORTS)[number];

export const ascends = (sort: DeviceSort): boolean =>
  ["device", "peak_step", "headroom_bytes"].includes(sort);

/** The devices sorted; equal ones in natural order, unknown figures last. */
export function sortedDevices(devices: readonly DeviceRow[], sort: DeviceSort): DeviceRow[] {
  if (sort === "device") return [...devices];
  const key = (row: DeviceRow): number => {
    const value = row[sort];
    return value === null ? Infinity : ascends(sort) ? value : -value;
  };
  // Infinity − Infinity is not a number.
  return [...devices].sort((a, b) => (key(a) === key(b) ? 0 : key(a) - key(b)));
}

export type DeviceLine =
  | { kind: "worker"; worker: WorkerInfo }
  | { kind: "device"; device: DeviceRow }
  | { kind: "more"; count: number };

const ENDS = 10;

export const ends = (lines: DeviceLine[]): DeviceLine[] => [
  ...lines.slice(0, ENDS),
  { kind: "more", count: lines.length - 2 * ENDS },
  ...lines.slice(-ENDS),
];

export function deviceLines({ devices, workers }: Devices, sort: DeviceSort): DeviceLine[] {
  const line = (device: DeviceRow): DeviceLine => ({ kind: "device", device });
  if (sort !== "device" || workers.length < 2) return sortedDevices(devices, sort).map(line);
  const lines = new Map<string, DeviceLine[]>(
    workers.map((worker) => [worker.worker, [{ kind: "worker", worker }]]),
  );
  const strange = devices.filter(({ worker }) => !lines.has(worker));
  for (const device of devices) lines.get(device.worker)?.push(line(device));
  return [...lines.values(), strange.map(line)].flat();
}

const LISTED = 10;

const STATUSES: Record<string, string> = {
  failed: "ran out of memory",
  growing: "memory grows",
  fragmented: "free memory is fragmented",
};

/**
 * Workers that stopped early or have a bad status; the last entry counts those that are not listed.
 */
export function conspicuous({
  rolled_up,
  devices,
  workers,
}: Devices): { device: string | null; sentence: string }[] {
  const stopped = workers.filter(({ stopped_early }) => stopped_early !== null);
  // Of few workers, the views of each say it.
  const bad = rolled_up
    ? workers.filter(({ status }) => status !== null && status in STATUSES)
    : [];
  const listed = [
    ...stopped
      .slice(0, LISTED)
      .map(({ worker, stopped_early }) => ({ worker, sentence: stopped_early ?? "" })),
    ...bad
      .slice(0, LISTED)
      .map(({ worker, status }) => ({
        worker,
        sentence: `${worker}: ${STATUSES[status ?? ""] ?? ""}`,
      })),
  ];
  const left = [
    { count: stopped.length - LISTED, what: "stopped early" },
    { count: bad.length - LISTED, what: "with a failure, growth or fragmentation" },
  ].filter(({ count }) => count > 0);
  return [
    ...listed.map(({ worker, sentence }) => ({
      device: devices.find((row) => row.worker === worker)?.device ?? null,
      sentence,
    })),
    ...left.map(({ count, what }) => ({ device: null, sentence: `${count} more ${what}` })),
  ];
}

export const workerTitle = ({ worker }: Pick<WorkerInfo, "worker">): string =>
  worker || "worker without a name";

/** "steps 0–117, 2 sessions, clock +0.3 s"; nothing about what is unknown. */
export function workerFacts({
  first_step,
  last_step,
  sessions,
  clock_offset_seconds: offset,
}: WorkerInfo): string {
  const clock = offset === null ? 0 : Number(offset.toFixed(1));
  return [
    first_step === null || last_step === null ? "no steps" : `steps ${first_step}–${last_step}`,
    ...(sessions > 1 ? [plural(sessions, "session")] : []),
    ...(clock === 0 ? [] : [`clock ${clock > 0 ? "+" : "−"}${Math.abs(clock)} s`]),
  ].join(", ");
}

/** The groups of the breakdowns in stack order; without small ones if `major`, but for `chosen`. */
export function groupsOf(
  devices: readonly DeviceRow[],
  major = false,
  chosen: Category | null = null,
): Group[] {
  const groups = new Map<string, Group>();
  for (const { breakdown } of devices) {
    for (const { category, trainable, bytes } of breakdown?.parts ?? []) {
      const isSmall = major && category !== chosen && isMinor(bytes, breakdown?.peak_bytes ?? 0);
      if (bytes > 0 && !isSmall)
        groups.set(groupKey({ category, trainable }), { category, trainable });
    }
  }
  return [...groups.values()].sort((a, b) => stackOrder(a) - stackOrder(b));
}

export const stackedParts = ({ parts }: TracedPeak): GroupBytes[] =>
  parts.filter(({ bytes }) => bytes > 0).sort((a, b) => stackOrder(a) - stackOrder(b));

export function alignedStep(devices: readonly DeviceRow[]): number | null {
  const steps = new Set(devices.flatMap(({ breakdown }) => breakdown?.step ?? []));
  const [only] = steps;
  return steps.size === 1 ? (only ?? null) : null;
}

export function breakdownNote(devices: readonly DeviceRow[]): string {
  const known = devices.filter(({ breakdown }) => breakdown !== null).length;
  if (known === 0) return "Breakdown unknown: no step of these devices was traced.";
  const step = alignedStep(devices);
  const rest =
    known < devices.length
      ? ` Unknown for ${plural(devices.length - known, "device")}: not traced.`
      : "";
  return `${step === null ? "Breakdown from a traced step of each device." : `Breakdown from step ${step}.`}${rest}`;
}

/** A layer on several devices; null where a device has none of it. */
export interface LayerOnDevices {
  path: string | null;
  frozen: boolean;
  on: readonly (LayerFigures | null)[];
  most: number;
}

/** The layers of several ledgers, the one with the most bytes on a device first. */
export function layersOnDevices(ledgers: readonly (readonly LedgerRow[])[]): LayerOnDevices[] {
  const found = ledgers.map(
    (ledger) => new Map(layerFigures(null, ledger).map((layer) => [layer.path, layer])),
  );
  const frozen = new Set(
    ledgers.flat().flatMap(({ layer, trainable }) => (trainable === false ? [layer] : [])),
  );
  return [...new Set(found.flatMap((layers) => [...layers.keys()]))]
    .map((path) => {
      const on = found.map((layers) => layers.get(path) ?? null);
      const most = Math.max(...on.map((layer) => layer?.total ?? 0));
      return { path, frozen: frozen.has(path), on, most };
    })
    .sort((a, b) => b.most - a.most);
}

export function devicesSummary({ devices, workers, sum_peak_bytes }: Devices): string {
  const count = `${plural(devices.length, "device")}${workers.length > 1 ? ` of ${plural(workers.length, "worker")}` : ""}`;
  const compared = ofOneKind(devices).length;
  if (compared < 2) return count;
  const all = compared === devices.length;
  return `${count}. Sum of ${all ? "their" : "the accelerators'"} peaks: ${formatBytes(sum_peak_bytes)}`;
}

export function stepSentence({ steps, devices }: Devices, row: number): string {
  const size = (column: Float64Array | null): string | null => {
    const value = column?.[row];
    return value === undefined || Number.isNaN(value) ? null : formatBytes(value);
  };
  const [most, least, sum] = [
    size(steps.max_peak_bytes),
    size(steps.min_peak_bytes),
    size(steps.sum_in_use_bytes),
  ];
  const several = ofOneKind(devices).length > 1;
  const parts = [
    ...(most === null ? [] : [`${several ? "highest peak" : "peak"} ${most}`]),
    ...(least === null || !several ? [] : [`lowest peak ${least}`]),
    ...(sum === null || !several ? [] : [`sum in use at step end ${sum}`]),
  ];
  return `step ${steps.step[row] ?? "?"}: ${parts.join(", ") || "unknown"}`;
}

export function devicesFile({ devices }: Devices): Table {
  const groups = groupsOf(devices);
  const figures = [
    "capacity_bytes",
    "peak_bytes",
    "peak_step",
    "last_in_use_bytes",
    "headroom_bytes",
    "pool_bytes",
    "ooms",
  ] as const;
  return {
    columns: ["device", "worker", ...figures, "breakdown_step", ...groups.map(groupKey)],
    rows: devices.map((row) => {
      const parts = new Map(
        (row.breakdown?.parts ?? []).map((part) => [groupKey(part), part.bytes]),
      );
      const own = groups.map((group) => (row.breakdown ? (parts.get(groupKey(group)) ?? 0) : null));
      return [
        row.device,
        row.worker,
        ...figures.map((name) => row[name]),
        row.breakdown?.step ?? null,
        ...own,
      ];
    }),
  };
}
