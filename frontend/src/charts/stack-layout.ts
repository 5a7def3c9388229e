/** Geometry of a stack of stepped bands, in data units. Pure. */

import { cellEdges } from "./axis";

export interface StackLayout {
  /** Edges of the rows' cells, one more than rows. */
  edges: Float64Array;
  /** Upper boundary of each band, bottom band first. */
  tops: Float64Array[];
}

/** Bands stacked in the given order; unknown values add nothing. */
export function stackLayout(x: Float64Array, bands: readonly Float64Array[]): StackLayout {
  const sum = new Float64Array(x.length);
  const tops = bands.map((band) => {
    for (let row = 0; row < sum.length; row += 1) {
      const value = band[row];
      if (value !== undefined && !Number.isNaN(value)) sum[row] = (sum[row] as number) + value;
    }
    return Float64Array.from(sum);
  });
  return { edges: cellEdges(x), tops };
}

/** Index of the band that holds `value` at a row, -1 above the stack. */
export function bandAt(layout: StackLayout, row: number, value: number): number {
  return layout.tops.findIndex(
    (top, index) => value <= (top[row] as number) && (top[row] as number) > (layout.tops[index - 1]?.[row] ?? 0),
  );
}

/**
 * Spans of x around the rows for which `marked` is 1. A row next to a pause, such as a validation on a time axis, is only as wide as
 * on its other side.
 */
export function markedSpans(x: Float64Array, edges: Float64Array, marked: Float64Array): [number, number][] {
  const spans: [number, number][] = [];
  for (let row = 0; row < marked.length; row += 1) {
    if (marked[row] !== 1) continue;
    const place = x[row] as number;
    const half = Math.min(place - (edges[row] as number), (edges[row + 1] as number) - place);
    const last = spans.at(-1);
    if (last && last[1] >= place - half) last[1] = place + half;
    else spans.push([place - half, place + half]);
  }
  return spans;
}
