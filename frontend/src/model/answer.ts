/**
 * Answers to the four questions on a run. The server makes them; names are those of the HTTP API.
 */

import { formatBytes, formatShare } from "../lib/bytes";
import { HOST_RSS, WORDS, type WordName } from "./categories";
import { at, breakdown, peakRow, type Overview } from "./overview";
import { tableAt } from "./frozen";
import { AS_RECORDED, type Conditions } from "./what-if";
import type { Answer, AnswerStatus, Fix, Oom, RunInfo } from "../schema";

export const STATUS_WORDS: Record<AnswerStatus, string> = {
  ok: "OK",
  warning: "Warning",
  failed: "Failed",
  fact: "Fact",
  unknown: "Unknown",
};

/** Labels of figures that other views show too: a quantity has one name. */
const LABELS: Record<string, string> = {
  earlier_optimizers_bytes: "earlier optimizers and models",
  peak_before_bytes: `${WORDS.peak_bytes.label} before`,
  peak_after_bytes: `${WORDS.peak_bytes.label} after`,
  headroom_bytes: WORDS.headroom.label,
  largest_free_bytes: WORDS.free_largest.label,
  from_host_bytes: `${HOST_RSS} before`,
  to_host_bytes: `${HOST_RSS} at the end`,
};

const RATES: Record<string, string> = {
  bytes_per_step: "rate",
  host_bytes_per_step: `${HOST_RSS} beyond CPU:0`,
};

const label = (name: string): string =>
  LABELS[name] ??
  (name in WORDS
    ? WORDS[name as WordName].label
    : name.replace(/_bytes$/, "").replaceAll("_", " "));

function figureText(name: string, value: number): string {
  const rate = RATES[name];
  if (rate !== undefined) return `${rate}: ${formatBytes(Math.round(value))} per step`;
  if (name.endsWith("_delta_bytes"))
    return `${label(name.replace("_delta_bytes", ""))}: ${value > 0 ? "+" : ""}${formatBytes(value)}`;
  return `${label(name)}: ${name.endsWith("_bytes") ? formatBytes(value) : value}`;
}

/**
 * The change between two steps that answers "What changed?" compares; null if that answer is about
 * others.
 */
export function changeBetween(
  answers: readonly Answer[] | null,
  step: number | null,
  other: number | null,
): Answer | null {
  const changed = answers?.find(({ name }) => name === "changed");
  const compared =
    changed?.evidence.view === "compare" &&
    changed.evidence.step === step &&
    changed.evidence.other_step === other;
  return changed && compared ? changed : null;
}

export function answerTip({ figures, source, evidence, details }: Answer): string {
  const step = evidence.step === null ? "" : `, step ${evidence.step}`;
  const known = source === "unknown" ? [] : [`${source}${step}`];
  return [
    ...details,
    ...Object.entries(figures).map(([name, value]) => figureText(name, value)),
    ...known,
  ].join("\n");
}

export function fixWord({ enough }: Fix): "fits" | "fails" | "estimate" {
  if (enough === null) return "estimate";
  return enough ? "fits" : "fails";
}

const MIB = 1 << 20;

/** Bytes as a size that a condition can be; exact. */
const sizeText = (bytes: number): string => (bytes % MIB === 0 ? `${bytes / MIB}MiB` : `${bytes}B`);

/**
 * The conditions of What if under which a fix is tried, or the budget that it is planned for; null
 * for a fix that is neither.
 */
export function fixConditions(
  fix: Fix,
  { batch_size: failed }: Pick<Oom, "batch_size">,
): Conditions | null {
  const batch_size = failed === null ? "" : String(failed);
  const { kind, enough } = fix;
  if (kind === "batch") return { ...AS_RECORDED, batch_size: String(fix.batch_size ?? 1) };
  if (kind === "limit" && fix.capacity_bytes !== null)
    return { ...AS_RECORDED, batch_size, capacity: sizeText(fix.capacity_bytes) };
  if (kind === "freezing" && fix.freeze !== null)
    return { ...AS_RECORDED, batch_size, freeze: fix.freeze };
  if (kind === "precision" && enough === null)
    return { ...AS_RECORDED, batch_size, precision: "mixed_float16" };
  if (kind === "accumulation") return AS_RECORDED;
  return fix.budget_bytes === null ? null : { ...AS_RECORDED, budget: sizeText(fix.budget_bytes) };
}

