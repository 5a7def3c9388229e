/** The chart of a layer's bytes over traced steps. Pure. */

import { cellEdges, xValues, type Range } from "../../charts/axis";
import { stackLayout } from "../../charts/layout";
import type { PlotSpec } from "../../charts/plot";
import { CATEGORIES, type Category } from "../../model/categories";
import type { LedgerTotals } from "../../model/snapshot";
import type { Choices } from "../../state/address";
import { fillOf, type Scheme } from "../../theme/palette";
import { isMuted, type Focus } from "../shared/focus";
import { rangeOf, rangeOfSome } from "../shared/frame";
import { stackSpec } from "../shared/stack-spec";

export interface LayerSteps {
  step: Float64Array;
  wall_time: Float64Array;
  /** Of the whole device. */
  in_use_bytes: Float64Array;
  /** By category, at each of the steps; categories that the layer never uses are left out. */
  parts: { category: Category; bytes: Float64Array }[];
}

/** The totals by category alone: whether it was trainable changes over the steps, the category of its bytes does not. */
export function layerSteps(totals: LedgerTotals): LayerSteps {
  const { step, wall_time, in_use_bytes, groups } = totals;
  const summed = (category: Category): Float64Array =>
    Float64Array.from(step, (_, row) =>
      groups.reduce((sum, group, index) => sum + (group.category === category ? (totals.bytes[index]?.[row] ?? 0) : 0), 0),
    );
  const parts = CATEGORIES.map((category) => ({ category, bytes: summed(category) }));
  return { step, wall_time, in_use_bytes, parts: parts.filter(({ bytes }) => bytes.some((value) => value > 0)) };
}

export const totalOf = ({ parts }: LayerSteps, row: number): number => parts.reduce((sum, { bytes }) => sum + (bytes[row] ?? 0), 0);

/** What the layer uses at a step, the top of the stack first. */
export const usedAt = ({ parts }: LayerSteps, row: number): { category: Category; bytes: number }[] =>
  [...parts]
    .reverse()
    .map(({ category, bytes }) => ({ category, bytes: bytes[row] ?? 0 }))
    .filter(({ bytes }) => bytes > 0);

interface Look {
  choices: Choices;
  scheme: Scheme;
  focus: Focus;
  /** The first step that each traced step describes. */
  firstSteps: readonly number[];
  /** First and last step of the run, null if unknown. */
  span: readonly [number, number] | null;
}

/**
 * Where the traced steps' areas begin and end. As in the overview, each covers the steps from the first one that it describes; the first
 * also covers those before it.
 */
export const layerEdges = (
  edges: Float64Array,
  x: Float64Array,
  step: Float64Array,
  firstSteps: readonly number[],
  range: Range,
): Float64Array =>
  edges.map((edge, index) => {
    if (index === 0) return Math.min(edge, range[0]);
    if (index === edges.length - 1) return Math.max(edge, range[1]);
    const [before, own] = [step[index - 1] as number, step[index] as number];
    const [from, to] = [x[index - 1] as number, x[index] as number];
    return own > before ? to - ((to - from) * (own - (firstSteps[index] ?? own))) / (own - before) : to;
  });

export function layerSpec({ step, wall_time, parts }: LayerSteps, { choices, scheme, focus, firstSteps, span }: Look): PlotSpec {
  const x = xValues(choices.axis, step, wall_time, wall_time[0] ?? 0);
  const stack = stackLayout(
    x,
    parts.map(({ bytes }) => bytes),
  );
  const range: Range = rangeOfSome(step, x, choices, span) ?? rangeOf(x.length > 1 ? x : cellEdges(x));
  const edges = layerEdges(stack.edges, x, step, firstSteps, range);
  const layout = { ...stack, edges };
  const fills = parts.map(({ category }) => ({ ...fillOf(category, null, scheme), muted: isMuted(focus, [category], category) }));
  const full = [...x].map((place) => [place, place] as const);
  return stackSpec({ x, xKind: choices.axis, range, layout, fills, full }, scheme);
}
