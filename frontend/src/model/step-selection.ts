/**
 * The one selected step: every view shows it, or the traced step that its breakdown comes from.
 * Pure.
 */

import { lowerBound } from "../lib/search";
import { at, peakRow, rowOfStep, snapshotAt, type Overview } from "./overview";
import type { SnapshotRef } from "../schema";

/**
 * The traced row with the highest measured peak, the earliest of several; without one, the row of
 * the highest peak; -1 without rows.
 */
export function defaultRow(overview: Overview): number {
  let best = -1;
  for (let row = 0; row < overview.rows; row += 1) {
    if (overview.traced[row] !== 1) continue;
    if (best < 0 || (at(overview.peak_bytes, row) ?? -1) > (at(overview.peak_bytes, best) ?? -1))
      best = row;
  }
  if (best >= 0) return best;
  return overview.rows > 0 ? Math.max(peakRow(overview), 0) : -1;
}

/**
 * The row of B that answers what differs from step A: of another run its traced row with the
 * highest peak; of the same run that of the steps on the other side of the last change of its
 * layers, otherwise the traced row that differs most from A in its peak.
 */
export function counterpartRow(stepOfA: number | null, b: Overview, sameRun: boolean): number {
  if (!sameRun || stepOfA === null) return defaultRow(b);
  const traced = Array.from({ length: b.rows }, (_, row) => row).filter(
    (row) => b.traced[row] === 1 && b.step[row] !== stepOfA,
  );
  const peakOf = (row: number): number => at(b.peak_bytes, row) ?? 0;
  const highest = (rows: readonly number[], size: (row: number) => number): number =>
    rows.reduce((best, row) => (best < 0 || size(row) > size(best) ? row : best), -1);
  const change = b.changes.slice(1).at(-1)?.step;
  if (change !== undefined) {
    const across = traced.filter((row) => (b.step[row] ?? 0) < change !== stepOfA < change);
    if (across.length > 0) return highest(across, peakOf);
  }
  const own = peakOf(rowOfStep(b, stepOfA));
  const other = highest(traced, (row) => Math.abs(peakOf(row) - own));
  return other >= 0 ? other : defaultRow(b);
}

/**
 * The two steps of a run to compare while only `step` is selected: it and its counterpart, the
 * earlier one first. Null without steps.
 */
export function comparedSteps(whole: Overview, step: number): readonly [number, number] | null {
  const other = at(whole.step, counterpartRow(step, whole, true));
  return other === null ? null : [Math.min(step, other), Math.max(step, other)];
}

const holds = ({ step, rows }: Overview, wanted: number): boolean =>
  rows > 0 && (step[0] as number) <= wanted && wanted <= (step[rows - 1] as number);

/**
 * The row of the last failed step, or of the step nearest to it; -1 without one: what failed is
 * looked at first.
 */
function failedRow(overview: Overview): number {
  const last = overview.failures.at(-1);
  return last && overview.rows > 0 ? rowOfStep(overview, last.step) : -1;
}

function standardRow(whole: Overview): number {
  const failed = failedRow(whole);
  return failed >= 0 ? failed : defaultRow(whole);
}

/**
 * The row of the chosen step, or of the nearest one; of the default step, the same in every view,
 * if none is chosen. `whole` is the overview of the whole run, `shown` that of the zoom. Null
 * without rows.
 */
export function selectStep(whole: Overview, shown: Overview, chosen: number | null) {
  const standard = standardRow(whole);
  if (standard < 0) return null;
  const defaultStep = whole.step[standard] as number;
  const wanted = chosen ?? defaultStep;
  const overview = holds(shown, wanted) ? shown : whole;
  const row = rowOfStep(overview, wanted);
  const highest = at(whole.peak_bytes, peakRow(whole));
  return {
    overview,
    row,
    step: overview.step[row] as number,
    snapshot: snapshotAt(overview, row),
    chosen,
    defaultStep,
    failed: whole.failures.some((failure) => failure.step === overview.step[row]),
    isPeak: highest !== null && at(overview.peak_bytes, row) === highest,
    isTracedPeak:
      overview.step[row] === whole.step[defaultRow(whole)] && whole.snapshots.length > 0,
  };
}

export type StepSelection = NonNullable<ReturnType<typeof selectStep>>;

export const tracedSteps = ({ snapshots }: Overview): number[] =>
  [...new Set(snapshots.map(({ step }) => step))].sort((a, b) => a - b);

/**
 * Steps that the keyboard selects one after the other: the traced ones, or all if none was traced.
 */
export function stopsOf(whole: Overview): readonly number[] {
  const traced = tracedSteps(whole);
  return traced.length > 0 ? traced : [...whole.step];
}

/** Examples in the batch of a traced step; null if it was not traced or has no known batch size. */
export const batchSizeAt = (snapshots: readonly SnapshotRef[], step: number): number | null =>
  snapshots.find((one) => one.step === step)?.batch_size ?? null;

export function tracedNeighbours(
  traced: readonly number[],
  step: number,
): { before: number | null; after: number | null } {
  const place = lowerBound(traced, step);
  return {
    before: traced[place - 1] ?? null,
    after: traced[traced[place] === step ? place + 1 : place] ?? null,
  };
}

/** "failed", "peak", "traced peak" where the peak's step was not traced, or "" for other steps. */
export const peakWord = ({ failed, isPeak, isTracedPeak }: StepSelection): string =>
  failed ? "failed" : isPeak ? "peak" : isTracedPeak ? "traced peak" : "";

/**
 * What is shown instead of the selected step; "" if it is shown itself. `timeline` is the step of
 * the shown timeline.
 */
export function stepNote(
  { chosen, step, snapshot, overview }: StepSelection,
  timeline: number | null,
): string {
  const nearest =
    chosen !== null && chosen !== step
      ? `Step ${chosen} is not in the chart; step ${step} is the nearest. `
      : "";
  if (snapshot === null && timeline === null)
    return `${nearest}No ${overview.phase} step was traced; breakdown from the layer table.`;
  const from = timeline ?? snapshot?.step;
  if (from === step) return nearest.trim();
  const why = snapshot?.step === step ? "has no timeline" : "was not traced";
  return `${nearest}Step ${step} ${why}; ${timeline === null ? "breakdown" : "timeline"} from step ${from}.`;
}
