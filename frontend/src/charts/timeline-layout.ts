/** Geometry of a step's timeline, in data units and in pixels. Pure. */

import { lowerBound, maximum, clamp } from "../lib/search";
import type { Range } from "./axis";
import type { StackLayout } from "./layout";
import { fillStyle, type BandFill, type Painter, type Scale, stroke } from "./paint";
import { FONT, plate } from "./rules";

/** Edges of the moments by their times in milliseconds; the last one ends with the step. */
export function timeEdges(time_ns: readonly number[], duration_ns: number): Float64Array {
  const last = time_ns.at(-1) ?? 0;
  // The last moment is at least a hundredth of the step wide, even if nothing follows it.
  return Float64Array.from(
    [...time_ns, Math.max(duration_ns, last + Math.max(last / 100, 1))],
    (value) => value / 1e6,
  );
}

export const orderEdges = (moments: number): Float64Array =>
  Float64Array.from({ length: moments + 1 }, (_, moment) => moment);

export function momentAt(edges: Float64Array, x: number): number {
  const last = edges.length - 2;
  const after = lowerBound(edges, x);
  const moment = edges[after] === x ? after : after - 1;
  return clamp(moment, 0, Math.max(last, 0));
}

/**
 * The range of the x-axis for a zoom from one moment to another; all of it without one, or where
 * nothing would be seen.
 */
export function rangeOfSpan(edges: Float64Array, span: readonly [number, number] | null): Range {
  const whole: Range = [edges[0] ?? 0, edges[edges.length - 1] ?? 1];
  if (span === null) return whole;
  const last = edges.length - 2;
  const [from, to] = [edges[Math.min(span[0], last)] ?? 0, edges[Math.min(span[1], last) + 1] ?? 0];
  return to > from ? [from, to] : whole;
}

/** The moments of a range of the x-axis, null if that is all of them or none. */
export function spanOfRange(
  edges: Float64Array,
  from: number,
  to: number,
): [number, number] | null {
  const [first, last] = [momentAt(edges, from), momentAt(edges, to)];
  if (last <= first || (first === 0 && last >= edges.length - 2)) return null;
  return [first, last];
}

export interface Cell {
  from: number;
  to: number;
  moment: number;
}

/**
 * One cell for each moment that is a pixel wide; of narrower ones beside each other, one a pixel,
 * the highest: no peak is lost.
 */
export function timelineCells(
  { edges, total }: Pick<StackLayout, "edges" | "total">,
  range: Range,
  width: number,
): Cell[] {
  const scale = width / (range[1] - range[0]);
  const cells: Cell[] = [];
  let narrow: Cell | null = null;
  const push = (cell: Cell) => {
    const from = Math.max(cell.from, cells.at(-1)?.to ?? 0);
    if (cell.to > from) cells.push({ ...cell, from });
  };
  const flush = () => {
    if (narrow) push(narrow);
    narrow = null;
  };
  for (let moment = momentAt(edges, range[0]); moment < total.length; moment += 1) {
    const from = Math.max(((edges[moment] ?? 0) - range[0]) * scale, 0);
    const to = Math.min(((edges[moment + 1] ?? 0) - range[0]) * scale, width);
    if (from >= width) break;
    if (to - from >= 1) {
      flush();
      push({ from, to, moment });
      continue;
    }
    const open = narrow as Cell | null;
    if (open && from < open.to) {
      if ((total[moment] ?? 0) > (total[open.moment] ?? 0)) open.moment = moment;
      continue;
    }
    flush();
    narrow = { from: Math.floor(from), to: Math.floor(from) + 1, moment };
  }
  flush();
  return cells;
}

/** Path data of the area below the uppermost boundary, in a box whose y-axis grows downward. */
export function totalPath(
  layout: StackLayout,
  range: Range,
  width: number,
  height: number,
): string {
  const most = Math.max(maximum(layout.total), 1);
  const round = (value: number): number => Math.round(value * 10) / 10;
  const cells = timelineCells(layout, range, width);
  const steps = cells.map(
    ({ from, to, moment }) =>
      `L${round(from)} ${round(height - ((layout.total[moment] ?? 0) / most) * height)}H${round(to)}`,
  );
  return `M0 ${height}${steps.join("")}V${height}Z`;
}

export interface Stretch {
  from: number;
  to: number;
  labels: readonly string[];
}

/** Stretches in pixels, clipped to the plot, each with the longest of its labels that fits. */
export function placeStretches(
  stretches: readonly Stretch[],
  [low, high]: Range,
  widthOf: (label: string) => number,
  padding: number,
): { from: number; to: number; label: string }[] {
  return stretches
    .map(({ from, to, labels }) => ({ from: Math.max(from, low), to: Math.min(to, high), labels }))
    .filter(({ from, to }) => to > from)
    .map(({ from, to, labels }) => ({
      from,
      to,
      label: labels.find((label) => widthOf(label) + padding <= to - from) ?? "",
    }));
}

