/** Post-mortems of failed allocations. */

import { formatBytes } from "../lib/bytes";
import { AS_RECORDED, type Conditions } from "./conditions";
import type { Phase } from "./run";
import type { LedgerRow } from "./snapshot";

export const VERDICTS = ["fragmentation", "capacity"] as const;
export type Verdict = (typeof VERDICTS)[number];

export interface Fix {
  kind: string;
  /** What to change, in few words. */
  change: string;
  /** The change with its figures. */
  sentence: string;
  batch_size: number | null;
  capacity_bytes: number | null;
  /** Layers to freeze, as globs. */
  freeze: string | null;
  /** Whether the training passes with it in a simulation; null for an estimate. */
  enough: boolean | null;
  /** The budget of the plan that recomputes the same. */
  budget_bytes: number | null;
  /** The peak with it; null for an estimate. */
  peak_bytes: number | null;
  /** The line that applies it. */
  code: string | null;
}

/** The possible fixes of a failure, which take seconds to simulate. */
export interface Fixes {
  fixes: Fix[];
  /** Why there are none, or what their simulation shows differently; null without. */
  note: string | null;
}

/** How a fix is known, in one word. */
export function fixWord({ enough }: Fix): "fits" | "fails" | "estimate" {
  if (enough === null) return "estimate";
  return enough ? "fits" : "fails";
}

const MIB = 1 << 20;

/** Bytes as a size that a condition can be; exact. */
const sizeText = (bytes: number): string => (bytes % MIB === 0 ? `${bytes / MIB}MiB` : `${bytes}B`);

/** The what-if conditions under which a fix is tried; null for a fix that is no condition. */
export function fixConditions(fix: Fix, { batch_size: failed }: Pick<Oom, "batch_size">): Conditions | null {
  const batch_size = failed === null ? "" : String(failed);
  const { kind, enough } = fix;
  if (kind === "batch") return { ...AS_RECORDED, batch_size: String(fix.batch_size ?? 1) };
  if (kind === "limit" && fix.capacity_bytes !== null) return { ...AS_RECORDED, batch_size, capacity: sizeText(fix.capacity_bytes) };
  if (kind === "freezing" && fix.freeze !== null) return { ...AS_RECORDED, batch_size, freeze: fix.freeze };
  if (kind === "precision" && enough === null) return { ...AS_RECORDED, batch_size, precision: "mixed_float16" };
  return null;
}

/** The budget that the view Fit is opened with, empty for the capacity; null for a fix that it does not plan. */
export function fixBudget({ kind, budget_bytes: budget }: Fix): string | null {
  if (kind === "accumulation") return "";
  return budget === null ? null : sizeText(budget);
}

export interface Oom {
  status: string;
  step: number | null;
  phase: Phase | null;
  /** "step", or where else memory ran out: "between_steps" or "building"; null for an imported file. */
  during: string | null;
  device: string;
  wall_time: number;
  requested_bytes: number | null;
  free_bytes: number | null;
  largest_free_bytes: number | null;
  in_use_bytes: number | null;
  pool_bytes: number | null;
  capacity_bytes: number | null;
  verdict: Verdict | null;
  reason: string;
  op: string | null;
  layer: string | null;
  /** The user's line that called the layer or op, such as "train.py:42". */
  line: string | null;
  shape: string | null;
  /** Examples in the batch of the failed step. */
  batch_size: number | null;
  /** Number of chunks in its memory map, null without one. */
  chunks: number | null;
  ledger: LedgerRow[];
  not_available: string[];
}

/** Whether memory was too small or fragmented, in one sentence with its figures. */
export function verdictSentence({ verdict, requested_bytes: requested, free_bytes: free, largest_free_bytes: largest }: Oom): string {
  const figures = [
    ...(requested === null ? [] : [`${formatBytes(requested)} requested`]),
    ...(free === null ? [] : [`${formatBytes(free)} free`]),
    ...(largest === null || verdict !== "fragmentation" ? [] : [`largest free chunk ${formatBytes(largest)}`]),
  ];
  const said = { fragmentation: "Free memory is fragmented", capacity: "Not enough free memory", unknown: "Verdict unknown" };
  return `${[said[verdict ?? "unknown"], figures.join(", ")].filter(Boolean).join(": ")}.`;
}

/** "Step 59 ran out of memory on GPU:0"; a phase other than the training's is named, the device only if asked for. */
export function whenSentence({ status, step, phase, during, device: name }: Oom, named = true): string {
  const waiting = status === "failing";
  const device = named ? ` on ${name}` : "";
  const after = step === null ? "" : ` after step ${step}`;
  if (during === "building") return `Building the model${after} ran out of memory${device}`;
  if (during === "between_steps") return `Memory ran out${device} ${after ? `between steps,${after}` : "before the first step"}`;
  if (step === null) return waiting ? `An allocation${device} was still waiting for memory` : `An allocation${device} failed`;
  const what = `Step ${step}${phase === null || phase === "train" ? "" : ` (${phase})`}`;
  return waiting ? `${what} ended while waiting for memory${device}` : `${what} ran out of memory${device}`;
}
