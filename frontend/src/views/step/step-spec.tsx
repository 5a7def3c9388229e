/**
 * The chart of a step's timeline: stack, passes and peak; and the same as a saved drawing. Pure.
 */

import { type Range, byteTicks, tickSteps, xLabel, type XKind } from "../../charts/axis";
import { stackLayout, type StackLayout } from "../../charts/layout";
import type { BandFill, Painter } from "../../charts/paint";
import type { PlotSpec } from "../../charts/plot";
import {
  capacityPainter,
  cutsPainter,
  outlinedPainter,
  ruleAcross,
  type Outlined,
} from "../../charts/rules";
import {
  outlinePainter,
  type BlockFills,
  type BlockPainter,
} from "../../charts/timeline-block-paint";
import {
  placedBlocks,
  stackedBlocks,
  blockPaths,
  type BlockPath,
} from "../../charts/timeline-blocks";
import {
  momentAt,
  orderEdges,
  timeEdges,
  STRETCH_HEIGHT,
  flagPainter,
  spanPainter,
  stretchLane,
  timelineLine,
  timelinePainter,
  type Stretch,
  placeStretches,
  timelineCells,
} from "../../charts/timeline-layout";
import { formatBytes } from "../../lib/bytes";
import { groupKey, groupLabel, groupOfOwner } from "../../model/categories";
import type { requestAt } from "../../model/overview";
import { NOT_TIED, namesOf } from "../../model/run";
import {
  bytesOfLayer,
  groupSeries,
  layerSeries,
  type Timeline,
  type Series,
  bandLabel,
} from "../../model/timeline";
import { addressPlaces, stackOrder } from "../../model/timeline-order";
import type { Choices, TimelineAxis, StackName, Placement } from "../../state/address";
import {
  fillOf,
  inks,
  layerColour,
  LAYERS_TOLD_APART,
  type Ink,
  NO_FILL,
} from "../../theme/palette";
import { isMuted, type Focus } from "../shared/context";
import { Patterns, SvgDrawing, svgFill } from "../shared/export";
import type { ChunkOwner } from "../../schema";

type Parting = Exclude<StackName, "tensor">;

export const partingOf = ({
  stack,
  tensorColouring,
}: Pick<Choices, "stack" | "tensorColouring">): Parting =>
  stack === "tensor" ? tensorColouring : stack;

export type Parts = ReturnType<typeof stepParts>;

export function stepParts(timeline: Timeline, stack: Parting) {
  const series =
    stack === "category" ? groupSeries(timeline) : layerSeries(timeline, LAYERS_TOLD_APART);
  const names = namesOf(series.flatMap(({ layer }) => layer ?? []));
  const labels = series.map(({ key, group, layer }) =>
    group
      ? groupLabel(group)
      : layer !== null
        ? (names.get(layer) ?? layer)
        : key === "others"
          ? "other layers"
          : NOT_TIED,
  );
  return { series, labels };
}

export function stepFocus(series: readonly Series[], focus: Focus, layer: string | null): Focus {
  if (series.some(({ group }) => group !== null)) return focus;
  const selected = series.find((part) => layer !== null && part.layer === layer)?.key ?? null;
  return { hovered: focus.hovered ?? selected, category: null };
}

export function stepFills(series: readonly Series[], focus: Focus): BandFill[] {
  return series.map(({ key, group, layer }, place) => {
    const muted = isMuted(focus, [key], group?.category ?? null);
    if (group) return { ...fillOf(group), muted };
    if (layer !== null) return { colour: layerColour(place), pattern: "plain", muted };
    return { colour: inks().faint, pattern: key === "others" ? "plain" : "diagonal", muted };
  });
}

export function partOf(
  series: readonly Series[],
  { layer, category, trainable }: ChunkOwner,
): string {
  if (series.some(({ group }) => group !== null))
    return groupKey(groupOfOwner({ category, trainable }));
  if (layer === null) return "no_layer";
  return series.some((part) => part.layer === layer) ? `layer:${layer}` : "others";
}

export type TensorBlocks = ReturnType<typeof tensorBlocks>;

export const hasAddresses = ({ address }: Timeline): boolean =>
  address.some((value) => !Number.isNaN(value));

export function tensorBlocks(timeline: Timeline, placement: Placement) {
  const addresses = placement === "by address" ? addressPlaces(timeline) : null;
  const blocks = addresses
    ? placedBlocks(timeline, addresses.place, timeline.moments)
    : stackedBlocks(timeline, stackOrder(timeline), timeline.moments);
  return { blocks, addresses };
}

/**
 * Fills of the rows. With a category, a layer or a part highlighted, all other rows are paler: the
 * first half of the fills is that of the parts, the second half the same paler.
 */