function areaOf(cells: readonly Cell[], top: Float64Array, scale: Scale): Path2D {
  const path = new Path2D();
  const ground = scale.y(0);
  const [first, last] = [cells[0], cells.at(-1)];
  if (!first || !last) return path;
  path.moveTo(scale.left + first.from, ground);
  for (const { from, to, moment } of cells) {
    const y = scale.y(top[moment] ?? 0);
    path.lineTo(scale.left + from, y);
    path.lineTo(scale.left + to, y);
  }
  path.lineTo(scale.left + last.to, ground);
  path.closePath();
  return path;
}

/** The stack, from the top down: each area covers the lower part of the one above it. */
export function timelinePainter(
  layout: StackLayout,
  range: Range,
  fills: readonly BandFill[],
  ground: string,
): Painter {
  return (context, scale) => {
    const cells = timelineCells(layout, range, scale.width);
    for (let index = layout.tops.length - 1; index >= 0; index -= 1) {
      context.fillStyle = fillStyle(context, fills[index] as BandFill, ground, scale.ratio, 1);
      context.fill(areaOf(cells, layout.tops[index] as Float64Array, scale));
    }
  };
}

export function timelineLine(
  layout: StackLayout,
  values: Float64Array,
  range: Range,
  colour: string,
  width: number,
): Painter {
  return (context, scale) => {
    const path = new Path2D();
    timelineCells({ edges: layout.edges, total: values }, range, scale.width).forEach(
      ({ from, to, moment }, index) => {
        const y = scale.y(values[moment] ?? 0);
        if (index === 0) path.moveTo(scale.left + from, y);
        else path.lineTo(scale.left + from, y);
        path.lineTo(scale.left + to, y);
      },
    );
    stroke(context, scale, path, { colour, width });
  };
}

/** Height of a lane of stretches, and the gap below it, in CSS pixels. */
export const STRETCH_HEIGHT = 18;
const GAP = 3;

/** A lane of named stretches above the plot; lane 0 is next to it. */
export function stretchLane(
  stretches: readonly Stretch[],
  lane: number,
  inks: { ground: string; shade: string; text: string },
): Painter {
  return (context, scale) => {
    const { ratio } = scale;
    const height = STRETCH_HEIGHT * ratio;
    const top = scale.top - (lane + 1) * (height + GAP * ratio);
    context.save();
    context.font = `${11 * ratio}px ${FONT}`;
    context.textBaseline = "middle";
    context.textAlign = "center";
    const places = stretches.map(({ from, to, labels }) => ({
      from: scale.x(from),
      to: scale.x(to),
      labels,
    }));
    const plot: Range = [scale.left, scale.left + scale.width];
    placeStretches(places, plot, (label) => context.measureText(label).width, 8 * ratio).forEach(
      ({ from, to, label }, index) => {
        context.fillStyle = index % 2 === 0 ? inks.shade : inks.ground;
        context.fillRect(from, top, to - from, height);
        context.fillStyle = inks.text;
        context.fillRect(Math.round(from), top, Math.max(Math.round(ratio), 1), height);
        if (label) context.fillText(label, (from + to) / 2, top + height / 2 + ratio);
      },
    );
    context.restore();
  };
}

export function spanPainter(from: number, to: number, colour: string): Painter {
  return (context, scale) => {
    const [left, right] = [scale.x(from), Math.max(scale.x(to), scale.x(from) + scale.ratio)];
    context.save();
    context.fillStyle = colour;
    for (const x of [left, right])
      context.fillRect(x - scale.ratio / 2, scale.top, scale.ratio, scale.height);
    context.globalAlpha = 0.2;
    context.fillRect(left, scale.top, right - left, scale.height);
    context.restore();
  };
}

/** A word beside a vertical line at the top of the plot, on the side where there is room. */
export function flagPainter(x: number, label: string, ink: string, ground: string): Painter {
  return (context, scale) => {
    const { ratio } = scale;
    const place = scale.x(x);
    if (place < scale.left || place > scale.left + scale.width) return;
    const style = { label, weight: "500 ", pad: 6, alpha: 0.92, ink, ground };
    plate(context, ratio, style, (width) => {
      const fits = place + width + 4 * ratio <= scale.left + scale.width;
      return [fits ? place + 4 * ratio : place - width - 4 * ratio, scale.top + 12 * ratio];
    });
  };
}
