/** Post-mortems of steps that ran out of memory. */

import { formatBytes } from "../lib/bytes";
import type { Phase } from "./run";
import type { LedgerRow } from "./snapshot";

export const VERDICTS = ["fragmentation", "capacity"] as const;
export type Verdict = (typeof VERDICTS)[number];

export interface Fix {
  kind: string;
  sentence: string;
  /** Whether the training passes with it in a simulation; null for an estimate. */
  enough: boolean | null;
}

/** The possible fixes of a failure, which take seconds to simulate. */
export interface Fixes {
  fixes: Fix[];
  /** Why there are none, or what their simulation shows differently; null without. */
  note: string | null;
}

/** How a fix is known, in one word. */
export function fixWord({ enough }: Fix): "passes" | "fails" | "estimate" {
  if (enough === null) return "estimate";
  return enough ? "passes" : "fails";
}

export interface Oom {
  status: string;
  step: number | null;
  phase: Phase | null;
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
  shape: string | null;
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

/** "Step 59 (train) ran out of memory on GPU:0". */
export function whenSentence({ status, step, phase, device }: Oom): string {
  const waiting = status === "failing";
  if (step === null) return waiting ? `An allocation on ${device} was still waiting for memory` : `An allocation on ${device} failed`;
  const name = `Step ${step}${phase === null ? "" : ` (${phase})`}`;
  return waiting ? `${name} ended while waiting for memory on ${device}` : `${name} ran out of memory on ${device}`;
}
