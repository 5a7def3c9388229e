/** Painting of curves through points, and of the band between two of them. */

import type { Painter, Scale } from "./paint";

function trace(path: Path2D, scale: Scale, x: Float64Array, y: Float64Array, rows: readonly number[]): void {
  for (const row of rows) path.lineTo(scale.x(x[row] as number), scale.y(y[row] as number));
}

/** A line through all points. */
export function linePainter(x: Float64Array, y: Float64Array, colour: string, width: number): Painter {
  return (context, scale) => {
    const path = new Path2D();
    trace(path, scale, x, y, [...x.keys()]);
    context.save();
    context.strokeStyle = colour;
    context.lineWidth = width * scale.ratio;
    context.lineJoin = "round";
    context.stroke(path);
    context.restore();
  };
}

/** Everything between two curves. */
export function bandPainter(x: Float64Array, low: Float64Array, high: Float64Array, colour: string, strength: number): Painter {
  return (context, scale) => {
    const path = new Path2D();
    const rows = [...x.keys()];
    trace(path, scale, x, high, rows);
    trace(path, scale, x, low, rows.reverse());
    path.closePath();
    context.save();
    context.globalAlpha = strength;
    context.fillStyle = colour;
    context.fill(path);
    context.restore();
  };
}
