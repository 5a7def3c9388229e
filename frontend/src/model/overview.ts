/**
 * Rows of training steps with their breakdown. Columns are as long as `rows`; NaN means "unknown".
 */

import { formatBytes, formatCount, formatDelta, largestFirst, formatKnown } from "../lib/bytes";
import { nearestIndex } from "../lib/search";
import { groupLabel } from "./categories";
import { shortName } from "./run";
import type {
  Failure,
  Group,
  LayerChange,
  Mode,
  OVERVIEW_COLUMNS,
  OverviewHead,
  SnapshotRef,
} from "../schema";

type OverviewColumn = (typeof OVERVIEW_COLUMNS)[number];
export type Overview = OverviewHead & { rows: number; bytes: Float64Array[] } & Record<
    OverviewColumn,
    Float64Array
  >;

export function at(column: Float64Array, row: number): number | null {
  const value = column[row];
  return value === undefined || Number.isNaN(value) ? null : value;
}

/** Whether the column has a value at any row. */
export const isKnown = (column: Float64Array): boolean =>
  column.some((value) => !Number.isNaN(value));

/** The row of the highest measured peak, the earliest of several; -1 without any. */
export function peakRow(overview: Overview): number {
  let best = -1;
  for (let row = 0; row < overview.rows; row += 1) {
    const value = at(overview.peak_bytes, row);
    if (value !== null && (best < 0 || value > (overview.peak_bytes[best] ?? 0))) best = row;
  }
  return best;
}

export const rowOfStep = (overview: Overview, step: number): number =>
  nearestIndex(overview.step, step);

export interface Part {
  group: Group;
  bytes: number | null;
  share: number | null;
}

export function breakdown(overview: Overview, row: number): Part[] {
  const peak = at(overview.peak_bytes, row);
  return overview.groups.map((group, index) => {
    const bytes = at(overview.bytes[index] ?? new Float64Array(), row);
    return { group, bytes, share: bytes === null || !peak ? null : bytes / peak };
  });
}

type Provenance =
  { kind: "traced" | "failure" | "inferred"; snapshot: SnapshotRef } | { kind: "layer table" };

export function provenance(overview: Overview, row: number): Provenance {
  const index = at(overview.snapshot, row);
  const snapshot = index === null ? undefined : overview.snapshots[index];
  if (!snapshot) return { kind: "layer table" };
  if (overview.traced[row] !== 1) return { kind: "inferred", snapshot };
  return { kind: snapshot.at_failure ? "failure" : "traced", snapshot };
}

export function snapshotAt(overview: Overview, row: number): SnapshotRef | null {
  const source = provenance(overview, row);
  return source.kind === "layer table" ? null : source.snapshot;
}

export function provenanceSentence(source: Provenance): string {
  switch (source.kind) {
    case "traced":
      return `Measured: this step was traced (${modeLabel(source.snapshot.mode)}).`;
    case "failure":
      return "Memory at the failed allocation, from its memory map.";
    case "inferred":
      return `Peak measured; breakdown inferred from the trace of step ${source.snapshot.step}, long-lived categories also from the bytes in use at step end.`;
    case "layer table":
      return "Peak measured; no step traced yet, so only weights and optimizer state are known (layer table).";
  }
}

export const modeLabel = (mode: Mode | null): string =>
  mode === "xla" ? "XLA" : (mode ?? "unknown mode");

export const failureOf = (overview: Overview, step: number): Failure | null =>
  overview.failures.filter((failure) => failure.step === step).at(-1) ?? null;

/**
 * A failed request on top of what was in use, of one far above the capacity only the lower part;
 * null if either is unknown.
 */
export function requestOf(
  { requested_bytes: bytes, in_use_bytes: low }: Pick<Failure, "requested_bytes" | "in_use_bytes">,
  capacity: number | null,
) {
  if (bytes === null || low === null) return null;
  return {
    low,
    high: Math.min(low + bytes, 1.5 * Math.max(capacity ?? Infinity, low)),
    label: `${formatBytes(bytes)} requested`,
  };
}

/** The request that failed at a step, and the capacity then. */
export function requestAt(overview: Overview, step: number) {
  const failure = failureOf(overview, step);
  const capacity = at(overview.capacity_bytes, rowOfStep(overview, step));
  const request = failure && requestOf(failure, capacity);
  return request && { ...request, capacity };
}

export const momentOf = ({ at_failure }: Pick<SnapshotRef, "at_failure">): string =>
  at_failure ? "at the failed allocation" : "at the peak";

/** When a snapshot's breakdown was measured: "at the peak of step 412". */
export const instantOf = (of: Pick<SnapshotRef, "step" | "at_failure">): string =>
  `${momentOf(of)} of step ${of.step}`;

export const measuredAt = (of: Pick<SnapshotRef, "step" | "at_failure">): string =>
  `${of.at_failure ? "measured" : "traced"} ${instantOf(of)}`;

