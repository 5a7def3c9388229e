/**
 * What a run would need under other conditions, and what makes it fit into a budget, beside what
 * was measured.
 */

import {
  formatBytes,
  formatCount,
  plural,
  type Table,
  tableOf,
  formatKnown,
  sumsBy,
} from "../lib/bytes";
import { groupOfOwner } from "./categories";
import { groupSums, type GroupSums } from "./compare";
import type {
  CurvePoint,
  FailedRequest,
  Method,
  LedgerRow,
  Plan,
  PlanOption,
  WhatIf,
} from "../schema";

export const METHOD_WORDS: Record<Method, string> = {
  recorded: "measured in this run",
  replay: "all sizes are exact",
  compiled: "asked XLA's compiler",
  two_sizes: "some sizes follow from two recorded batch sizes",
  estimate: "sizes or the order of operations are known as a range only",
  unknown: "no prediction",
};

export const verdictOf = ({ fits }: { fits: boolean | null }): "fits" | "fails" | "unknown" =>
  fits === null ? "unknown" : fits ? "fits" : "fails";

export interface PeakRange {
  peak_bytes: number | null;
  low_bytes: number | null;
  high_bytes: number | null;
}

export const rangeText = ({ low_bytes: low, high_bytes: high }: PeakRange): string =>
  low === null || high === null ? "" : `${formatBytes(low)} to ${formatBytes(high)}`;

/** "96 MiB (92 MiB to 99 MiB)" */
const peakText = (range: PeakRange): string =>
  `${formatBytes(range.peak_bytes ?? 0)} (${rangeText(range)})`;

export const largestText = ({ largest_batch_size: largest }: WhatIf): string =>
  largest === null ? "unknown" : largest === 0 ? "none" : formatCount(largest);

/** A sentence to read at a glance, and the others. */
export function headlineOf(text: string): [string, string] {
  const end = text.indexOf(". ");
  return end < 0 ? [text.replace(/\.$/, ""), ""] : [text.slice(0, end), text.slice(end + 2)];
}

/** Memory of common cards, for which the largest batch size is simulated on demand. */
export const CARDS = ["8GiB", "16GiB", "24GiB", "40GiB", "80GiB"] as const;

export interface ConditionHints {
  batchSize: string;
  capacity: string;
}

export function conditionHints(
  answer: WhatIf | null,
  { batch_size, capacity }: Conditions,
): ConditionHints {
  const unknown = { batchSize: "as recorded", capacity: "such as 24GiB" };
  if (answer === null) return unknown;
  const { batch_size: size, capacity_bytes: bytes, recorded } = answer;
  // A run that ran out of memory is asked about the batch that failed.
  const source = recorded.batch_sizes.includes(size ?? 0) ? "" : ", as failed";
  const limit = bytes === null ? null : formatBytes(bytes);
  return {
    batchSize:
      batch_size !== "" || size === null ? unknown.batchSize : `${formatCount(size)}${source}`,
    capacity: capacity !== "" || limit === null ? unknown.capacity : limit,
  };
}

export const askedText = ({ batch_size, capacity_bytes }: WhatIf): string =>
  `batch size ${batch_size === null ? "unknown" : formatCount(batch_size)}, capacity ${formatKnown(capacity_bytes)}`;

/** What is left to say below the headline, which says the reason of an unknown answer itself. */
export const assumptionsOf = ({ peak_bytes, assumptions }: WhatIf): string[] =>
  peak_bytes === null ? assumptions.slice(1) : assumptions;

export const replayText = ({ reproduced: { addresses, of } }: WhatIf): string =>
  `${formatCount(addresses)} of ${formatCount(of)} addresses`;

export function recordedText({ recorded: { batch_sizes, peak_bytes } }: WhatIf): string {
  const sizes = batch_sizes.length > 0 ? batch_sizes.map(formatCount).join(", ") : "unknown";
  return `batch size ${sizes}${peak_bytes === null ? "" : `, median peak ${formatBytes(peak_bytes)}`}`;
}

/** A peak with its parts: measured, predicted for the conditions, or that of the plan. */
export interface NamedPeak extends PeakRange {
  name: "measured" | "predicted" | "plan" | "smallest";
  /**
   * What it is called on the screen: the training without any change but its batch size is what a
   * plan is compared with.
   */
  label: string;
  /** Where it was measured: other views show other steps. */
  moment?: string;
  ledger: readonly LedgerRow[];
}

