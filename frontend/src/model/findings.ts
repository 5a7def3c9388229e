/** Findings about a run that the four answers do not contain: full sentences, each with its figures. */

import { formatBytes } from "../lib/bytes";
import { formatShare } from "../lib/format";
import { at, breakdown, peakRow, type Overview } from "./overview";
import type { RunInfo } from "./run";

export interface Finding {
  sentence: string;
  /** The step that shows it, null if none does. */
  step: number | null;
  kind: "frozen" | "growth";
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

/** Whether it is on growth over steps that it names, which stands above the chart of a run that grows. */
export const isSteady = ({ zoom, view }: Finding): boolean => zoom !== null && view === "overview";

/** What frozen weights take of the peak. */
export function frozenFindings(overview: Overview): Finding[] {
  const row = peakRow(overview);
  const step = at(overview.step, row);
  const peak = at(overview.peak_bytes, row);
  if (step === null || peak === null) return [];
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
