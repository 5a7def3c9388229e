/** Host memory of a worker over the steps: RSS at every step, its parts where they are known. NaN means "unknown". */

import { formatBytes } from "../lib/bytes";
import { at } from "./overview";
import type { HostMemoryHead } from "../schema";

/** Disjoint parts of RSS, from the bottom of the stack; with `other_bytes` they sum to it. */
export const HOST_PARTS = ["pinned_pool_bytes", "tf_data_bytes", "cpu_bytes", "other_bytes"] as const;
export type HostPart = (typeof HOST_PARTS)[number];

export type HostMemory = HostMemoryHead & { rows: number } & Record<"step" | "wall_time" | "host_resident_bytes" | HostPart, Float64Array>;

/** Host memory at one step; the parts are those of the last step up to it at which they were measured, null before the first one. */
export interface HostFacts {
  step: number | null;
  host_resident_bytes: number | null;
  measured_step: number | null;
  /** RSS at the measured step; the parts sum to it. */
  measured_bytes: number | null;
  parts: Record<HostPart, number | null>;
}

/** Whether the parts were measured at a row. The remainder is known exactly then. */
export const isMeasured = (host: HostMemory, row: number): boolean => at(host.other_bytes, row) !== null;

/** For each row the last row up to it at which the parts were measured, −1 before the first. */
export function measuredRows(host: HostMemory): Int32Array {
  const rows = new Int32Array(host.rows);
  let last = -1;
  for (let row = 0; row < host.rows; row += 1) {
    if (isMeasured(host, row)) last = row;
    rows[row] = last;
  }
  return rows;
}

export function hostFacts(host: HostMemory, row: number): HostFacts {
  const from = measuredRows(host)[row] ?? -1;
  return {
    step: at(host.step, row),
    host_resident_bytes: at(host.host_resident_bytes, row),
    measured_step: from < 0 ? null : at(host.step, from),
    measured_bytes: from < 0 ? null : at(host.host_resident_bytes, from),
    parts: Object.fromEntries(HOST_PARTS.map((name) => [name, from < 0 ? null : at(host[name], from)])) as HostFacts["parts"],
  };
}

/** Parts with a known value other than 0 at any step. */
export const shownParts = (host: HostMemory): HostPart[] => HOST_PARTS.filter((name) => host[name].some((bytes) => bytes > 0));

/** The parts in a list, the highest of the stack first. Pinned memory needs a GPU, and `CPU:0` must be recorded: no rows say "unknown" for them. */
export const listedParts = (facts: HostFacts): HostPart[] =>
  [...HOST_PARTS].reverse().filter((name) => facts.parts[name] !== null || name === "tf_data_bytes" || name === "other_bytes");

/** "step 3: host RSS 1.0 GiB", for a screen reader. */
export function hostSentence(host: HostMemory, row: number): string {
  const bytes = at(host.host_resident_bytes, row);
  return `step ${at(host.step, row) ?? "unknown"}: host RSS ${bytes === null ? "unknown" : formatBytes(bytes)}`;
}