export function peaksOf(answer: WhatIf, plan: Plan | null): NamedPeak[] {
  const { measured, ledger } = answer;
  const exact = (bytes: number): PeakRange => ({
    peak_bytes: bytes,
    low_bytes: null,
    high_bytes: null,
  });
  const hasPlan = plan !== null && plan.ledger.length > 0 && chosenOption(plan)?.kind !== "none";
  const { freeze, unfreeze, optimizer, precision } = answer.conditions;
  const unchanged = [freeze, unfreeze, optimizer, precision].every((one) => one === null);
  const simulated = unchanged ? "unchanged" : "predicted";
  const label = answer.recorded_peak_bytes === null ? simulated : "median";
  const planned = plan?.fits === true ? ("plan" as const) : ("smallest" as const);
  return [
    ...(measured
      ? [
          {
            ...measured,
            ...exact(measured.in_use_bytes),
            name: "measured" as const,
            label: "measured",
            moment: `step ${measured.step}`,
          },
        ]
      : []),
    { ...answer, name: "predicted", label, ledger },
    ...(hasPlan ? [{ ...plan, name: planned, label: planned }] : []),
  ];
}

export const categoriesOf = (peaks: readonly NamedPeak[]): GroupSums[] =>
  groupSums(
    peaks.map(({ ledger }) =>
      ledger.map(({ bytes, ...owner }) => ({ group: groupOfOwner(owner), bytes })),
    ),
  );

function requester({ op, layer }: FailedRequest): string {
  const name = op?.split("/").at(-1);
  return (
    [...(name === undefined ? [] : [name]), ...(layer === null ? [] : [layer])].join(" in ") ||
    "an unknown operation"
  );
}

/**
 * "batch size 16: 96 MiB (92 MiB to 99 MiB)", and for a batch size that does not fit ", does not
 * fit: fails at 61 MiB for Relu in net/conv1"
 */
export function pointText({ batch_size, fits, fails_at, ...range }: CurvePoint): string {
  const text = `batch size ${formatCount(batch_size)}: ${peakText(range)}`;
  if (fits === null) return `${text}, unknown whether it fits`;
  if (fits) return `${text}, fits`;
  const where =
    fails_at === null
      ? ""
      : `: fails at ${formatBytes(fails_at.requested_bytes)} for ${requester(fails_at)}`;
  return `${text}, does not fit${where}`;
}

/** The curve with the point of the answer, which it may not have. */
export function curveWith(curve: readonly CurvePoint[], answer: WhatIf): CurvePoint[] {
  const { batch_size, peak_bytes, low_bytes, high_bytes, fits, fails_at } = answer;
  if (batch_size === null || peak_bytes === null || low_bytes === null || high_bytes === null)
    return [...curve];
  const others = curve.filter((point) => point.batch_size !== batch_size);
  return [...others, { batch_size, peak_bytes, low_bytes, high_bytes, fits, fails_at }].sort(
    (a, b) => a.batch_size - b.batch_size,
  );
}

export function pointOf(curve: readonly CurvePoint[], batchSize: number | null): number | null {
  const found = curve.findIndex(({ batch_size }) => batch_size === batchSize);
  return found < 0 ? null : found;
}

export function ledgerTable(peaks: readonly NamedPeak[]): Table {
  const keyOf = ({ layer, category, trainable }: LedgerRow): string =>
    JSON.stringify([layer, category, trainable]);
  const rows = new Map(peaks.flatMap(({ ledger }) => ledger.map((row) => [keyOf(row), row])));
  const column = (wanted: NamedPeak["name"][]) => {
    const own = peaks.find(({ name }) => wanted.includes(name))?.ledger ?? [];
    const sums = sumsBy(own, keyOf, ({ bytes }) => bytes);
    return ([key]: [string, LedgerRow]): number | null =>
      sums.get(key) ?? (sums.size > 0 ? 0 : null);
  };
  return tableOf([...rows], {
    layer: ([, { layer }]) => layer,
    category: ([, { category }]) => category,
    trainable: ([, { trainable }]) => trainable,
    measured_bytes: column(["measured"]),
    predicted_bytes: column(["predicted"]),
    planned_bytes: column(["plan", "smallest"]),
  });
}

export const timeText = (share: number | null): string =>
  share === null ? "unknown" : `+${Math.round(100 * share)} %`;

/** "maybe" if a part of the range is within the budget */
export const fitsWord = ({ fits, peak_bytes }: PlanOption): string =>
  fits === null ? (peak_bytes === null ? "unknown" : "maybe") : fits ? "yes" : "no";

/**
 * The option that is the plan, or the one with the smallest peak if nothing fits; null without
 * options.
 */
export function chosenOption({ fits, options, high_bytes }: Plan): PlanOption | null {
  if (fits !== null && fits) return options.find((option) => option.fits) ?? null;
  return options.find((option) => option.high_bytes === high_bytes) ?? null;
}

export function planSentence(plan: Plan): string {
  if (plan.fits === null) return plan.sentences[0] ?? "Unknown: there is no prediction.";
  const budget = formatBytes(plan.budget_bytes);
  const option = chosenOption(plan);
  if (!plan.fits) return `None of the simulated changes fits into ${budget}`;
  if (option === null || option.kind === "none") return `No change is needed to fit into ${budget}`;
  return `Fits into ${budget}: ${wordsOf(option)}`;
}

