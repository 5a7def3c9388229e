/** Two steps, of one run or of two, side by side: by category and by layer. */

import { isMinor, formatBytes, formatDelta, grouped } from "../lib/bytes";
import { categoryMeaning, groupKey, groupLabel, stackOrder } from "./categories";
import type { LayerFigures } from "./layers";
import type { Part } from "./overview";
import { CATEGORIES, type Category, type Group } from "../schema";

export interface GroupSums {
  group: Group;
  bytes: number[];
}

export function groupSums(
  sides: readonly (readonly Pick<Part, "group" | "bytes">[])[],
): GroupSums[] {
  const all = new Map<string, GroupSums>();
  sides.forEach((parts, side) => {
    for (const { group, bytes } of parts) {
      const sums = all.get(groupKey(group)) ?? { group, bytes: sides.map(() => 0) };
      sums.bytes[side] = (sums.bytes[side] ?? 0) + (bytes ?? 0);
      all.set(groupKey(group), sums);
    }
  });
  return [...all.values()].sort((a, b) => stackOrder(a.group) - stackOrder(b.group));
}

export interface GroupDelta {
  group: Group;
  /** Of optimizers that the program uses or no longer uses, where a side has slots of such. */
  part?: "current" | "earlier";
  from: number;
  to: number;
  delta: number;
}

const EARLIER_MEANING = "slots of optimizers that the program no longer uses";

export const deltaKey = ({ group, part }: GroupDelta): string =>
  part ? `${groupKey(group)}:${part}` : groupKey(group);
export const deltaLabel = ({ group, part }: GroupDelta): string =>
  part ? `optimizer, ${part}` : groupLabel(group);
export const deltaMeaning = ({ group, part }: GroupDelta): string =>
  part === "earlier" ? EARLIER_MEANING : categoryMeaning(group.category);

/**
 * In stack order; `earlier` are the bytes of each side's slots of earlier optimizers, which are a
 * row of their own.
 */
export const groupDeltas = (
  from: readonly Part[],
  to: readonly Part[],
  earlier: readonly [number, number] = [0, 0],
): GroupDelta[] =>
  groupSums([from, to]).flatMap(({ group, bytes: [before = 0, after = 0] }): GroupDelta[] => {
    const row = (a: number, b: number) => ({ group, from: a, to: b, delta: b - a });
    if (group.category !== "optimizer_state" || Math.max(...earlier) === 0)
      return [row(before, after)];
    const stayed = [Math.min(earlier[0], before), Math.min(earlier[1], after)] as const;
    return [
      { ...row(before - stayed[0], after - stayed[1]), part: "current" },
      { ...row(...stayed), part: "earlier" },
    ];
  });

/**
 * The differences that matter, in stack order, and the sum of the others: none if it would be of a
 * single one.
 */
export function foldDeltas(deltas: readonly GroupDelta[]): {
  shown: GroupDelta[];
  folded: { count: number; from: number; to: number; delta: number } | null;
} {
  const total = (side: "from" | "to"): number => deltas.reduce((sum, one) => sum + one[side], 0);
  const whole = Math.max(total("from"), total("to"));
  const small = deltas.filter(({ delta }) => isMinor(delta, whole));
  if (small.length < 2) return { shown: [...deltas], folded: null };
  const folded = { count: small.length, from: 0, to: 0, delta: 0 };
  for (const { from, to, delta } of small) {
    folded.from += from;
    folded.to += to;
    folded.delta += delta;
  }
  return { shown: deltas.filter((one) => !small.includes(one)), folded };
}

type Match = "path" | "type and shape" | "only in A" | "only in B";

export interface LayerDelta {
  match: Match;
  from: LayerFigures | null;
  to: LayerFigures | null;
  delta: number;
  main: { category: Category; delta: number } | null;
}

const kindOf = ({ type, output_shape, output_dtype, parameters }: LayerFigures): string | null =>
  type === null
    ? null
    : JSON.stringify([type, output_shape?.slice(1) ?? null, output_dtype, parameters]);

