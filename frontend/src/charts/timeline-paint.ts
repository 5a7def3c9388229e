/** Paints a step's timeline. */

import { fillStyle, type BandFill, type Painter, type Scale } from "./paint";
import { FONT } from "./rules";
import { placeStretches, timelineCells, type Cell, type Stretch, type TimelineLayout } from "./timeline-layout";
import type { Range } from "./axis";

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
export function timelinePainter(layout: TimelineLayout, range: Range, fills: readonly BandFill[], ground: string): Painter {
  return (context, scale) => {
    const cells = timelineCells(layout, range, scale.width);
    for (let index = layout.tops.length - 1; index >= 0; index -= 1) {
      context.fillStyle = fillStyle(context, fills[index] as BandFill, ground, scale.ratio, 1);
      context.fill(areaOf(cells, layout.tops[index] as Float64Array, scale));
    }
  };
}

/** A line over the same cells as the stack. */
export function timelineLine(layout: TimelineLayout, values: Float64Array, range: Range, colour: string, width: number): Painter {
  return (context, scale) => {
    const path = new Path2D();
    timelineCells({ edges: layout.edges, total: values }, range, scale.width).forEach(({ from, to, moment }, index) => {
      const y = scale.y(values[moment] ?? 0);
      if (index === 0) path.moveTo(scale.left + from, y);
      else path.lineTo(scale.left + from, y);
      path.lineTo(scale.left + to, y);
    });
    context.save();
    context.strokeStyle = colour;
    context.lineWidth = width * scale.ratio;
    context.lineJoin = "round";
    context.stroke(path);
    context.restore();
  };
}

interface StretchInks {
  ground: string;
  shade: string;
  text: string;
}

/** Height of a lane of stretches, and the gap below it, in CSS pixels. */
export const STRETCH_HEIGHT = 18;
const GAP = 3;

/** A lane of named stretches above the plot; lane 0 is next to it. */
export function stretchLane(stretches: readonly Stretch[], lane: number, inks: StretchInks): Painter {
  return (context, scale) => {
    const { ratio } = scale;
    const height = STRETCH_HEIGHT * ratio;
    const top = scale.top - (lane + 1) * (height + GAP * ratio);
    context.save();
    context.font = `${11 * ratio}px ${FONT}`;
    context.textBaseline = "middle";
    context.textAlign = "center";
    const places = stretches.map(({ from, to, labels }) => ({ from: scale.x(from), to: scale.x(to), labels }));
    const plot: Range = [scale.left, scale.left + scale.width];
    placeStretches(places, plot, (label) => context.measureText(label).width, 8 * ratio).forEach(({ from, to, label }, index) => {
      context.fillStyle = index % 2 === 0 ? inks.shade : inks.ground;
      context.fillRect(from, top, to - from, height);
      context.fillStyle = inks.text;
      context.fillRect(Math.round(from), top, Math.max(Math.round(ratio), 1), height);
      if (label) context.fillText(label, (from + to) / 2, top + height / 2 + ratio);
    });
    context.restore();
  };
}

/** A shade over a part of the x-axis, between two lines. */
export function spanPainter(from: number, to: number, colour: string): Painter {
  return (context, scale) => {
    const [left, right] = [scale.x(from), Math.max(scale.x(to), scale.x(from) + scale.ratio)];
    context.save();
    context.fillStyle = colour;
    for (const x of [left, right]) context.fillRect(x - scale.ratio / 2, scale.top, scale.ratio, scale.height);
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
    context.save();
    context.font = `500 ${11 * ratio}px ${FONT}`;
    const width = context.measureText(label).width + 12 * ratio;
    const height = 18 * ratio;
    const left = place + width + 4 * ratio > scale.left + scale.width ? place - width - 4 * ratio : place + 4 * ratio;
    context.globalAlpha = 0.92;
    context.fillStyle = ground;
    context.beginPath();
    context.roundRect(left, scale.top + 3 * ratio, width, height, 3 * ratio);
    context.fill();
    context.globalAlpha = 1;
    context.fillStyle = ink;
    context.textAlign = "left";
    context.textBaseline = "middle";
    context.fillText(label, left + 6 * ratio, scale.top + 3 * ratio + height / 2 + ratio);
    context.restore();
  };
}