export const planNotes = ({ fits, sentences }: Plan): string[] =>
  fits === null ? sentences.slice(1) : sentences;

const PARTS: Partial<Record<PlanOption["kind"], (option: PlanOption) => string>> = {
  none: () => "unchanged",
  recompute: () => "recompute",
  accumulate: ({ accumulation }) => `accumulate × ${accumulation}`,
  batch_size: ({ batch_size }) => `batch size ${batch_size}`,
  optimizer: () => "SGD",
  precision: () => "mixed_float16",
  freeze: ({ frozen }) => `freeze ${frozen.length}`,
};

/** A change in a word or two, "recompute, batch size 1" */
const wordsOf = (option: PlanOption): string =>
  option.kind
    .split("_and_")
    .map((kind) => PARTS[kind as PlanOption["kind"]]?.(option) ?? kind)
    .join(", ");

/**
 * A simulated change in the picture of peaks and times; without a label for one more number of
 * recomputed segments.
 */
export interface PlanDot extends PeakRange {
  peak_bytes: number;
  low_bytes: number;
  high_bytes: number;
  label: string;
  sentence: string;
  /** A share of the step, null if unknown. */
  time: number | null;
  isPlan: boolean;
  /** For which the plan is this change; null where another one would be chosen. */
  budget: string | null;
}

/** "55.9 MiB (51.1 MiB to 76.3 MiB), step time +23 %" */
const dotText = (range: PeakRange, time: number | null): string =>
  `${peakText(range)}, step time ${timeText(time)}`;

/** Every simulated change with a known peak, those that take the least time first. */
export function planDots(plan: Plan): PlanDot[] {
  const chosen = plan.fits === true ? chosenOption(plan) : null;
  const options = plan.options.flatMap((option): PlanDot[] => {
    const { peak_bytes, low_bytes, high_bytes, extra_time: time, sentence } = option;
    if (peak_bytes === null || low_bytes === null || high_bytes === null) return [];
    const range = { peak_bytes, low_bytes, high_bytes };
    const text = `${sentence}: ${dotText(range, time)}`;
    return [
      {
        ...range,
        label: wordsOf(option),
        sentence: text,
        time,
        isPlan: option === chosen,
        budget: null,
      },
    ];
  });
  const known = new Set(options.map(({ peak_bytes, time }) => `${peak_bytes}/${time}`));
  const more = plan.curve
    .filter(({ peak_bytes, extra_time }) => !known.has(`${peak_bytes}/${extra_time}`))
    .map(({ segments, extra_time: time, ...range }) => {
      const sentence = `recompute ${plural(segments, "segment")}: ${dotText(range, time)}`;
      return { ...range, label: "", sentence, time, isPlan: false, budget: budgetOf(range) };
    });
  return [...options, ...more].sort(
    (a, b) => (a.time ?? Infinity) - (b.time ?? Infinity) || b.peak_bytes - a.peak_bytes,
  );
}

/** The budget for which the plan is a point of the curve: the end of its range. */
const budgetOf = ({ high_bytes }: { high_bytes: number }): string => `${high_bytes}B`;

export function plannedLayers(plan: Plan | null): (path: string) => boolean {
  if (!plan?.fits) return () => false;
  const paths = plan.segments.flat().map((name) => `${plan.model}/${name}/`);
  return (path) => paths.some((one) => `${path}/`.startsWith(one));
}

export const optionsTable = ({ options }: Plan): Table =>
  tableOf(options, {
    kind: ({ kind }) => kind,
    change: ({ sentence }) => sentence,
    peak_bytes: ({ peak_bytes }) => peak_bytes,
    low_bytes: ({ low_bytes }) => low_bytes,
    high_bytes: ({ high_bytes }) => high_bytes,
    fits: ({ fits }) => fits,
    extra_time: ({ extra_time }) => extra_time,
  });

/** The budget is that of the plan; empty for the capacity. */
export const CONDITIONS = [
  "batch_size",
  "capacity",
  "freeze",
  "unfreeze",
  "optimizer",
  "precision",
  "budget",
] as const;
export type ConditionName = (typeof CONDITIONS)[number];
export type Conditions = Readonly<Record<ConditionName, string>>;

export const AS_RECORDED = Object.fromEntries(
  CONDITIONS.map((name) => [name, ""]),
) as unknown as Conditions;

/** Optimizers by name, `momentum` being SGD with momentum. */
export const OPTIMIZERS = [
  "sgd",
  "momentum",
  "rmsprop",
  "adagrad",
  "lion",
  "adam",
  "adamw",
  "adamax",
  "nadam",
  "adadelta",
  "ftrl",
];
export const PRECISIONS = ["float32", "mixed_float16", "mixed_bfloat16"] as const;

export const changedConditions = (conditions: Conditions): [ConditionName, string][] =>
  CONDITIONS.flatMap((name) =>
    conditions[name] === "" ? [] : [[name, conditions[name]] as [ConditionName, string]],
  );
