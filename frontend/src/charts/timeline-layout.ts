/** Geometry of a step's timeline, in data units and in pixels. Pure. */

import { lowerBound, maximum } from "../lib/search";
import type { Range } from "./axis";

export interface TimelineLayout {
  /** Where each moment begins, and last where the step ends: one more than moments. */
  edges: Float64Array;
  /** Upper boundary of each part of the stack, the lowest first. */
  tops: Float64Array[];
  /** The uppermost of them. */
  total: Float64Array;
}

/** Edges of the moments by their times in milliseconds; the last one ends with the step. */
export function timeEdges(time_ns: readonly number[], duration_ns: number): Float64Array {
  const last = time_ns.at(-1) ?? 0;
  // The last moment is at least a hundredth of the step wide, even if nothing follows it.
  return Float64Array.from([...time_ns, Math.max(duration_ns, last + Math.max(last / 100, 1))], (value) => value / 1e6);
}

/** Edges of the moments by their order: all are as wide as each other. */
export const orderEdges = (moments: number): Float64Array => Float64Array.from({ length: moments + 1 }, (_, moment) => moment);

export function timelineLayout(edges: Float64Array, parts: readonly Float64Array[]): TimelineLayout {
  const total = new Float64Array(Math.max(edges.length - 1, 0));
  const tops = parts.map((part) => {
    for (let moment = 0; moment < total.length; moment += 1) total[moment] = (total[moment] ?? 0) + (part[moment] ?? 0);
    return Float64Array.from(total);
  });
  return { edges, tops, total };
}

/** The moment that holds a place on the x-axis. */
export function momentAt(edges: Float64Array, x: number): number {
  const last = edges.length - 2;
  const after = lowerBound(edges, x);
  const moment = edges[after] === x ? after : after - 1;
  return Math.min(Math.max(moment, 0), Math.max(last, 0));
}

/** The part of the stack that holds `value` at a moment, -1 above it. */
export const partAt = ({ tops }: TimelineLayout, moment: number, value: number): number =>
  tops.findIndex((top, index) => value <= (top[moment] ?? 0) && (top[moment] ?? 0) > (tops[index - 1]?.[moment] ?? 0));

/** The range of the x-axis for a zoom from one moment to another; all of it without one, or where nothing would be seen. */
export function rangeOfSpan(edges: Float64Array, span: readonly [number, number] | null): Range {
  const whole: Range = [edges[0] ?? 0, edges[edges.length - 1] ?? 1];
  if (span === null) return whole;
  const last = edges.length - 2;
  const [from, to] = [edges[Math.min(span[0], last)] ?? 0, edges[Math.min(span[1], last) + 1] ?? 0];
  return to > from ? [from, to] : whole;
}

/** The moments of a range of the x-axis, null if that is all of them or none. */
export function spanOfRange(edges: Float64Array, from: number, to: number): [number, number] | null {
  const [first, last] = [momentAt(edges, from), momentAt(edges, to)];
  if (last <= first || (first === 0 && last >= edges.length - 2)) return null;
  return [first, last];
}

/** A stretch of pixels that shows one moment. */
export interface Cell {
  from: number;
  to: number;
  moment: number;
}

/** One cell for each moment that is a pixel wide; of narrower ones beside each other, one a pixel, the highest: no peak is lost. */
export function timelineCells({ edges, total }: Pick<TimelineLayout, "edges" | "total">, range: Range, width: number): Cell[] {
  const scale = width / (range[1] - range[0]);
  const cells: Cell[] = [];
  let narrow: Cell | null = null;
  const push = (cell: Cell): void => {
    const from = Math.max(cell.from, cells.at(-1)?.to ?? 0);
    if (cell.to > from) cells.push({ ...cell, from });
  };
  const flush = (): void => {
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
export function totalPath(layout: TimelineLayout, range: Range, width: number, height: number): string {
  const most = Math.max(maximum(layout.total), 1);
  const round = (value: number): number => Math.round(value * 10) / 10;
  const cells = timelineCells(layout, range, width);
  const steps = cells.map(
    ({ from, to, moment }) => `L${round(from)} ${round(height - ((layout.total[moment] ?? 0) / most) * height)}H${round(to)}`,
  );
  return `M0 ${height}${steps.join("")}V${height}Z`;
}

/** A named stretch above the plot. */
export interface Stretch {
  from: number;
  to: number;
  /** From the longest to the shortest. */
  labels: readonly string[];
}

interface PlacedStretch {
  from: number;
  to: number;
  label: string;
}

/** Stretches in pixels, clipped to the plot, each with the longest of its labels that fits. */
export function placeStretches(
  stretches: readonly Stretch[],
  [low, high]: Range,
  widthOf: (label: string) => number,
  padding: number,
): PlacedStretch[] {
  return stretches
    .map(({ from, to, labels }) => ({ from: Math.max(from, low), to: Math.min(to, high), labels }))
    .filter(({ from, to }) => to > from)
    .map(({ from, to, labels }) => ({ from, to, label: labels.find((label) => widthOf(label) + padding <= to - from) ?? "" }));
}
