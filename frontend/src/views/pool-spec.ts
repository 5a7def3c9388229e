/** The pool over the steps: how much of it is used, how its free part is split, and the regions it consists of. Pure. */

import { byteRange, cellEdges, xValues, type Range } from "../charts/axis";
import { barsPainter, betweenPainter, labelsPainter, type BandLabel } from "../charts/band-paint";
import { pointsPainter, stackPainter, stepPainter, type BandFill } from "../charts/paint";
import type { PlotSpec } from "../charts/plot";
import { capacityPainter } from "../charts/rules";
import { stackLayout } from "../charts/stack-layout";
import { formatBytes } from "../lib/bytes";
import { MAYBE, THERE, type PoolFacts, type PoolSteps } from "../model/pool";
import type { WordName } from "../model/words";
import type { Choices } from "../state/address";
import { INKS, ageColour, type Fill, type Scheme } from "../theme/palette";
import { rangeOf, rangeOfSome } from "./frame";
import { AXIS_INKS, highest, lastKnown } from "./overview-spec";

export type PoolSeries = keyof PoolFacts & WordName;

export const SIZES = ["pool_bytes", "in_use_bytes", "idle", "free_largest", "free_rest"] as const satisfies readonly PoolSeries[];
export const RATIOS = ["utilisation", "fragmentation"] as const satisfies readonly PoolSeries[];

const COLOURS: Record<Scheme, Partial<Record<keyof PoolFacts, string>>> = {
  light: { in_use_bytes: "#2453b8", free_largest: "#0f8a60", free_rest: "#b9650b", utilisation: "#2453b8", fragmentation: "#b9650b" },
  dark: { in_use_bytes: "#7ba2f5", free_largest: "#4fd0a0", free_rest: "#f7b552", utilisation: "#7ba2f5", fragmentation: "#f7b552" },
};

export const seriesColour = (name: keyof PoolFacts, scheme: Scheme): string => {
  const ink = INKS[scheme];
  return COLOURS[scheme][name] ?? (name === "idle" ? ink.idle : ink.line);
};

export const seriesFill = (name: keyof PoolFacts, scheme: Scheme): Fill => ({
  colour: seriesColour(name, scheme),
  pattern: name === "free_rest" ? "diagonal" : "plain",
});

interface Frame {
  common: Omit<PlotSpec, "yKind" | "yMax" | "painters">;
  edges: Float64Array;
  range: Range;
}

function frameOf(pool: PoolSteps, choices: Choices, scheme: Scheme, span: readonly [number, number] | null): Frame {
  const x = xValues(choices.axis, pool.step, pool.wall_time, pool.wall_time.find((time) => !Number.isNaN(time)) ?? 0);
  const edges = cellEdges(x);
  const range = rangeOfSome(pool.step, x, choices, span) ?? rangeOf(edges);
  return { common: { x, xKind: choices.axis, range, headroom: 8, inks: AXIS_INKS[scheme], lanes: [] }, edges, range };
}

const where = (column: Float64Array, keep: (row: number) => boolean): Float64Array => column.map((value, row) => (keep(row) ? value : NaN));

const sum = (...columns: readonly Float64Array[]): Float64Array =>
  (columns[0] as Float64Array).map((_, row) => columns.reduce((total, column) => total + (column[row] as number), 0));

/** Rows of traced steps. */
const tracedRows = ({ pool_source, sources }: PoolSteps): number[] => {
  const traced = sources.indexOf("traced");
  return Array.from(pool_source.keys()).filter((row) => pool_source[row] === traced);
};

/** Upper bounds that are more than "up to the limit": those that a later traced step gives. */
const told = ({ pool_high_bytes: high, capacity_bytes: capacity, pool_low_bytes: low }: PoolSteps): Float64Array =>
  high.map((value, row) => (value === low[row] || value < (capacity[row] as number) || Number.isNaN(capacity[row]) ? value : NaN));

/** Height of what stands for "or more", of the chart's. */
const OR_MORE = 0.05;

