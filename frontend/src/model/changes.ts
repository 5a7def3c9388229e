/** Effect on memory of a change of the layer table, such as an unfreezing. */

import { formatBytes, formatDelta } from "../lib/bytes";
import { plural } from "../lib/format";
import { shortName } from "./names";
import type { LayerChange, Overview } from "./overview";

interface ChangeEffect {
  /** Layer tables of neighbouring steps are one change: an unfreezing, then a new optimizer. */
  changes: readonly LayerChange[];
  /** First step after the change, where the mark is drawn. */
  step: number;
  /** Change of the bytes of trainable weights; those of frozen weights change by as much the other way. */
  trainable_weight_delta: number;
  optimizer_delta: number;
  /** Highest measured peak of the steps before and after, and its step; null where there are none. */
  peak_before: number | null;
  peak_after: number | null;
  step_before: number | null;
  step_after: number | null;
}

export const isFreezing = (effect: ChangeEffect): boolean =>
  effect.changes.some((change) => change.became_trainable.length > 0 || change.became_frozen.length > 0);

function grouped(changes: readonly LayerChange[]): LayerChange[][] {
  const groups: LayerChange[][] = [];
  for (const change of changes) {
    const last = groups.at(-1);
    if (last && change.step <= (last.at(-1) as LayerChange).step + 1) last.push(change);
    else groups.push([change]);
  }
  return groups;
}

/** The layer table at the start: of neighbouring ones the last, since the first step builds the optimizer. */
export const initialTable = ({ changes }: Pick<Overview, "changes">): LayerChange | null => grouped(changes)[0]?.at(-1) ?? null;

/** The effect of every change except the first, which is the start of the recording. */
export function effects(overview: Overview): ChangeEffect[] {
  const groups = grouped(overview.changes);
  return groups.slice(1).map((changes, index) => {
    const before = (groups[index] as LayerChange[]).at(-1) as LayerChange;
    const first = changes[0] as LayerChange;
    const last = changes.at(-1) as LayerChange;
    return {
      changes,
      step: first.step,
      trainable_weight_delta: last.trainable_weight_bytes - before.trainable_weight_bytes,
      optimizer_delta: last.optimizer_bytes - before.optimizer_bytes,
      peak_before: first.peak_before_bytes,
      peak_after: first.peak_after_bytes,
      step_before: first.peak_before_step,
      step_after: first.peak_after_step,
    };
  });
}

/** "block5_conv1" or "3 layers". The server names layers with weights only. */
const named = (paths: readonly string[]): string => (paths.length === 1 ? shortName(paths[0] ?? "") : plural(paths.length, "layer"));

function changeTitle({ became_trainable: unfrozen, became_frozen: frozen }: LayerChange): string | null {
  const parts: string[] = [];
  if (unfrozen.length > 0) parts.push(`unfroze ${named(unfrozen)}`);
  if (frozen.length > 0) parts.push(`froze ${named(frozen)}`);
  return parts.length > 0 ? parts.join(", ") : null;
}

/** "unfroze 3 layers", for a mark on the chart. */
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
  if (effect.optimizer_delta !== 0) parts.push(`optimizer state ${formatDelta(effect.optimizer_delta)}`);
  if (before !== null && after !== null) {
    parts.push(`measured peak ${formatBytes(before)} → ${formatBytes(after)} (${formatDelta(after - before)})`);
  }
  const what = parts.length > 0 ? `${capital(parts.join("; "))}.` : "No effect on memory was measured.";
  return `Step ${effect.step}: ${reasons}. ${what}`;
}

/** The choices that show a run before and after a change, at the steps whose peaks the sentence names; null where a side is unknown. */
export function comparison({ step_before: step, step_after: otherStep }: ChangeEffect, run: string) {
  if (step === null || otherStep === null) return null;
  return { view: "compare", primary: run, step, other: run, otherStep } as const;
}
