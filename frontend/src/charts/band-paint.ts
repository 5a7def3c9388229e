/** Painting of bands that do not begin at the ground, and of bars at single rows. */

import { fillStyle, type BandFill, type Painter, type Scale } from "./paint";

/** The outline of a band over neighbouring rows: one shape, because thousands of rectangles that touch take a hundred times as long to fill. */
function outline(path: Path2D, scale: Scale, edges: Float64Array, low: Float64Array, high: Float64Array, from: number, to: number): void {
  path.moveTo(scale.x(edges[from] as number), scale.y(low[from] as number));
  for (let row = from; row < to; row += 1) {
    const y = scale.y(high[row] as number);
    path.lineTo(scale.x(edges[row] as number), y);
    path.lineTo(scale.x(edges[row + 1] as number), y);
  }
  for (let row = to - 1; row >= from; row -= 1) {
    const y = scale.y(low[row] as number);
    path.lineTo(scale.x(edges[row + 1] as number), y);
    path.lineTo(scale.x(edges[row] as number), y);
  }
  path.closePath();
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
    const isFilled = (row: number): boolean => (high[row] as number) > (low[row] as number);
    for (let row = 0; row < low.length; row += 1) {
      const from = row;
      while (row < low.length && isFilled(row)) row += 1;
      if (row > from) outline(path, scale, edges, low, high, from, row);
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
