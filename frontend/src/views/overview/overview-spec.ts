/** The overview's chart: the stack of one run, the peaks of the others. Pure. */

import { byteRange, xValues, type Range } from "../../charts/axis";
import { stackLayout } from "../../charts/layout";
import { diamondsPainter, stackPainter, stepPainter, type BandFill, type Painter } from "../../charts/paint";
import { groupKey } from "../../model/categories";
import { effects, type Overview } from "../../model/overview";
import type { Choices } from "../../state/address";
import { INKS, fillOf, type Scheme } from "../../theme/palette";
import { isMuted, type Focus } from "../shared/focus";
import {
  AXIS_INKS,
  capacityPainters,
  changeRules,
  edgesOf,
  epochLane,
  headroom,
  highest,
  placesOf,
  rangeOf,
  startOf,
  tracedSpans,
  validationPoints,
  type Picture,
  type Places,
} from "../shared/frame";

export interface OtherRun {
  overview: Overview;
  colour: string;
  dash: readonly number[];
}

function stackFills(overview: Overview, focus: Focus, scheme: Scheme): BandFill[] {
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
    const edges = edgesOf(x, choices.axis, overview.phase, overview.epochs[0]?.first_step ?? null);
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
  /** Whether to draw the bytes in use at step end, which show growth. */
  ended = false,
): Picture {
  const ink = INKS[scheme];
  const alone = placesOf(overview, start, choices);
  const lines = otherLines(others, choices);
  const range = choices.zoom === null ? union([alone.range, ...lines.ranges]) : alone.range;
  const places: Places = { ...alone, range };
  const layout = { ...stackLayout(places.x, overview.bytes), edges: places.edges };
  const capacity = highest(overview.capacity_bytes, places.x, places.range) || null;
  const validations = validationPoints(overview, places, choices.axis);
  const peak = Math.max(highest(overview.peak_bytes, places.x, range), lines.peaks(range), ...validations.map(({ y }) => y));
  const { max, capacityInside } = byteRange(peak, capacity);
  const painters: Painter[] = [
    stackPainter(layout, stackFills(overview, focus, scheme), tracedSpans(places, overview.traced), ink.background),
    ...changeRules(overview, places, choices.axis, ink),
    ...lines.painters,
    ...(ended ? [stepPainter(places.edges, overview.in_use_bytes, { colour: ink.line, width: 1.25, dash: [2, 3] })] : []),
    stepPainter(places.edges, overview.peak_bytes, { colour: ink.line, width: 1.5, dash: [] }),
  ];
  painters.push(...capacityPainters(places.edges, overview.capacity_bytes, capacityInside, ink));
  const lane = overview.epochs.length > 0;
  const notch = ink.text;
  return {
    places,
    layout,
    spec: {
      x: places.x,
      xKind: choices.axis,
      range,
      yKind: "bytes",
      yMax: max,
      headroom: headroom(effects(overview).length + overview.failures.length > 0, lane),
      inks: AXIS_INKS[scheme],
      ...(places.rowAt && { rowAt: places.rowAt }),
      painters,
      lanes: [
        ...(lane ? [epochLane(overview, places, choices.axis, ink, notch)] : []),
        diamondsPainter(validations, notch, ink.background),
      ],
    },
  };
}
