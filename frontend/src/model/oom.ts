/** Post-mortems: steps that died because an allocation failed. */

import { formatBytes } from "../lib/bytes";
import type { Phase } from "./run";
import type { LedgerRow } from "./snapshot";

export const VERDICTS = ["fragmentation", "capacity"] as const;
export type Verdict = (typeof VERDICTS)[number];

export interface Remedy {
  kind: string;
  sentence: string;
  bytes: number;
  enough: boolean;
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
  /** Length of its map, null if there is none. */
  chunks: number | null;
  ledger: LedgerRow[];
  remedies: Remedy[];
  not_available: string[];
}

/** "The card was too small" or "the free memory was in pieces", in one sentence. */
export function verdictSentence({ verdict, requested_bytes: asked }: Oom): string {
  const what = asked === null ? "the request" : `${formatBytes(asked)}`;
  switch (verdict) {
    case "fragmentation":
      return `There was enough free memory for ${what}, but not in one piece.`;
    case "capacity":
      return `There was not enough free memory for ${what}, in one piece or in many.`;
    case null:
      return "Whether the memory was too small or in pieces is not known.";
  }
}

/** "Step 59 of train died on GPU:0". */
export function whenSentence({ status, step, phase, device }: Oom): string {
  const what = status === "failing" ? "ended while TensorFlow was still waiting for memory" : "died for lack of memory";
  if (step === null) return `An allocation on ${device} ${what === "died for lack of memory" ? "failed" : what}`;
  return `Step ${step}${phase === null ? "" : ` (${phase})`} ${what} on ${device}`;
}
