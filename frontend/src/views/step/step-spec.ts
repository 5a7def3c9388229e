/** The chart of a step's timeline: stack, passes and peak. Pure. */

import type { Range } from "../../charts/axis";
import type { BandFill, Painter } from "../../charts/paint";
import type { PlotSpec } from "../../charts/plot";
import { ruleAcross } from "../../charts/rules";
import {
  cursorPlaces,
  momentAt,
  orderEdges,
  rangeOfSpan,
  timeEdges,
  timelineLayout,
  type Stretch,
  type TimelineLayout,
} from "../../charts/timeline-layout";
import { STRETCH_HEIGHT, flagPainter, stretchLane, timelineLine, timelinePainter } from "../../charts/timeline-paint";
import { formatBytes } from "../../lib/bytes";
import { groupLabel } from "../../model/categories";
import { NOT_TIED, distinctNames } from "../../model/names";
import { bytesOfLayer, groupSeries, layerSeries, type Series, type Timeline } from "../../model/timeline";
import { bandLabel } from "../../model/timeline-text";
import type { Choices, TimelineAxis, StackName } from "../../state/address";
import { INKS, LAYERS_TOLD_APART, fillOf, layerColour, type Ink, type Scheme } from "../../theme/palette";
import { isMuted, type Focus } from "../shared/focus";
import { AXIS_INKS } from "../shared/frame";

export interface Parts {
  series: readonly Series[];
  labels: readonly string[];
}

export function stepParts(timeline: Timeline, stack: StackName): Parts {
  const series = stack === "category" ? groupSeries(timeline) : layerSeries(timeline, LAYERS_TOLD_APART);
  const layers = series.flatMap(({ layer }) => layer ?? []);
  const names = new Map(distinctNames(layers).map((name, index) => [layers[index] ?? "", name]));
  const labels = series.map(({ key, group, layer }) =>
    group ? groupLabel(group) : layer !== null ? (names.get(layer) ?? layer) : key === "others" ? "other layers" : NOT_TIED,
  );
  return { series, labels };
}

/** The highlighted part of a stack: in a stack of layers, the selected layer. */
export function stepFocus(series: readonly Series[], focus: Focus, layer: string | null): Focus {
  if (series.some(({ group }) => group !== null)) return focus;
  const selected = series.find((part) => layer !== null && part.layer === layer)?.key ?? null;
  return { hovered: focus.hovered ?? selected, category: null };
}

/** Fills of the parts; while one is highlighted, the others are paler. */
export function stepFills(series: readonly Series[], focus: Focus, scheme: Scheme): BandFill[] {
  return series.map(({ key, group, layer }, place) => {
    const muted = isMuted(focus, [key], group?.category ?? null);
    if (group) return { ...fillOf(group.category, group.trainable, scheme), muted };
    if (layer !== null) return { colour: layerColour(place, scheme), pattern: "plain", muted };
    return { colour: INKS[scheme].faint, pattern: key === "others" ? "plain" : "diagonal", muted };
  });
}

/** Stretches above the plot: the passes, and above them the compiled modules. */
export function lanesOf(timeline: Timeline, edges: Float64Array): Stretch[][] {
  const stretch = (start: number, end: number, labels: readonly string[]): Stretch => ({
    from: edges[start] ?? 0,
    to: edges[end] ?? 0,
    labels,
  });
  const bands = timeline.bands.map(({ name, start, end }) => stretch(start, end, [bandLabel(name)]));
  const labels = ["XLA buffer assignment: order known, times unknown", "XLA"];
  const compiled = timeline.compiled.map(({ start, end }) => stretch(start, end, labels));
  return [bands, compiled].filter((lane) => lane.length > 0);
}

/** Where the peak is, and how high. */
export const peakFlag = (timeline: Timeline, { edges }: TimelineLayout): { x: number; label: string } => ({
  x: edges[timeline.peak] ?? 0,
  label: `peak ${formatBytes(timeline.in_use_bytes)}`,
});

export interface StepPicture extends Parts {
  spec: PlotSpec;
  layout: TimelineLayout;
  fills: readonly BandFill[];
}

type StepChoices = Pick<Choices, "timelineAxis" | "span" | "layer" | "stack">;

const edgesOf = (timeline: Timeline, axis: TimelineAxis): Float64Array =>
  axis === "time" ? timeEdges(timeline.time_ns, timeline.duration_ns) : orderEdges(timeline.moments);

/** Height above the plot for so many lanes, in CSS pixels. */
const headroom = (lanes: number): number => 10 + lanes * (STRETCH_HEIGHT + 3);

function highestIn({ edges, total }: TimelineLayout, range: Range): number {
  let most = 1;
  for (let moment = momentAt(edges, range[0]); moment < total.length && (edges[moment] ?? 0) <= range[1]; moment += 1)
    most = Math.max(most, total[moment] ?? 0);
  return most;
}

interface Look {
  choices: StepChoices;
  fills: readonly BandFill[];
  ink: Ink;
}

/** The painters of the plot, in order. */
function paintersOf(timeline: Timeline, layout: TimelineLayout, range: Range, { choices, fills, ink }: Look): Painter[] {
  const flag = peakFlag(timeline, layout);
  const ofLayer = choices.stack === "category" && choices.layer !== null ? bytesOfLayer(timeline, choices.layer) : null;
  return [
    timelinePainter(layout, range, fills, ink.background),
    ...timeline.bands.slice(1).map(({ start }) => ruleAcross(layout.edges[start] ?? 0, ink.faint, [3, 3])),
    timelineLine(layout, layout.total, range, ink.line, 1.25),
    ...(ofLayer ? [timelineLine(layout, ofLayer, range, ink.accent, 2)] : []),
    ruleAcross(flag.x, ink.accent, [5, 3]),
    flagPainter(flag.x, flag.label, ink.text, ink.background),
  ];
}

export function stepPicture(timeline: Timeline, parts: Parts, choices: StepChoices, scheme: Scheme, focus: Focus): StepPicture {
  const ink = INKS[scheme];
  const edges = edgesOf(timeline, choices.timelineAxis);
  const layout = timelineLayout(
    edges,
    parts.series.map(({ bytes }) => bytes),
  );
  const range = rangeOfSpan(edges, choices.span);
  const fills = stepFills(parts.series, stepFocus(parts.series, focus, choices.layer), scheme);
  const lanes = lanesOf(timeline, edges);
  const laneInks = { ground: ink.panel, shade: ink.idle, text: ink.text };
  const spec: PlotSpec = {
    x: cursorPlaces(edges, range),
    xKind: choices.timelineAxis === "time" ? "milliseconds" : "event index",
    range,
    yKind: "bytes",
    yMax: highestIn(layout, range) * 1.14,
    headroom: headroom(lanes.length),
    inks: AXIS_INKS[scheme],
    rowAt: (x) => momentAt(edges, x),
    painters: paintersOf(timeline, layout, range, { choices, fills, ink }),
    lanes: lanes.map((stretches, lane) => stretchLane(stretches, lane, laneInks)),
  };
  return { ...parts, spec, layout, fills };
}
