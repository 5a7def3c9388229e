/** The overview's picture: the stack of one run, the peaks of the others. Pure. */

import { byteRange, cellEdges, xValues, type Range } from "../charts/axis";
import { diamondsPainter, stackPainter, stepPainter, type BandFill, type Painter } from "../charts/paint";
import type { PlotSpec } from "../charts/plot";
import { capacityPainter } from "../charts/rules";
import { markedSpans, stackLayout, type StackLayout } from "../charts/stack-layout";
import { formatBytes } from "../lib/bytes";
import { lowerBound } from "../lib/search";
import { groupKey } from "../model/categories";
import { effects } from "../model/changes";
import { at, type Overview } from "../model/overview";
import type { Choices } from "../state/address";
import { CATEGORY_COLOURS, INKS, fillOf, type Scheme } from "../theme/palette";
import { isMuted, type Focus } from "./focus";
import { changeRules, epochLane, headroom, placesOf, rangeOf, startOf, type Places } from "./frame";

export interface OtherRun {
  overview: Overview;
  colour: string;
  dash: readonly number[];
}

export interface Picture {
  spec: PlotSpec;
  places: Places;
  layout: StackLayout;
}

/** The highest value of a column between two places. */
export function highest(column: Float64Array, x: Float64Array, range: Range): number {
  let most = 0;
  for (let row = lowerBound(x, range[0]); row < x.length && (x[row] as number) <= range[1]; row += 1) {
    const value = column[row] as number;
    if (value > most) most = value;
  }
  return most;
}

export const lastKnown = (column: Float64Array): number | null => {
  for (let row = column.length - 1; row >= 0; row -= 1) {
    const value = at(column, row);
    if (value !== null) return value;
  }
  return null;
};

export function stackFills(overview: Overview, focus: Focus, scheme: Scheme): BandFill[] {
  return overview.groups.map((group) => ({
    ...fillOf(group.category, group.trainable, scheme),
    muted: isMuted(focus, [groupKey(group)], group.category),
  }));
}

function otherLines(
  others: readonly OtherRun[],
  choices: Choices,
): { painters: Painter[]; ranges: Range[]; peaks: (range: Range) => number } {
  const lines = others.map(({ overview, colour, dash }) => {
    const x = xValues(choices.axis, overview.step, overview.wall_time, startOf(overview));
    const edges = cellEdges(x);
    return { overview, x, edges, painter: stepPainter(edges, overview.peak_bytes, { colour, width: 1.75, dash }) };
  });
  return {
    painters: lines.map(({ painter }) => painter),
    ranges: lines.filter(({ x }) => x.length > 0).map(({ edges }) => rangeOf(edges)),
    peaks: (range) => Math.max(0, ...lines.map(({ overview, x }) => highest(overview.peak_bytes, x, range))),
  };
}

function union(ranges: readonly Range[]): Range {
  return [Math.min(...ranges.map(([from]) => from)), Math.max(...ranges.map(([, to]) => to))];
}

export function overviewPicture(
  overview: Overview,
  start: number,
  others: readonly OtherRun[],
  choices: Choices,
  scheme: Scheme,
  focus: Focus,
  /** Whether to draw what is left in use when a step ends: there a growth shows. */
  ended = false,
): Picture {
  const ink = INKS[scheme];
  const alone = placesOf(overview, start, choices);
  const lines = otherLines(others, choices);
  const range = choices.zoom === null ? union([alone.range, ...lines.ranges]) : alone.range;
  const places: Places = { ...alone, range };
  const layout = stackLayout(places.x, overview.bytes);
  const capacity = lastKnown(overview.capacity_bytes);
  const validations = overview.validations
    .filter(({ peak_bytes }) => peak_bytes !== null)
    .map(({ after_step, peak_bytes }) => ({ x: places.x[lowerBound(overview.step, after_step)] ?? NaN, y: peak_bytes ?? 0 }))
    .filter(({ x }) => !Number.isNaN(x));
  const peak = Math.max(highest(overview.peak_bytes, places.x, range), lines.peaks(range), ...validations.map(({ y }) => y));
  const { max, capacityInside } = byteRange(peak, capacity);
  const painters: Painter[] = [
    stackPainter(layout, stackFills(overview, focus, scheme), markedSpans(places.x, places.edges, overview.traced), ink.background),
    ...changeRules(overview, places, choices.axis, ink),
    ...lines.painters,
    ...(ended ? [stepPainter(places.edges, overview.in_use_bytes, { colour: ink.line, width: 1.25, dash: [2, 3] })] : []),
    stepPainter(places.edges, overview.peak_bytes, { colour: ink.line, width: 1.5, dash: [] }),
  ];
  if (capacity !== null) painters.push(capacityPainter(capacity, `capacity ${formatBytes(capacity)}`, capacityInside, ink.capacity));
  const lane = overview.epochs.length > 0;
  const notch = CATEGORY_COLOURS[scheme].inputs;
  return {
    places,
    layout,
    spec: {
      x: places.x,
      xKind: choices.axis,
      range,
      yKind: "bytes",
      yMax: max,
      headroom: headroom(effects(overview).length > 0, lane),
      inks: AXIS_INKS[scheme],
      painters,
      lanes: [
        ...(lane ? [epochLane(overview, places, choices.axis, ink, notch)] : []),
        diamondsPainter(validations, notch, ink.background),
      ],
    },
  };
}

/** The same object for every spec of a scheme, so that a plot knows whether its colours changed. */
export const AXIS_INKS: Record<Scheme, PlotSpec["inks"]> = {
  light: { text: INKS.light.faint, grid: INKS.light.grid },
  dark: { text: INKS.dark.faint, grid: INKS.dark.grid },
};
