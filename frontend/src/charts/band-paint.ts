/** Painting of bands that do not begin at the ground, and of bars at single rows. */

import { fillStyle, type BandFill, type Painter, type Scale } from "./paint";

/** The part of a band at one row. */
function cell(path: Path2D, scale: Scale, from: number, to: number, low: number, high: number): void {
  const [left, right, top, bottom] = [scale.x(from), scale.x(to), scale.y(high), scale.y(low)];
  if (right > left && bottom > top) path.rect(left, top, right - left, bottom - top);
}

/** Everything between two stepped boundaries, where both are known. */
export function betweenPainter(
  edges: Float64Array,
  low: Float64Array,
  high: Float64Array,
  fill: BandFill,
  ground: string,
  strength: number,
): Painter {
  return (context, scale) => {
    const path = new Path2D();
    let start = 0;
    for (let row = 0; row < low.length; row += 1) {
      const [bottom, top] = [low[row] as number, high[row] as number];
      // Rows of the same height are one rectangle: no seams between them.
      if (row + 1 < low.length && low[row + 1] === bottom && high[row + 1] === top) continue;
      if (top > bottom) cell(path, scale, edges[start] as number, edges[row + 1] as number, bottom, top);
      start = row + 1;
    }
    context.fillStyle = fillStyle(context, fill, ground, scale.ratio, strength);
    context.fill(path);
  };
}

/** Bars at some rows, as wide as the row's cell, but never narrower than can be seen. */
export function barsPainter(
  edges: Float64Array,
  rows: readonly number[],
  low: Float64Array,
  high: Float64Array,
  fill: BandFill,
  ground: string,
): Painter {
  return (context, scale) => {
    const path = new Path2D();
    for (const row of rows) {
      const [bottom, top] = [low[row] as number, high[row] as number];
      if (!(top > bottom)) continue;
      const [from, to] = [scale.x(edges[row] as number), scale.x(edges[row + 1] as number)];
      const half = Math.max((to - from) / 2, 1.75 * scale.ratio);
      path.rect((from + to) / 2 - half, scale.y(top), 2 * half, scale.y(bottom) - scale.y(top));
    }
    context.fillStyle = fillStyle(context, fill, ground, scale.ratio, 1);
    context.fill(path);
  };
}
