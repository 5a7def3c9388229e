/** Painting on a canvas. Every painter gets the scale and paints in device pixels. */

import type { StackLayout } from "./layout";

export interface Scale {
  x(value: number): number;
  y(value: number): number;
  left: number;
  top: number;
  width: number;
  height: number;
  ratio: number;
}

export type Painter = (context: CanvasRenderingContext2D, scale: Scale) => void;

export interface BandFill {
  colour: string;
  pattern: "plain" | "diagonal" | "hatched" | "dotted";
  muted?: boolean | undefined;
}

/** Dots of a pattern in a square of 6 pixels: both coordinates of each, and their radius. */
export const DOTS = [1.5, 4.5] as const;
export const DOT_RADIUS = 0.9;

/**
 * What a band is filled with, opaque, so that bands can cover each other without seams: its colour
 * mixed with the ground, and its lines or dots; hatched leans the other way and shows the ground
 * between its lines.
 */
export function fillStyle(
  context: CanvasRenderingContext2D,
  fill: BandFill,
  ground: string,
  ratio: number,
  strength: number,
): CanvasPattern | string {
  const size = Math.round(6 * ratio);
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = size;
  const brush = canvas.getContext("2d");
  if (!brush) return fill.colour;
  const hatched = fill.pattern === "hatched";
  brush.fillStyle = ground;
  brush.fillRect(0, 0, size, size);
  brush.globalAlpha = strength * (fill.muted ? 0.3 : 1);
  brush.fillStyle = hatched ? ground : fill.colour;
  brush.fillRect(0, 0, size, size);
  if (fill.pattern === "dotted") {
    brush.fillStyle = ground;
    brush.globalAlpha *= 0.75;
    for (const at of DOTS) {
      brush.beginPath();
      brush.arc(at * ratio, at * ratio, DOT_RADIUS * ratio, 0, 2 * Math.PI);
      brush.fill();
    }
  } else if (fill.pattern !== "plain") {
    brush.strokeStyle = hatched ? fill.colour : ground;
    brush.globalAlpha *= hatched ? 0.85 : 0.6;
    brush.lineWidth = 1.4 * ratio;
    brush.beginPath();
    for (const shift of [-size, 0, size]) {
      brush.moveTo(shift - 1, hatched ? -1 : size + 1);
      brush.lineTo(shift + size + 1, hatched ? size + 1 : -1);
    }
    brush.stroke();
  }
  return context.createPattern(canvas, "repeat") ?? fill.colour;
}

function areaPath(edges: Float64Array, top: Float64Array, scale: Scale): Path2D {
  const path = new Path2D();
  const ground = scale.y(0);
  path.moveTo(scale.x(edges[0] as number), ground);
  for (let row = 0; row < top.length; row += 1) {
    const y = scale.y(top[row] as number);
    path.lineTo(scale.x(edges[row] as number), y);
    path.lineTo(scale.x(edges[row + 1] as number), y);
  }
  path.lineTo(scale.x(edges[top.length] as number), ground);
  path.closePath();
  return path;
}

/** Strength of colours where the breakdown is inferred. */
const INFERRED = 0.62;
/** Width in pixels of the edges between bands there. */
const EDGE = 0.75;

/**
 * A stack: lighter everywhere, then at full strength within `spans`, where the breakdown was
 * measured.
 */
export function stackPainter(
  layout: StackLayout,
  fills: readonly BandFill[],
  spans: readonly (readonly [number, number])[] | "all",
  ground: string,
): Painter {
  return (context, scale) => {
    const paths = layout.tops.map((top) => areaPath(layout.edges, top, scale));
    const paint = (strength: number) => {
      // From the top down: each area covers the lower part of the one above it.
      for (let index = paths.length - 1; index >= 0; index -= 1) {
        context.fillStyle = fillStyle(
          context,
          fills[index] as BandFill,
          ground,
          scale.ratio,
          strength,
        );
        context.fill(paths[index] as Path2D);
      }
    };
    if (spans === "all") return paint(1);
    paint(INFERRED);
    // Lighter colours differ less: an edge tells neighbours apart.
    for (const path of paths) stroke(context, scale, path, { colour: ground, width: EDGE });
    const clip = new Path2D();
    for (const [from, to] of spans) {
      const middle = (scale.x(from) + scale.x(to)) / 2;
      const half = Math.max((scale.x(to) - scale.x(from)) / 2, scale.ratio * 1.25);
      clip.rect(middle - half, scale.top, 2 * half, scale.height);
    }
    context.save();
    context.clip(clip);
    paint(1);
    context.restore();
  };
}

