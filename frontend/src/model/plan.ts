/** A plan that makes a training fit into a budget, and what was measured without it. */

import { formatBytes } from "../lib/bytes";
import { plural } from "../lib/format";
import type { Table } from "../lib/table";
import { groupDeltas, type GroupDelta } from "./compare";
import type { PlainRow, WhatIf } from "./what-if";

export const TIME_SOURCES = ["measured", "estimated"] as const;

export interface PlanOption {
  /** "none" for the training as recorded; combinations are joined by "_and_". */
  kind: string;
  sentence: string;
  peak_bytes: number;
  low_bytes: number;
  high_bytes: number;
  fits: boolean;
  /** Additional time of a step as a share of the recorded one; null if unknown. */
  extra_time: number | null;
}

export interface PlanPoint {
  peak_bytes: number;
  low_bytes: number;
  high_bytes: number;
  extra_time: number;
  segments: number;
}

export interface Plan {
  run: string;
  device: string;
  /** Path of the model, before the names of its layers. */
  model: string;
  budget_bytes: number;
  /** Null if nothing can be predicted. If false, the figures are those of the smallest peak that was found. */
  fits: boolean | null;
  /** Names of layers inside the model, segment after segment. */
  segments: string[][];
  peak_bytes: number | null;
  low_bytes: number | null;
  high_bytes: number | null;
  recorded_peak_bytes: number | null;
  demand_bytes: number | null;
  extra_time: number | null;
  time_source: (typeof TIME_SOURCES)[number];
  code: string;
  /** In order of preference, the training as recorded first. */
  options: PlanOption[];
  curve: PlanPoint[];
  /** Sums to the peak. */
  ledger: PlainRow[];
  sentences: string[];
  measured: WhatIf["measured"];
}

/** "+24 %", or "unknown". */
export const timeText = (share: number | null): string => (share === null ? "unknown" : `+${Math.round(100 * share)} %`);

export const rangeOf = ({ low_bytes, high_bytes }: Pick<PlanPoint, "low_bytes" | "high_bytes">): string =>
  `${formatBytes(low_bytes)} to ${formatBytes(high_bytes)}`;

/** The option that is the plan, or the one with the smallest peak if nothing fits; null without options. */
export function chosenOption({ fits, options, high_bytes }: Plan): PlanOption | null {
  if (fits !== null && fits) return options.find((option) => option.fits) ?? null;
  return options.find((option) => option.high_bytes === high_bytes) ?? null;
}

export type PlanVerdict = "fits" | "fails" | "unknown";

export const planVerdict = ({ fits }: Plan): PlanVerdict => (fits === null ? "unknown" : fits ? "fits" : "fails");

/** The plan as a sentence. */
export function planSentence(plan: Plan): string {
  if (plan.fits === null) return plan.sentences[0] ?? "Unknown: there is no prediction.";
  const budget = formatBytes(plan.budget_bytes);
  const option = chosenOption(plan);
  if (!plan.fits) return `None of the simulated changes fits into ${budget}`;
  if (option === null || option.kind === "none") return `Fits as recorded: ${formatBytes(plan.peak_bytes ?? 0)} of ${budget}`;
  return `Fits into ${budget}: ${option.sentence}`;
}

/** What is left to say below the headline. */
export const planNotes = ({ fits, sentences }: Plan): string[] => (fits === null ? sentences.slice(1) : sentences);

/** Index of the curve's point that is the plan; null if the plan is not on the curve. */
export function planPoint(plan: Plan): number | null {
  const kind = chosenOption(plan)?.kind;
  if (kind !== "recompute" && kind !== "none") return null;
  const found = plan.curve.findIndex(({ peak_bytes, high_bytes }) => peak_bytes === plan.peak_bytes && high_bytes === plan.high_bytes);
  return found < 0 ? null : found;
}

/** "2 segments: 55.9 MiB (51.1 MiB to 76.3 MiB), time of a step +23 %" */
export function pointSentence(point: PlanPoint): string {
  const what = point.segments === 0 ? "as recorded" : plural(point.segments, "segment");
  return `${what}: ${formatBytes(point.peak_bytes)} (${rangeOf(point)}), time of a step ${timeText(point.extra_time)}`;
}

/** The budget for which the plan is a point of the curve: the end of its range. */
export const budgetOf = ({ high_bytes }: PlanPoint): string => `${high_bytes}B`;

/** Every category of either ledger in stack order: measured, with the plan, and the difference. */
export function planDeltas({ measured, ledger }: Plan): GroupDelta[] {
  const parts = (rows: readonly PlainRow[]) =>
    rows.map(({ category, trainable, bytes }) => ({
      group: { category, trainable: category === "weights" ? trainable : null },
      bytes,
      share: null,
    }));
  return groupDeltas(parts(measured?.ledger ?? []), parts(ledger));
}

/** Whether a plan that fits recomputes a layer, or the layer that it is in. */
export function plannedLayers(plan: Plan | null): (path: string) => boolean {
  if (!plan?.fits) return () => false;
  const paths = plan.segments.flat().map((name) => `${plan.model}/${name}/`);
  return (path) => paths.some((one) => `${path}/`.startsWith(one));
}

/** The simulated changes, for downloads. */
export const optionsTable = ({ options }: Plan): Table => ({
  columns: ["kind", "change", "peak_bytes", "low_bytes", "high_bytes", "fits", "extra_time"],
  rows: options.map(({ kind, sentence, peak_bytes, low_bytes, high_bytes, fits, extra_time }) => [
    kind,
    sentence,
    peak_bytes,
    low_bytes,
    high_bytes,
    fits,
    extra_time,
  ]),
});
