/** Answers to the four questions on a run. The server makes them; names are those of the HTTP API. */

import { formatBytes, formatExact } from "../lib/bytes";
import type { Category } from "./categories";
import type { Phase } from "./run";
import { WORDS } from "./words";

export const ANSWER_NAMES = ["fits", "growing", "fragmented", "changed"] as const;
export type AnswerName = (typeof ANSWER_NAMES)[number];
export const ANSWER_STATUSES = ["ok", "warning", "failed", "unknown"] as const;
export type AnswerStatus = (typeof ANSWER_STATUSES)[number];
export const ANSWER_SOURCES = ["measured", "inferred", "unknown"] as const;
type AnswerSource = (typeof ANSWER_SOURCES)[number];
export const EVIDENCE_VIEWS = ["overview", "fragmentation", "oom", "compare"] as const;

/** The place of the page that shows an answer; null where a part does not apply. */
export interface Evidence {
  view: (typeof EVIDENCE_VIEWS)[number];
  step: number | null;
  phase: Phase | null;
  /** The step that `step` is compared with. */
  other_step: number | null;
  category: Category | null;
  layer: string | null;
  /** First and last step. */
  zoom: number[] | null;
  /** Index of the failure. */
  oom: number | null;
}

export interface Answer {
  name: AnswerName;
  question: string;
  sentence: string;
  status: AnswerStatus;
  source: AnswerSource;
  evidence: Evidence;
  /** Numbers by name; names of sizes end in `_bytes`. */
  figures: Record<string, number>;
  /** Sentences on what the first one leaves out. */
  details: string[];
}

export const STATUS_WORDS: Record<AnswerStatus, string> = { ok: "OK", warning: "Warning", failed: "Failed", unknown: "Unknown" };

/** Labels of figures that other views show too: a quantity has one name. */
const LABELS: Record<string, string> = {
  earlier_optimizers_bytes: "earlier optimizers and models",
  peak_bytes: WORDS.peak_bytes.label,
  peak_before_bytes: `${WORDS.peak_bytes.label} before`,
  peak_after_bytes: `${WORDS.peak_bytes.label} after`,
  headroom_bytes: WORDS.headroom.label,
  capacity_bytes: WORDS.capacity_bytes.label,
  requested_bytes: WORDS.requested_bytes.label,
  in_use_bytes: WORDS.in_use_bytes.label,
  free_bytes: WORDS.free_bytes.label,
  largest_free_bytes: WORDS.free_largest.label,
  pool_bytes: WORDS.pool_bytes.label,
  from_host_bytes: `${WORDS.host_resident_bytes.label} before`,
  to_host_bytes: `${WORDS.host_resident_bytes.label} at the end`,
};

const RATES: Record<string, string> = { bytes_per_step: "rate", host_bytes_per_step: `${WORDS.host_resident_bytes.label} beyond CPU:0` };

const label = (name: string): string => LABELS[name] ?? name.replace(/_bytes$/, "").replaceAll("_", " ");

function figureText(name: string, value: number): string {
  const rate = RATES[name];
  if (rate !== undefined) return `${rate}: ${formatBytes(Math.round(value))} per step`;
  if (name.endsWith("_delta_bytes")) return `${label(name.replace("_delta_bytes", ""))}: ${value > 0 ? "+" : ""}${formatExact(value)}`;
  return `${label(name)}: ${name.endsWith("_bytes") ? formatExact(value) : value}`;
}

/** The change between two steps that answers "What changed?" compares; null if that answer is about others. */
export function changeBetween(answers: readonly Answer[] | null, step: number | null, other: number | null): Answer | null {
  const changed = answers?.find(({ name }) => name === "changed");
  const compared = changed?.evidence.view === "compare" && changed.evidence.step === step && changed.evidence.other_step === other;
  return changed && compared ? changed : null;
}

/** The lines of an answer's tooltip: what its sentence leaves out, each figure exactly, and how it is known. */
export function answerTip({ figures, source, evidence, details }: Answer): string {
  const step = evidence.step === null ? "" : `, step ${evidence.step}`;
  const known = source === "unknown" ? [] : [`${source}${step}`];
  return [...details, ...Object.entries(figures).map(([name, value]) => figureText(name, value)), ...known].join("\n");
}