export function sizesSpec(pool: PoolSteps, choices: Choices, scheme: Scheme, span: readonly [number, number] | null): PlotSpec {
  const { common, edges, range } = frameOf(pool, choices, scheme, span);
  const { background, faint, idle, line, capacity: capacityInk } = INKS[scheme];
  const { peak_bytes: used, pool_low_bytes: low, pool_high_bytes: high } = pool;
  const capacity = lastKnown(pool.capacity_bytes);
  const top = Math.max(...[used, low, told(pool)].map((column) => highest(column, common.x, range)));
  const { max, capacityInside } = byteRange(top, capacity);
  const known = (row: number): boolean => low[row] === high[row];
  const traced = tracedRows(pool);
  const fill = (name: keyof PoolFacts): BandFill => ({ ...seriesFill(name, scheme), muted: false });
  const plain: BandFill = { colour: idle, pattern: "plain", muted: false };
  const unknown: BandFill = { colour: faint, pattern: "hatched", muted: false };
  // Up to the limit says little: only that there may have been more.
  const upper = told(pool).map((value, row) => (Number.isNaN(value) ? (low[row] as number) + OR_MORE * max : value));
  const split = sum(
    low,
    pool.largest_free_bytes.map((value) => -value),
  );
  const solid = { colour: line, width: 1.5, dash: [] };
  const open = { colour: faint, width: 1.25, dash: [4, 3] };
  const painters = [
    betweenPainter(
      edges,
      used.map(() => 0),
      used,
      fill("in_use_bytes"),
      background,
      0.3,
    ),
    betweenPainter(edges, used, low, plain, background, 1),
    betweenPainter(
      edges,
      low,
      where(upper, (row) => !known(row)),
      unknown,
      background,
      0.45,
    ),
    barsPainter(edges, traced, used, split, fill("free_rest"), background),
    barsPainter(edges, traced, split, low, fill("free_largest"), background),
    stepPainter(
      edges,
      where(low, (row) => !known(row)),
      open,
    ),
    stepPainter(
      edges,
      where(told(pool), (row) => !known(row)),
      open,
    ),
    stepPainter(edges, used, { colour: seriesColour("in_use_bytes", scheme), width: 1.75, dash: [] }),
    stepPainter(edges, where(low, known), solid),
  ];
  if (capacity !== null) painters.push(capacityPainter(capacity, `capacity ${formatBytes(capacity)}`, capacityInside, capacityInk));
  return { ...common, yKind: "bytes", yMax: max, painters };
}

export function ratiosSpec(pool: PoolSteps, choices: Choices, scheme: Scheme, span: readonly [number, number] | null): PlotSpec {
  const { common, edges } = frameOf(pool, choices, scheme, span);
  const { peak_bytes: used, pool_low_bytes: low, pool_high_bytes: high } = pool;
  const utilisation = used.map((value, row) => (low[row] === high[row] && low[row] ? value / (low[row] as number) : NaN));
  const colour = (name: keyof PoolFacts): string => seriesColour(name, scheme);
  const painters = [
    stepPainter(edges, utilisation, { colour: colour("utilisation"), width: 1.75, dash: [] }),
    pointsPainter(common.x, pool.fragmentation, { colour: colour("fragmentation"), width: 1.5, dash: [] }),
  ];
  return { ...common, yKind: "share", yMax: 1.04, painters };
}

export const bandColour = (index: number, count: number, scheme: Scheme): string =>
  ageColour(count < 2 ? 0.3 : index / (count - 1), scheme);

/** Sizes of the bands at every row, where they were there with at least that certainty. */
const bandsAt = ({ bands, there }: PoolSteps, least: number): Float64Array[] =>
  bands.map(({ bytes }, index) => (there[index] as Float64Array).map((state) => (state >= least ? bytes : 0)));

function bandLabels({ bands, there }: PoolSteps, edges: Float64Array, tops: readonly Float64Array[], range: Range): BandLabel[] {
  return bands.flatMap(({ bytes, region }, index): BandLabel[] => {
    const inside = (row: number): boolean => (edges[row] as number) < range[1] && (edges[row + 1] as number) > range[0];
    const row = (there[index] as Float64Array).findLastIndex((state, at) => state === THERE && inside(at));
    if (row < 0) return [];
    const low = tops[index - 1]?.[row] ?? 0;
    const text = region || bands.length === 1 ? formatBytes(bytes) : `${formatBytes(bytes)} in regions`;
    return [{ text, right: Math.min(edges[row + 1] as number, range[1]), low, high: tops[index]?.[row] ?? low }];
  });
}

/** The pool's regions as bands, the oldest at the bottom; pale where one may have come already. */
export function regionsSpec(pool: PoolSteps, choices: Choices, scheme: Scheme, span: readonly [number, number] | null): PlotSpec {
  const { common, edges, range } = frameOf(pool, choices, scheme, span);
  const { background, text } = INKS[scheme];
  const fills = (muted: boolean): BandFill[] =>
    pool.bands.map((_, index) => ({ colour: bandColour(index, pool.bands.length, scheme), pattern: "plain", muted }));
  const [possible, certain] = [MAYBE, THERE].map((least) => stackLayout(common.x, bandsAt(pool, least))) as [
    ReturnType<typeof stackLayout>,
    ReturnType<typeof stackLayout>,
  ];
  const top = highest(possible.tops.at(-1) ?? new Float64Array(), common.x, range);
  return {
    ...common,
    yKind: "bytes",
    yMax: Math.max(top, 1) * 1.08,
    painters: [
      stackPainter(possible, fills(true), "all", background),
      stackPainter(certain, fills(false), "all", background),
      labelsPainter(bandLabels(pool, edges, certain.tops, range), text, background),
    ],
  };
}
