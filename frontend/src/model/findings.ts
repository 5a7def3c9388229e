/** Findings about a run that the four answers do not contain: full sentences, each with its figures. */

import { formatBytes } from "../lib/bytes";
import { formatShare } from "../lib/format";
import { groupLabel } from "./categories";
import { at, breakdown, peakRow, provenance, type Overview } from "./overview";
import type { RunInfo } from "./run";

export interface Finding {
  sentence: string;
  /** The step that shows it, null if none does. */
  step: number | null;
  kind: "peak" | "frozen" | "growth";
  /** The view that shows it. */
  view: "overview" | "frozen" | "fragmentation";
  /** First and last step of a growth. */
  zoom: readonly [number, number] | null;
}

const stepIn = (sentence: string, before: string): number | null => {
  const found = new RegExp(`${before} step (\\d{1,15})`).exec(sentence);
  return found ? Number(found[1]) : null;
};

/** A finding on host memory, with the name of its worker in a run of several. */
const HOST = /^(?:(.*): h|H)ost RSS grows/;

/** The server's findings on growth, from every step of the run, of the shown device and of the host memory of its worker. */
export function growthFindings(run: RunInfo, device: string): Finding[] {
  const own = (sentence: string): boolean => {
    const host = HOST.exec(sentence);
    if (host) return host[1] === undefined || device.startsWith(`${host[1]}/`);
    return sentence.startsWith(`${device}:`) || !run.devices.some(({ device: name }) => sentence.startsWith(`${name}:`));
  };
  return run.findings.filter(own).map((sentence): Finding => {
    const [first, last] = [stepIn(sentence, "since"), stepIn(sentence, "at")];
    const zoom = first !== null && last !== null && last > first ? ([first, last] as const) : null;
    return { kind: "growth", step: last, view: HOST.test(sentence) ? "fragmentation" : "overview", zoom, sentence };
  });
}

/** Findings on the peak. Of a run that ran out of memory the post-mortem says what filled it; the peak of another step does not. */
export function findings(overview: Overview, failed: boolean, training = true): Finding[] {
  const row = peakRow(overview);
  const step = at(overview.step, row);
  const peak = at(overview.peak_bytes, row);
  if (step === null || peak === null) return [];
  return [...(failed ? [] : atPeak(overview, row, step, peak)), ...(training ? frozenCost(overview, row, step, peak) : [])];
}

function atPeak(overview: Overview, row: number, step: number, peak: number): Finding[] {
  const parts = breakdown(overview, row).map((part) => ({ ...part, bytes: part.bytes ?? 0 }));
  const known = parts
    .filter(({ group, bytes }) => group.category !== "unattributed" && bytes > 0)
    .sort((a, b) => b.bytes - a.bytes)
    .slice(0, 2);
  const sum = (some: typeof parts): number => some.reduce((total, { bytes }) => total + bytes, 0);
  // With more unattributed than named, the largest known categories need not be the largest.
  if (known.length === 0 || sum(parts.filter(({ group }) => group.category === "unattributed")) > sum(known)) return [];
  const largest = known.map(({ group, bytes, share }) => `${groupLabel(group)} ${formatBytes(bytes)} (${formatShare(share ?? 0)})`);
  const source = provenance(overview, row);
  const how =
    source.kind === "traced" || source.kind === "failure"
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
  const table = overview.changes.filter((change) => change.step <= step).at(-1) ?? overview.changes[0];
  if (!frozen?.bytes || table?.frozen_layers === 0) return [];
  return [
    {
      kind: "frozen",
      view: "frozen",
      zoom: null,
      step,
      sentence: `Frozen weights take ${formatBytes(frozen.bytes)} (${formatShare(frozen.bytes / peak)} of the peak at step ${step}); they need no gradients and no optimizer state.`,
    },
  ];
}
