/** The difference between A and B as a sentence: the net change first, then what it consists of. */

import { formatBytes, formatDelta } from "../lib/bytes";
import { categoryLabel, groupLabel } from "./categories";
import type { GroupDelta } from "./compare";

/** Named changes. */
const SHOWN = 3;

interface Weights {
  from: number;
  to: number;
  /** Bytes that are frozen on one side and trainable on the other: above 0 if more are frozen in B. */
  moved: number;
}

/** All weights together. The same weights frozen on one side and trainable on the other are no change of their bytes. */
function weightsOf(deltas: readonly GroupDelta[]): Weights {
  const own = deltas.filter(({ group }) => group.category === "weights");
  const change = (trainable: boolean): number => own.find(({ group }) => group.trainable === trainable)?.delta ?? 0;
  const [frozen, trainable] = [change(false), change(true)];
  const opposite = frozen * trainable < 0;
  return {
    from: own.reduce((sum, { from }) => sum + from, 0),
    to: own.reduce((sum, { to }) => sum + to, 0),
    moved: opposite ? Math.sign(frozen) * Math.min(Math.abs(frozen), Math.abs(trainable)) : 0,
  };
}

/** " Equal weights, 27.0 MiB became trainable." */
function weightsSentence({ from, to, moved }: Weights, sameRun: boolean): string {
  if (moved === 0) return "";
  const head = from === to ? "Equal weights" : `Weights ${formatDelta(to - from)}`;
  const state = moved > 0 ? "frozen" : "trainable";
  const bytes = formatBytes(Math.abs(moved));
  return ` ${head}, ${sameRun ? `${bytes} became ${state}` : `${bytes} more ${state} in B`}.`;
}

/**
 * "B needs 180 MiB more than A: activations +98.0 MiB, …"; the changes are not named where a picture beside it shows them. `a` and `b` are
 * the measured peaks.
 */
export function differenceSentence(
  deltas: readonly GroupDelta[],
  a: number | null,
  b: number | null,
  { sameRun, pictured }: { sameRun: boolean; pictured: boolean },
): string {
  if (a === null || b === null) return "The peak of A or B is unknown: it was not measured.";
  const weights = weightsOf(deltas);
  const others = deltas
    .filter(({ group }) => group.category !== "weights")
    .map(({ group, delta }) => ({ label: groupLabel(group), delta }));
  // With moved bytes, weights have a sentence of their own.
  const all = weights.moved === 0 ? [...others, { label: categoryLabel("weights"), delta: weights.to - weights.from }] : others;
  const largest = all.filter(({ delta }) => delta !== 0).sort((x, y) => Math.abs(y.delta) - Math.abs(x.delta));
  if (a === b && largest.length === 0 && weights.moved === 0) return "A and B use the same memory. Choose another run or step above.";
  const head = a === b ? "A and B have the same peak" : `B needs ${formatBytes(Math.abs(b - a))} ${b > a ? "more" : "less"} than A`;
  const named = largest.slice(0, SHOWN).map(({ label, delta }) => `${label} ${formatDelta(delta)}`);
  return `${head}${named.length > 0 && !pictured ? `: ${named.join(", ")}` : ""}.${weightsSentence(weights, sameRun)}`;
}