interface LineStyle {
  colour: string;
  width: number;
  dash?: readonly number[] | undefined;
}

export function stroke(
  context: CanvasRenderingContext2D,
  scale: Scale,
  path: Path2D,
  style: LineStyle,
): void {
  context.save();
  context.strokeStyle = style.colour;
  context.lineWidth = style.width * scale.ratio;
  context.lineJoin = "round";
  context.setLineDash((style.dash ?? []).map((length) => length * scale.ratio));
  context.stroke(path);
  context.restore();
}

/** A line with one level for each row's cell; gaps where a row is unknown. */
export function stepPainter(edges: Float64Array, values: Float64Array, style: LineStyle): Painter {
  return (context, scale) => {
    const path = new Path2D();
    let open = false;
    for (let row = 0; row < values.length; row += 1) {
      const value = values[row] as number;
      if (Number.isNaN(value)) {
        open = false;
        continue;
      }
      const y = scale.y(value);
      const from = scale.x(edges[row] as number);
      if (open) path.lineTo(from, y);
      else path.moveTo(from, y);
      path.lineTo(scale.x(edges[row + 1] as number), y);
      open = true;
    }
    stroke(context, scale, path, style);
  };
}

interface Hollow {
  rows: (row: number) => boolean;
  ground: string;
}

export function pointsPainter(
  x: Float64Array,
  values: Float64Array,
  colour: string,
  hollow: Hollow | null = null,
): Painter {
  return (context, scale) => {
    const [full, rings] = [new Path2D(), new Path2D()];
    values.forEach((value, row) => {
      if (Number.isNaN(value)) return;
      const [px, py] = [scale.x(x[row] as number), scale.y(value)];
      const dots = hollow?.rows(row) ? rings : full;
      dots.moveTo(px + 3.2 * scale.ratio, py);
      dots.arc(px, py, 3.2 * scale.ratio, 0, 2 * Math.PI);
    });
    context.fillStyle = colour;
    context.fill(full);
    if (!hollow) return;
    context.save();
    context.fillStyle = hollow.ground;
    context.fill(rings);
    context.strokeStyle = colour;
    context.lineWidth = 1.5 * scale.ratio;
    context.stroke(rings);
    context.restore();
  };
}

/** Diamonds, hollow; painted unclipped, so that those at the edges stay whole. */
export function diamondsPainter(
  points: readonly { x: number; y: number }[],
  colour: string,
  ground: string,
): Painter {
  return (context, scale) => {
    const size = 4.5 * scale.ratio;
    for (const point of points) {
      const [px, py] = [scale.x(point.x), scale.y(point.y)];
      if (px < scale.left || px > scale.left + scale.width) continue;
      context.beginPath();
      context.moveTo(px, py - size);
      context.lineTo(px + size, py);
      context.lineTo(px, py + size);
      context.lineTo(px - size, py);
      context.closePath();
      context.fillStyle = ground;
      context.fill();
      context.strokeStyle = colour;
      context.lineWidth = 1.5 * scale.ratio;
      context.stroke();
    }
  };
}

/**
 * The outline of a band over neighbouring rows: one shape, because thousands of rectangles that
 * touch take a hundred times as long to fill.
 */
function outline(
  path: Path2D,
  scale: Scale,
  edges: Float64Array,
  low: Float64Array,
  high: Float64Array,
  from: number,
  to: number,
): void {
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

/** Nothing, where nothing was recorded. */
export const blankPainter = (from: number, to: number, top: number, ground: string): Painter =>
  betweenPainter(
    Float64Array.of(from, to),
    Float64Array.of(0),
    Float64Array.of(top),
    { colour: ground, pattern: "plain" },
    ground,
    1,
  );

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

function trace(
  path: Path2D,
  scale: Scale,
  x: Float64Array,
  y: Float64Array,
  rows: readonly number[],
): void {
  for (const row of rows) path.lineTo(scale.x(x[row] as number), scale.y(y[row] as number));
}

export function linePainter(
  x: Float64Array,
  y: Float64Array,
  colour: string,
  width: number,
): Painter {
  return (context, scale) => {
    const path = new Path2D();
    trace(path, scale, x, y, [...x.keys()]);
    stroke(context, scale, path, { colour, width });
  };
}

export function bandPainter(
  x: Float64Array,
  low: Float64Array,
  high: Float64Array,
  colour: string,
  strength: number,
): Painter {
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