function deltaOf(match: Match, from: LayerFigures | null, to: LayerFigures | null): LayerDelta {
  let main: LayerDelta["main"] = null;
  for (const category of CATEGORIES) {
    const delta = (to?.bytes[category] ?? 0) - (from?.bytes[category] ?? 0);
    if (delta !== 0 && Math.abs(delta) > Math.abs(main?.delta ?? 0)) main = { category, delta };
  }
  return { match, from, to, delta: (to?.total ?? 0) - (from?.total ?? 0), main };
}

/**
 * Layers matched by path; those left over by type, shape, dtype and parameters, in the model's
 * order; largest change first.
 */
export function layerDeltas(
  from: readonly LayerFigures[],
  to: readonly LayerFigures[],
): LayerDelta[] {
  const byPath = new Map(to.map((layer) => [layer.path, layer]));
  const left: LayerFigures[] = [];
  const deltas: LayerDelta[] = [];
  for (const layer of from) {
    const same = byPath.get(layer.path);
    if (same) deltas.push(deltaOf("path", layer, same));
    else left.push(layer);
    byPath.delete(layer.path);
  }
  const byKind = grouped(byPath.values(), kindOf);
  for (const layer of left) {
    const kind = kindOf(layer);
    const alike = kind === null ? undefined : byKind.get(kind)?.shift();
    if (alike) byPath.delete(alike.path);
    deltas.push(
      alike ? deltaOf("type and shape", layer, alike) : deltaOf("only in A", layer, null),
    );
  }
  for (const layer of byPath.values()) deltas.push(deltaOf("only in B", null, layer));
  return deltas.sort((a, b) => Math.abs(b.delta) - Math.abs(a.delta));
}

export function matchCounts(deltas: readonly LayerDelta[]): Record<Match, number> {
  const counts: Record<Match, number> = {
    path: 0,
    "type and shape": 0,
    "only in A": 0,
    "only in B": 0,
  };
  for (const { match, from, to } of deltas) if ((from ?? to)?.path !== null) counts[match] += 1;
  return counts;
}

type Weights = ReturnType<typeof weightsOf>;

/**
 * All weights together. The same weights frozen on one side and trainable on the other are no
 * change of their bytes.
 */
function weightsOf(deltas: readonly GroupDelta[]) {
  const own = deltas.filter(({ group }) => group.category === "weights");
  const change = (trainable: boolean): number =>
    own.find(({ group }) => group.trainable === trainable)?.delta ?? 0;
  const [frozen, trainable] = [change(false), change(true)];
  const opposite = frozen * trainable < 0;
  return {
    from: own.reduce((sum, { from }) => sum + from, 0),
    to: own.reduce((sum, { to }) => sum + to, 0),
    moved: opposite ? Math.sign(frozen) * Math.min(Math.abs(frozen), Math.abs(trainable)) : 0,
  };
}

/** What follows on the difference of the peaks. */
function weightsSentence({ from, to, moved }: Weights, sameRun: boolean, who: string): string {
  if (moved === 0) return ".";
  const total = from === to ? "" : ` Weights ${formatDelta(to - from)}.`;
  const state = moved > 0 ? "frozen" : "trainable";
  const bytes = formatBytes(Math.abs(moved));
  return sameRun
    ? `.${total} ${bytes} of weights became ${state}.`
    : `,${who} with ${bytes} more ${state} weights.${total}`;
}

/** "B needs 180 MiB more than A."; `a` and `b` are the measured peaks. */
export function differenceSentence(
  deltas: readonly GroupDelta[],
  a: number | null,
  b: number | null,
  sameRun: boolean,
): string {
  if (a === null || b === null) return "The peak of A or B is unknown: it was not measured.";
  const weights = weightsOf(deltas);
  const isSame =
    weights.from === weights.to &&
    deltas.every(({ group, delta }) => delta === 0 || group.category === "weights");
  if (a === b && isSame && weights.moved === 0)
    return "A and B use the same memory. Choose another run or step above.";
  const head =
    a === b
      ? "A and B have the same peak"
      : `B needs ${formatBytes(Math.abs(b - a))} ${b > a ? "more" : "less"} than A`;
  return `${head}${weightsSentence(weights, sameRun, a === b ? " B" : "")}`;
}
