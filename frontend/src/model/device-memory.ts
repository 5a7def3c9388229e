/** The device's memory, from the driver's total to the categories in use, as one bar. */

import { groupLabel, type Category } from "./categories";
import type { Phase } from "./run";

export const PARTS = [
  "in_use",
  "free_largest",
  "free_other",
  "pool_free",
  "process_other",
  "others",
  "device_free",
  "unreserved",
  "headroom",
] as const;
type DevicePart = (typeof PARTS)[number];

export interface Segment {
  part: DevicePart;
  category: Category | null;
  trainable: boolean | null;
  bytes: number;
}

export interface DeviceMemory {
  run: string;
  device: string;
  step: number;
  phase: Phase;
  /** Whether the step ran out of memory, and this is at its failed allocation. */
  at_failure: boolean;
  in_use_bytes: number;
  pool_bytes: number | null;
  capacity_bytes: number | null;
  total_bytes: number | null;
  driver_process_bytes: number | null;
  driver_used_bytes: number | null;
  driver_total_bytes: number | null;
  segments: Segment[];
  notes: string[];
}

const LABELS: Record<DevicePart, string> = {
  in_use: "in use",
  free_largest: "free: largest chunk",
  free_other: "free: other chunks",
  pool_free: "free in the pool",
  process_other: "this process, outside pool",
  others: "other processes",
  device_free: "free on device",
  unreserved: "unreserved",
  headroom: "headroom",
};

const MEANINGS: Record<DevicePart, string> = {
  in_use: "allocated to tensors",
  free_largest: "reserved by TensorFlow, not in use: the largest free chunk",
  free_other: "reserved by TensorFlow, not in use: all other free chunks",
  pool_free: "reserved by TensorFlow, not in use",
  process_other: "CUDA context and libraries: the driver's figure for this process − pool",
  others: "the driver's figure for all processes − this process",
  device_free: "free, the driver's figure",
  unreserved: "capacity − pool: the allocator may still reserve it",
  headroom: "capacity − in use: free in the pool or unreserved",
};

export function segmentLabel(segment: Segment): string {
  const { part, category, trainable } = segment;
  return part === "in_use" && category !== null ? groupLabel({ category, trainable }) : LABELS[part];
}

export const segmentMeaning = ({ part }: Segment): string => MEANINGS[part];

export const segmentKey = ({ part, category, trainable }: Segment): string =>
  [part, category, trainable].filter((one) => one !== null).join(":");

/** Whether a part lies in TensorFlow's pool. */
export const inPool = ({ part }: Segment): boolean => ["in_use", "free_largest", "free_other", "pool_free"].includes(part);

/** "TensorFlow's pool holds 256 MiB: 167 MiB in use, 89.0 MiB free. …", from the pool to other processes. */
export function deviceMemorySentence(memory: DeviceMemory, format: (bytes: number) => string): string {
  const { pool_bytes: pool, in_use_bytes: used, driver_process_bytes: process, driver_used_bytes: all } = memory;
  if (pool === null) return `${format(used)} are in use.${othersSentence(process, all, format)}`;
  const own = process !== null && process > pool ? ` This process uses another ${format(process - pool)} (CUDA context, libraries).` : "";
  const summary = `TensorFlow's pool holds ${format(pool)}: ${format(used)} in use, ${format(Math.max(pool - used, 0))} free.`;
  return summary + own + othersSentence(process, all, format);
}

const othersSentence = (process: number | null, all: number | null, format: (bytes: number) => string): string =>
  all !== null && process !== null && all > process ? ` Other processes use ${format(all - process)}.` : "";
