/** What a change of the layer table, such as an unfreezing, did to memory. */

import { formatBytes, formatDelta } from "../lib/bytes";
import { lowerBound } from "../lib/search";
import type { LayerChange, Overview } from "./overview";

export interface ChangeEffect {
  change: LayerChange;
  /** Change of the bytes of trainable weights; those of frozen weights change by as much the other way. */
  trainable_weight_delta: number;
  optimizer_delta: number;
  /** Highest measured peak of the rows before and after, null where there are none. */
  peak_before: number | null;
  peak_after: number | null;
  /** First training step after the change, where the mark stands. */
  step: number;
}

/** Rows looked at on either side of a change, never past its neighbours. */
const WINDOW = 20;

export const isFreezing = (change: LayerChange): boolean => change.became_trainable.length > 0 || change.became_frozen.length > 0;

function highest(column: Float64Array, from: number, to: number): number | null {
  let most: number | null = null;
  for (let row = Math.max(from, 0); row < to; row += 1) {
    const value = column[row];
    if (value !== undefined && !Number.isNaN(value) && (most === null || value > most)) most = value;
  }
  return most;
}

/** The effect of every change but the first, which is the beginning of the recording. */
export function effects(overview: Overview): ChangeEffect[] {
  return overview.changes.slice(1).map((change, index) => {
    const before = overview.changes[index] as LayerChange;
    const after = overview.changes[index + 2];
    const start = lowerBound(overview.step, before.step);
    const row = lowerBound(overview.step, change.step);
    const end = after ? lowerBound(overview.step, after.step) : overview.rows;
    return {
      change,
      step: change.step,
      trainable_weight_delta: change.trainable_weight_bytes - before.trainable_weight_bytes,
      optimizer_delta: change.optimizer_bytes - before.optimizer_bytes,
      peak_before: highest(overview.peak_bytes, Math.max(start, row - WINDOW), row),
      peak_after: highest(overview.peak_bytes, row, Math.min(end, row + WINDOW)),
    };
  });
}

/** The last part of a path: what fits on a mark. */
export const shortName = (path: string): string => path.slice(path.lastIndexOf("/") + 1) || path;

const named = (paths: readonly string[]): string =>
  paths.length === 1 ? shortName(paths[0] ?? "") : `${shortName(paths[0] ?? "")} +${paths.length - 1}`;

/** "unfreeze block5_conv1 +2", for a mark on the chart. */
export function changeTitle(change: LayerChange): string {
  const parts: string[] = [];
  if (change.became_trainable.length > 0) parts.push(`unfreeze ${named(change.became_trainable)}`);
  if (change.became_frozen.length > 0) parts.push(`freeze ${named(change.became_frozen)}`);
  return parts.length > 0 ? parts.join(", ") : change.reason;
}

/** The whole effect in bytes, as one sentence after the recorder's own. */
export function effectSentence(effect: ChangeEffect): string {
  const { trainable_weight_delta: moved, peak_before: before, peak_after: after } = effect;
  const parts: string[] = [];
  if (moved > 0) parts.push(`${formatBytes(moved)} of weights became trainable`);
  if (moved < 0) parts.push(`${formatBytes(-moved)} of weights became frozen`);
  if (effect.optimizer_delta !== 0) parts.push(`optimizer state ${formatDelta(effect.optimizer_delta)}`);
  if (before !== null && after !== null) {
    parts.push(`measured peak ${formatBytes(before)} → ${formatBytes(after)} (${formatDelta(after - before)})`);
  }
  return parts.length > 0 ? `${parts.join("; ")}.` : "No effect on memory was measured.";
}
