/** The timeline of a step as a saved drawing. */

import { byteTicks, tickSteps, xLabel, type Range, type XKind } from "../../charts/axis";
import { blockPaths, type BlockPath } from "../../charts/timeline-blocks";
import { placeStretches, timelineCells, type Stretch } from "../../charts/timeline-layout";
import type { Timeline } from "../../model/timeline";
import { INKS, type Ink, type Scheme } from "../../theme/palette";
import { Patterns, SvgDrawing, svgFill } from "../shared/svg";
import { lanesOf, peakFlag, type StepPicture } from "./step-spec";

const WIDTH = 1200;
const BOX = { left: 84, top: 46, width: 1096, height: 380 };
const GROUND = BOX.top + BOX.height;
const LANE = 18;

const place = (x: number, [from, to]: Range): number => BOX.left + ((x - from) / (to - from)) * BOX.width;

function ticksOf(kind: XKind, [from, to]: Range): { value: number; label: string }[] {
  const step = tickSteps(kind).find((size) => size >= (to - from) / 9) ?? to - from;
  const first = Math.ceil(from / step);
  const count = Math.max(Math.floor(to / step) - first + 1, 0);
  return Array.from({ length: count }, (_, index) => (first + index) * step).map((value) => ({ value, label: xLabel(kind, value) }));
}

function Tensors({ spec, layout, tensors }: StepPicture & { tensors: NonNullable<StepPicture["tensors"]> }) {
  const { blocks, fills } = tensors;
  const box = { left: BOX.left, ground: GROUND, width: BOX.width, scale: BOX.height / spec.yMax };
  return (
    <g data-tensors>
      {blockPaths(blocks, layout, spec.range, box).map(({ row, path }: BlockPath) => {
        const fill = fills.fills[fills.styles[row] ?? 0] ?? { colour: "none", pattern: "plain" as const, muted: false };
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
    const steps = cells.map(({ from, to, moment }) => `L${round(BOX.left + from)} ${y(top[moment] ?? 0)}H${round(BOX.left + to)}`);
    return `M${round(BOX.left + first.from)} ${GROUND}${steps.join("")}V${GROUND}Z`;
  });
  return (
    <>
      {paths
        .map((path, index) => {
          const fill = fills[index] ?? { colour: "none", pattern: "plain" as const, muted: false };
          return <path key={index} d={path} fill={svgFill(fill)} fill-opacity={fill.muted ? 0.3 : 1} />;
        })
        .reverse()}
    </>
  );
}

function Lane({ stretches, lane, range, ink }: { stretches: readonly Stretch[]; lane: number; range: Range; ink: Ink }) {
  const places = stretches.map(({ from, to, labels }) => ({ from: place(from, range), to: place(to, range), labels }));
  const top = BOX.top - (lane + 1) * (LANE + 3);
  return (
    <>
      {placeStretches(places, [BOX.left, BOX.left + BOX.width], (label) => label.length * 6.4, 8).map(({ from, to, label }, index) => (
        <g key={index}>
          <rect x={from} y={top} width={to - from} height={LANE} fill={index % 2 === 0 ? ink.shade : ink.panel} />
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
      <text x={x + (end ? -6 : 6)} y={BOX.top + 14} text-anchor={end ? "end" : "start"} font-weight="500" fill={ink.text}>
        {label}
      </text>
    </g>
  );
}

/** Places of the legend's entries, line by line. */
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

export function StepDrawing({ timeline, picture, scheme }: { timeline: Timeline; picture: StepPicture; scheme: Scheme }) {
  const ink = INKS[scheme];
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
          <rect x={x} y={y - 10} width="12" height="12" fill={svgFill(fills[index] ?? { colour: "none", pattern: "plain" })} />
          <text x={x + 18} y={y}>
            {labels[index]}
          </text>
        </g>
      ))}
    </SvgDrawing>
  );
}