const VERDICT_WORDS = {
  fragmentation: "Free memory is fragmented",
  capacity: "Not enough free memory",
  unknown: "Verdict unknown",
};

/** The verdict without its figures. */
export const verdictWords = (verdict: Oom["verdict"]): string =>
  VERDICT_WORDS[verdict ?? "unknown"];

export function verdictSentence({
  verdict,
  requested_bytes: requested,
  free_bytes: free,
  largest_free_bytes: largest,
}: Oom): string {
  const figures = [
    ...(requested === null ? [] : [`${formatBytes(requested)} requested`]),
    ...(free === null ? [] : [`${formatBytes(free)} free`]),
    ...(largest === null || verdict !== "fragmentation"
      ? []
      : [`largest free chunk ${formatBytes(largest)}`]),
  ];
  return `${[verdictWords(verdict), figures.join(", ")].filter(Boolean).join(": ")}.`;
}

/**
 * "Step 59 ran out of memory on GPU:0"; a phase other than the training's is named, the device only
 * if asked for.
 */
export function whenSentence(
  { status, step, phase, during, device: name }: Oom,
  named = true,
): string {
  const waiting = status === "failing";
  const device = named ? ` on ${name}` : "";
  const after = step === null ? "" : ` after step ${step}`;
  if (during === "building") return `Building the model${after} ran out of memory${device}`;
  if (during === "between_steps")
    return `Memory ran out${device} ${after ? `between steps,${after}` : "before the first step"}`;
  if (step === null)
    return waiting
      ? `An allocation${device} was still waiting for memory`
      : `An allocation${device} failed`;
  const what = `Step ${step}${phase === null || phase === "train" ? "" : ` (${phase})`}`;
  return waiting
    ? `${what} ended while waiting for memory${device}`
    : `${what} ran out of memory${device}`;
}

/** A finding as the page shows it: where a click leads, and how it is marked. */
export interface Finding {
  sentence: string;
  step: number | null;
  kind: "frozen" | "growth" | "minor";
  view: "overview" | "frozen" | "fragmentation";
  zoom: readonly [number, number] | null;
}

/**
 * The server's findings, from every step of the run, on the shown device and on all of its worker.
 */
export const growthFindings = ({ findings }: RunInfo, device: string): Finding[] =>
  findings
    .filter((one) => (one.device ?? device) === device)
    .filter(({ worker }) => worker === "" || device.startsWith(`${worker}/`))
    .map(({ kind, minor, since_step: since, step, sentence }) => ({
      kind: minor ? "minor" : "growth",
      step,
      view: kind === "host_growth" ? "fragmentation" : "overview",
      zoom: since !== null && step !== null && step > since ? [since, step] : null,
      sentence,
    }));

/**
 * Whether it is on growth over steps that it names, which stands above the chart of a run that
 * grows.
 */
export const isSteady = ({ zoom, view }: Finding): boolean => zoom !== null && view === "overview";

/** What a finding says in one line, without the name of the shown device, and the rest of it. */
export function shortFinding(sentence: string, device: string): [string, string] {
  const own = sentence.replace(`${device}: `, "");
  const end = /[.:] /.exec(own)?.index;
  return end === undefined ? [own, ""] : [own.slice(0, end), own.slice(end + 2)];
}

/** Of the peak: less is no finding. */
const LEAST_SHARE = 0.01;

export function frozenFindings(overview: Overview): Finding[] {
  const row = peakRow(overview);
  const step = at(overview.step, row);
  const peak = at(overview.peak_bytes, row);
  if (step === null || peak === null) return [];
  const frozen = breakdown(overview, row).find(
    ({ group }) => group.category === "weights" && group.trainable === false,
  );
  if (!frozen?.bytes || tableAt(overview, row)?.frozen_layers === 0) return [];
  if (frozen.bytes < LEAST_SHARE * peak) return [];
  return [
    {
      kind: "frozen",
      view: "frozen",
      zoom: null,
      step,
      sentence: `Frozen weights take ${formatBytes(frozen.bytes)} (${formatShare(frozen.bytes / peak)} of the peak at step ${step}).`,
    },
  ];
}