/** "step 412: peak 14.2 GiB; activations 6.1 GiB; …", largest first: text for screen readers. */
export function rowSentence(overview: Overview, row: number): string {
  const peak = at(overview.peak_bytes, row);
  const parts = breakdown(overview, row)
    .filter((part): part is Part & { bytes: number } => part.bytes !== null && part.bytes > 0)
    .sort(largestFirst)
    .map((part) => `${groupLabel(part.group)} ${formatBytes(part.bytes)}`);
  return [`step ${at(overview.step, row) ?? "unknown"}: peak ${formatKnown(peak)}`, ...parts].join(
    "; ",
  );
}

type ChangeEffect = ReturnType<typeof effects>[number];

export const isFreezing = (effect: ChangeEffect): boolean =>
  effect.changes.some(
    (change) => change.became_trainable.length > 0 || change.became_frozen.length > 0,
  );

function grouped(changes: readonly LayerChange[]): LayerChange[][] {
  const groups: LayerChange[][] = [];
  for (const change of changes) {
    const last = groups.at(-1);
    if (last && change.step <= (last.at(-1) as LayerChange).step + 1) last.push(change);
    else groups.push([change]);
  }
  return groups;
}

/**
 * The layer table at the start: of neighbouring ones the last, since the first step builds the
 * optimizer.
 */
export const initialTable = ({ changes }: Pick<Overview, "changes">): LayerChange | null =>
  grouped(changes)[0]?.at(-1) ?? null;

/** The effect of every change except the first, which is the start of the recording. */
export function effects(overview: Overview) {
  const groups = grouped(overview.changes);
  return groups.slice(1).map((changes, index) => {
    const before = (groups[index] as LayerChange[]).at(-1) as LayerChange;
    const first = changes[0] as LayerChange;
    const last = changes.at(-1) as LayerChange;
    return {
      /** Layer tables of neighbouring steps are one change: an unfreezing, then a new optimizer. */
      changes: changes as readonly LayerChange[],
      step: first.step,
      /** Frozen weights change by as much the other way. */
      trainable_weight_delta: last.trainable_weight_bytes - before.trainable_weight_bytes,
      optimizer_delta: last.optimizer_bytes - before.optimizer_bytes,
      stayed: first.stayed_slots_bytes,
      peak_before: first.peak_before_bytes,
      peak_after: first.peak_after_bytes,
      step_before: first.peak_before_step,
      step_after: first.peak_after_step,
    };
  });
}

/** "block5_conv1" or "3". The server names layers with weights only. */
const named = (paths: readonly string[]): string =>
  paths.length === 1 ? shortName(paths[0] ?? "") : formatCount(paths.length);

function changeTitle({
  became_trainable: unfrozen,
  became_frozen: frozen,
}: LayerChange): string | null {
  const parts: string[] = [];
  if (unfrozen.length > 0) parts.push(`unfroze ${named(unfrozen)}`);
  if (frozen.length > 0) parts.push(`froze ${named(frozen)}`);
  return parts.length > 0 ? parts.join(", ") : null;
}

/** "unfroze 3", for a mark on the chart. */
export function effectTitle({ changes }: ChangeEffect): string {
  const titles = changes.map(changeTitle).filter((title) => title !== null);
  return titles.length > 0 ? titles.join(", ") : (changes[0]?.reason ?? "");
}

const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

/** The recorder's own sentences, then the whole effect in bytes. */
export function effectSentence(effect: ChangeEffect): string {
  const { changes, trainable_weight_delta: moved, peak_before: before, peak_after: after } = effect;
  const reasons = [...new Set(changes.map(({ reason }) => reason.replace(/\.$/, "")))].join("; ");
  const parts: string[] = [];
  if (moved > 0) parts.push(`${formatBytes(moved)} of weights became trainable`);
  if (moved < 0) parts.push(`${formatBytes(-moved)} of weights became frozen`);
  const stayed =
    effect.stayed > 0 ? `, and ${formatBytes(effect.stayed)} of the earlier optimizer stayed` : "";
  if (effect.optimizer_delta !== 0 || stayed)
    parts.push(`optimizer state ${formatDelta(effect.optimizer_delta)}${stayed}`);
  if (before !== null && after !== null) {
    parts.push(
      `measured peak ${formatBytes(before)} → ${formatBytes(after)} (${formatDelta(after - before)})`,
    );
  }
  const what =
    parts.length > 0 ? `${capital(parts.join("; "))}.` : "No effect on memory was measured.";
  return `Step ${effect.step}: ${reasons}. ${what}`;
}

/**
 * The choices that show a run before and after a change, at the steps whose peaks the sentence
 * names; null where a side is unknown.
 */
export function comparison(
  { step_before: step, step_after: otherStep }: ChangeEffect,
  run: string,
) {
  if (step === null || otherStep === null) return null;
  return { view: "compare", primary: run, step, other: run, otherStep } as const;
}