export function tensorFills(
  timeline: Timeline,
  series: readonly Series[],
  focus: Focus,
  layer: string | null,
): BlockFills {
  const own = stepFills(series, { hovered: null, category: null });
  const places = new Map(series.map(({ key }, index) => [key, index]));
  const ofOwner = timeline.owners.map((owner) => {
    const key = partOf(series, owner);
    const muted =
      focus.hovered !== null
        ? focus.hovered !== key
        : (focus.category !== null && focus.category !== owner.category) ||
          (layer !== null && layer !== owner.layer);
    return (places.get(key) ?? 0) + (muted ? series.length : 0);
  });
  const unknown = places.get("unattributed") ?? places.get("no_layer") ?? 0;
  const styles = Uint8Array.from(timeline.owner, (owner) => ofOwner[owner] ?? unknown);
  const fills = [...own, ...own.map((fill) => ({ ...fill, muted: true }))];
  return { fills, styles, ground: inks().background };
}

/** Stretches above the plot: the passes, and above them the compiled modules. */
export function lanesOf(timeline: Timeline, edges: Float64Array): Stretch[][] {
  const stretch = (start: number, end: number, labels: readonly string[]): Stretch => ({
    from: edges[start] ?? 0,
    to: edges[end] ?? 0,
    labels,
  });
  const bands = timeline.bands.map(({ name, start, end }) =>
    stretch(start, end, [bandLabel(name)]),
  );
  const labels = ["XLA buffer assignment: order known, times unknown", "XLA"];
  const compiled = timeline.compiled.map(({ start, end }) => stretch(start, end, labels));
  return [bands, compiled].filter((lane) => lane.length > 0);
}

const peakFlag = (timeline: Timeline, { edges }: StackLayout): { x: number; label: string } => ({
  x: edges[timeline.peak] ?? 0,
  label: `peak ${formatBytes(timeline.in_use_bytes)}`,
});

export interface StepLook extends Parts {
  layout: StackLayout;
  fills: readonly BandFill[];
  tensors: (TensorBlocks & { fills: BlockFills }) | null;
  failed: Failed | null;
}

export interface StepPicture extends StepLook {
  spec: PlotSpec;
}

type StepChoices = Pick<Choices, "timelineAxis" | "layer" | "stack">;

type Failed = NonNullable<ReturnType<typeof requestAt>>;

/**
 * A failed step ends with its last event, not with the seconds in which the allocator waited for
 * memory.
 */
const edgesOf = (
  { time_ns, duration_ns, moments }: Timeline,
  axis: TimelineAxis,
  failed: Failed | null,
): Float64Array =>
  axis === "time"
    ? timeEdges(time_ns, failed ? 1.03 * (time_ns.at(-1) ?? 0) : duration_ns)
    : orderEdges(moments);

const headroom = (lanes: number): number => 10 + lanes * (STRETCH_HEIGHT + 3);

function highestIn({ edges, total }: StackLayout, range: Range): number {
  let most = 1;
  for (
    let moment = momentAt(edges, range[0]);
    moment < total.length && (edges[moment] ?? 0) <= range[1];
    moment += 1
  )
    most = Math.max(most, total[moment] ?? 0);
  return most;
}

interface Painting {
  choices: StepChoices;
  /** Keeps the pixels of tensors from paint to paint. */
  painter: BlockPainter;
  selected: readonly number[];
  selection: readonly [number, number] | null;
  moving: boolean;
}

function contentOf(
  timeline: Timeline,
  look: StepLook,
  range: Range,
  { choices, painter, selected, moving }: Painting,
): Painter[] {
  const { layout, fills, tensors } = look;
  const ink = inks();
  const total = timelineLine(layout, layout.total, range, ink.line, 1.25);
  if (!tensors) {
    const ofLayer =
      choices.stack === "category" && choices.layer !== null
        ? bytesOfLayer(timeline, choices.layer)
        : null;
    const line = ofLayer ? [timelineLine(layout, ofLayer, range, ink.accent, 2)] : [];
    return [timelinePainter(layout, range, fills, ink.background), total, ...line];
  }
  const { blocks, addresses } = tensors;
  return [
    painter.painter(blocks, layout, range, tensors.fills, moving),
    ...(addresses ? [cutsPainter(addresses.cuts, ink.faint)] : [total]),
    outlinePainter(blocks, layout, selected, range, { line: ink.accent, ground: ink.background }),
  ];
}

/** The failed request above the last moment; at addresses it has no place. */
const requestAtEnd = ({ failed, tensors, layout: { edges } }: StepLook): Outlined[] =>
  failed && !tensors?.addresses
    ? [{ ...failed, from: edges[edges.length - 2] ?? 0, to: edges[edges.length - 1] ?? 0 }]
    : [];

