/** The chart of a layer's bytes over traced steps. Pure. */

import { cellEdges, xValues, type Range } from "../../charts/axis";
import type { PlotSpec } from "../../charts/plot";
import { stackLayout } from "../../charts/stack-layout";
import { CATEGORIES, type Category } from "../../model/categories";
import type { LedgerTotals } from "../../model/ledger-totals";
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

export interface Look {
  choices: Choices;
  scheme: Scheme;
  focus: Focus;
  /** First and last step of the run, null if unknown. */
  span: readonly [number, number] | null;
}

export function layerSpec({ step, wall_time, parts }: LayerSteps, { choices, scheme, focus, span }: Look): PlotSpec {
  const x = xValues(choices.axis, step, wall_time, wall_time[0] ?? 0);
  const stack = stackLayout(
    x,
    parts.map(({ bytes }) => bytes),
  );
  const range: Range = rangeOfSome(step, x, choices, span) ?? rangeOf(x.length > 1 ? x : cellEdges(x));
  // As in the overview, a traced step covers the steps up to the next one; the first also covers those before it.
  const edges = stack.edges.map((edge, index, all) =>
    index === 0 ? Math.min(edge, range[0]) : index === all.length - 1 ? Math.max(edge, range[1]) : (x[index] ?? edge),
  );
  const layout = { ...stack, edges };
  const fills = parts.map(({ category }) => ({ ...fillOf(category, null, scheme), muted: isMuted(focus, [category], category) }));
  const full = [...x].map((place) => [place, place] as const);
  return stackSpec({ x, xKind: choices.axis, range, layout, fills, full }, scheme);
}
