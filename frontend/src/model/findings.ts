/** Findings about a run: full sentences, each with its figures. */

import { formatBytes } from "../lib/bytes";
import { formatShare, plural } from "../lib/format";
import { groupLabel } from "./categories";
import { effectSentence, effects, isFreezing } from "./changes";
import { at, breakdown, peakRow, provenance, type Overview } from "./overview";
import type { RunInfo } from "./run";

export interface Finding {
  sentence: string;
  /** The step that shows it, null if none does. */
  step: number | null;
  kind: "peak" | "frozen" | "change" | "growth" | "oom";
  /** The view that shows it. */
  view: "overview" | "frozen" | "oom";
  /** First and last step of a growth. */
  zoom: readonly [number, number] | null;
}

const stepIn = (sentence: string, before: string): number | null => {
  const found = new RegExp(`${before} step (\\d{1,15})`).exec(sentence);
  return found ? Number(found[1]) : null;
};

/** Findings that the server makes from every step of the run: out-of-memory failures and growth on the shown device. */
export function runFindings(run: RunInfo, device: string): Finding[] {
  const failures: Finding = {
    kind: "oom",
    step: null,
    view: "oom",
    zoom: null,
    sentence: `${plural(run.ooms, "step")} ran out of memory; see the post-mortem.`,
  };
  const own = (sentence: string): boolean =>
    sentence.startsWith(`${device}:`) || !run.devices.some(({ device: name }) => sentence.startsWith(`${name}:`));
  const growing = run.findings.filter(own).map((sentence): Finding => {
    const [first, last] = [stepIn(sentence, "since"), stepIn(sentence, "at")];
    const zoom = first !== null && last !== null && last > first ? ([first, last] as const) : null;
    return { kind: "growth", step: last, view: "overview", zoom, sentence };
  });
  return [...(run.ooms > 0 ? [failures] : []), ...growing];
}

export function findings(overview: Overview): Finding[] {
  const row = peakRow(overview);
  const step = at(overview.step, row);
  const peak = at(overview.peak_bytes, row);
  if (step === null || peak === null) return [];
  return [...atPeak(overview, row, step, peak), ...frozenCost(overview, row, step, peak), ...changes(overview)];
}

function atPeak(overview: Overview, row: number, step: number, peak: number): Finding[] {
  const known = breakdown(overview, row)
    .filter(({ group }) => group.category !== "unattributed")
    .sort((a, b) => (b.bytes ?? 0) - (a.bytes ?? 0))
    .slice(0, 2)
    .filter(({ bytes }) => (bytes ?? 0) > 0);
  if (known.length === 0) return [];
  const largest = known.map(({ group, bytes, share }) => `${groupLabel(group)} ${formatBytes(bytes ?? 0)} (${formatShare(share ?? 0)})`);
  const source = provenance(overview, row);
  const how =
    source.kind === "traced"
      ? ""
      : source.kind === "inferred"
        ? `, inferred from the trace of step ${source.snapshot.step}`
        : ", from the layer table";
  return [
    {
      kind: "peak",
      view: "overview",
      zoom: null,
      step,
      sentence: `The peak of ${formatBytes(peak)} at step ${step} consists mainly of ${largest.join(" and ")}${how}.`,
    },
  ];
}

function frozenCost(overview: Overview, row: number, step: number, peak: number): Finding[] {
  const frozen = breakdown(overview, row).find(({ group }) => group.category === "weights" && group.trainable === false);
  if (!frozen?.bytes) return [];
  return [
    {
      kind: "frozen",
      view: "frozen",
      zoom: null,
      step,
      sentence: `Frozen weights take ${formatBytes(frozen.bytes)} (${formatShare(frozen.bytes / peak)} of that peak); they need no gradients and no optimizer state.`,
    },
  ];
}

function changes(overview: Overview): Finding[] {
  return effects(overview)
    .filter(isFreezing)
    .map((effect) => ({ kind: "change", view: "frozen", zoom: null, step: effect.step, sentence: effectSentence(effect) }));
}