function paintersOf(
  timeline: Timeline,
  look: StepLook,
  range: Range,
  painting: Painting,
): Painter[] {
  const { layout } = look;
  const ink = inks();
  const flag = peakFlag(timeline, layout);
  const { selection } = painting;
  return [
    ...contentOf(timeline, look, range, painting),
    ...(selection
      ? [
          spanPainter(
            layout.edges[selection[0]] ?? 0,
            layout.edges[selection[1] + 1] ?? 0,
            ink.line,
          ),
        ]
      : []),
    ...timeline.bands
      .slice(1)
      .map(({ start }) => ruleAcross(layout.edges[start] ?? 0, ink.faint, [3, 3])),
    ruleAcross(flag.x, ink.accent, [5, 3]),
    flagPainter(flag.x, flag.label, ink.text, ink.background),
    ...requestAtEnd(look).flatMap(() =>
      capacityPainter(look.failed?.capacity ?? null, true, ink, "left"),
    ),
    ...requestAtEnd(look).flatMap((request) => [
      outlinedPainter(request, ink, "outline"),
      outlinedPainter(request, ink, "label"),
    ]),
  ];
}

export function stepLook(
  timeline: Timeline,
  parts: Parts,
  choices: StepChoices,
  focus: Focus,
  tensors: TensorBlocks | null = null,
  failed: Failed | null = null,
): StepLook {
  const columns = parts.series.map(({ bytes }) => bytes);
  const layout = stackLayout(edgesOf(timeline, choices.timelineAxis, failed), columns);
  const fills = stepFills(parts.series, stepFocus(parts.series, focus, choices.layer));
  if (!tensors) return { ...parts, layout, fills, tensors, failed };
  return {
    ...parts,
    layout,
    fills,
    failed,
    tensors: { ...tensors, fills: tensorFills(timeline, parts.series, focus, choices.layer) },
  };
}

export function stepSpec(
  timeline: Timeline,
  look: StepLook,
  range: Range,
  painting: Painting,
): PlotSpec {
  const { choices } = painting;
  const { edges } = look.layout;
  const ink = inks();
  const lanes = lanesOf(timeline, edges);
  const laneInks = { ground: ink.panel, shade: ink.shade, text: ink.text };
  return {
    x: edges.subarray(0, -1),
    xKind: choices.timelineAxis === "time" ? "milliseconds" : "event index",
    range,
    yMax:
      (look.tensors?.addresses?.height ??
        Math.max(
          highestIn(look.layout, range),
          ...requestAtEnd(look).map(({ from, high }) => (from < range[1] ? high : 0)),
        )) * 1.14,
    headroom: headroom(lanes.length),
    inks: inks(),
    rowAt: (x) => momentAt(edges, x),
    painters: paintersOf(timeline, look, range, painting),
    lanes: lanes.map((stretches, lane) => stretchLane(stretches, lane, laneInks)),
  };
}

const WIDTH = 1200;
const BOX = { left: 84, top: 46, width: 1096, height: 380 };
const GROUND = BOX.top + BOX.height;
const LANE = 18;

const place = (x: number, [from, to]: Range): number =>
  BOX.left + ((x - from) / (to - from)) * BOX.width;

function ticksOf(kind: XKind, [from, to]: Range): { value: number; label: string }[] {
  const step = tickSteps(kind).find((size) => size >= (to - from) / 9) ?? to - from;
  const first = Math.ceil(from / step);
  const count = Math.max(Math.floor(to / step) - first + 1, 0);
  return Array.from({ length: count }, (_, index) => (first + index) * step).map((value) => ({
    value,
    label: xLabel(kind, value),
  }));
}

function Tensors({
  spec,
  layout,
  tensors,
}: StepPicture & { tensors: NonNullable<StepPicture["tensors"]> }) {
  const { blocks, fills } = tensors;
  const box = { left: BOX.left, ground: GROUND, width: BOX.width, scale: BOX.height / spec.yMax };
  return (
    <g data-tensors>
      {blockPaths(blocks, layout, spec.range, box).map(({ row, path }: BlockPath) => {
        const fill: BandFill = fills.fills[fills.styles[row] ?? 0] ?? NO_FILL;
        return <path key={row} d={path} fill={svgFill(fill)} fill-opacity={fill.muted ? 0.3 : 1} />;
      })}
    </g>
  );
}

function Areas({ spec, layout, fills }: StepPicture) {
  const cells = timelineCells(layout, spec.range, BOX.width);
  const [first, last] = [cells[0], cells.at(-1)];
  if (!first || !last) return null;
  const round = (value: number): number => Math.round(value * 100) / 100;
  const y = (value: number): number => round(GROUND - (value / spec.yMax) * BOX.height);
  const paths = layout.tops.map((top) => {
    const steps = cells.map(
      ({ from, to, moment }) =>
        `L${round(BOX.left + from)} ${y(top[moment] ?? 0)}H${round(BOX.left + to)}`,
    );
    return `M${round(BOX.left + first.from)} ${GROUND}${steps.join("")}V${GROUND}Z`;
  });
  return (
    <>
      {paths
        .map((path, index) => {
          const fill: BandFill = fills[index] ?? NO_FILL;
          return (
            <path key={index} d={path} fill={svgFill(fill)} fill-opacity={fill.muted ? 0.3 : 1} />
          );
        })
        .reverse()}
    </>
  );
}

function Lane({
  stretches,
  lane,
  range,
  ink,
}: {
  stretches: readonly Stretch[];
  lane: number;
  range: Range;
  ink: Ink;
}) {
  const places = stretches.map(({ from, to, labels }) => ({
    from: place(from, range),
    to: place(to, range),
    labels,
  }));
  const top = BOX.top - (lane + 1) * (LANE + 3);
  return (
    <>
      {placeStretches(
        places,
        [BOX.left, BOX.left + BOX.width],
        (label) => label.length * 6.4,
        8,
      ).map(({ from, to, label }, index) => (
        <g key={index}>
          <rect
            x={from}
            y={top}
            width={to - from}
            height={LANE}
            fill={index % 2 === 0 ? ink.shade : ink.panel}
          />
          <text x={(from + to) / 2} y={top + 13} text-anchor="middle" fill={ink.text}>
            {label}
          </text>
        </g>
      ))}
    </>
  );
}

function Axes({ spec, ink }: { spec: StepPicture["spec"]; ink: Ink }) {
  const { values, labels } = byteTicks(spec.yMax, 6);
  return (
    <g fill={ink.faint}>
      {values.map((value, index) => {
        const y = GROUND - (value / spec.yMax) * BOX.height;
        return (
          <g key={value}>
            <line x1={BOX.left} x2={BOX.left + BOX.width} y1={y} y2={y} stroke={ink.grid} />
            <text x={BOX.left - 8} y={y + 4} text-anchor="end">
              {labels[index]}
            </text>
          </g>
        );
      })}
      {ticksOf(spec.xKind, spec.range).map(({ value, label }) => (
        <text key={value} x={place(value, spec.range)} y={GROUND + 18} text-anchor="middle">
          {label}
        </text>
      ))}
    </g>
  );
}

function Flag({ timeline, picture, ink }: { timeline: Timeline; picture: StepPicture; ink: Ink }) {
  const { x: value, label } = peakFlag(timeline, picture.layout);
  const [from, to] = picture.spec.range;
  if (value < from || value > to) return null;
  const x = place(value, picture.spec.range);
  const end = x > BOX.left + BOX.width * 0.8;
  return (
    <g>
      <line x1={x} x2={x} y1={BOX.top} y2={GROUND} stroke={ink.accent} stroke-dasharray="5 3" />
      <text
        x={x + (end ? -6 : 6)}
        y={BOX.top + 14}
        text-anchor={end ? "end" : "start"}
        font-weight="500"
        fill={ink.text}
      >
        {label}
      </text>
    </g>
  );
}

function entries(labels: readonly string[]): { x: number; y: number }[] {
  let [x, y] = [BOX.left, GROUND + 46];
  return labels.map((label) => {
    const wanted = label.length * 6.6 + 36;
    if (x > BOX.left && x + wanted > WIDTH) [x, y] = [BOX.left, y + 20];
    const entry = { x, y };
    x += wanted;
    return entry;
  });
}

export function StepDrawing({ timeline, picture }: { timeline: Timeline; picture: StepPicture }) {
  const ink = inks();
  const { spec, labels, fills } = picture;
  const places = entries(labels);
  const title = `${timeline.run}: timeline of step ${timeline.step} (${timeline.phase}) on ${timeline.device}`;
  return (
    <SvgDrawing title={title} width={WIDTH} height={(places.at(-1)?.y ?? GROUND) + 16} ink={ink}>
      <Patterns fills={fills} ground={ink.background} />
      <Axes spec={spec} ink={ink} />
      {picture.tensors ? (
        <g stroke={ink.background} stroke-width="0.4">
          <Tensors {...picture} tensors={picture.tensors} />
        </g>
      ) : (
        <Areas {...picture} />
      )}
      {lanesOf(timeline, picture.layout.edges).map((stretches, lane) => (
        <Lane key={lane} stretches={stretches} lane={lane} range={spec.range} ink={ink} />
      ))}
      <Flag timeline={timeline} picture={picture} ink={ink} />
      {places.map(({ x, y }, index) => (
        <g key={index} fill={ink.text}>
          <rect x={x} y={y - 10} width="12" height="12" fill={svgFill(fills[index] ?? NO_FILL)} />
          <text x={x + 18} y={y}>
            {labels[index]}
          </text>
        </g>
      ))}
    </SvgDrawing>
  );
}
