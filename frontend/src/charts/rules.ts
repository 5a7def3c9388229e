/** Straight lines with words: capacity, marks, and the lane of epochs above the plot. */

import { formatBytes } from "../lib/bytes";
import { placeBlocks } from "./layout";
import { stepPainter, type Painter, stroke } from "./paint";

export const FONT = '"Roboto", "Helvetica Neue", Arial, sans-serif';

const CAPACITY_DASH = [6, 4];

interface CapacityInks {
  capacity: string;
  background: string;
}

/**
 * The limit of every row as a dashed step, its last value labelled: a restarted training may have
 * another one.
 */
export function capacitiesPainter(
  edges: Float64Array,
  values: Float64Array,
  inside: boolean,
  inks: CapacityInks,
  end: "left" | "right" = "left",
): Painter[] {
  const known = values.filter((value) => !Number.isNaN(value));
  const last = known.at(-1) ?? null;
  if (!inside || known.every((value) => value === last))
    return capacityPainter(last, inside, inks, end);
  return [
    stepPainter(edges, values, { colour: inks.capacity, width: 1.25, dash: CAPACITY_DASH }),
    ...capacityPainter(last, true, inks, "right", false),
  ];
}

/**
 * A dashed line across the plot with its label at one end, an arrow at the top if it is above the
 * range; nothing for an unknown capacity.
 */
export function capacityPainter(
  value: number | null,
  inside: boolean,
  { capacity, background }: CapacityInks,
  end: "left" | "right" = "right",
  across = true,
): Painter[] {
  if (value === null) return [];
  const label = `capacity ${formatBytes(value)}`;
  const painter: Painter = (context, scale) => {
    context.save();
    context.font = `${11 * scale.ratio}px ${FONT}`;
    context.textAlign = end;
    context.textBaseline = "top";
    const write = (text: string, y: number) => {
      const width = context.measureText(text).width;
      const [pad, height] = [3 * scale.ratio, 13 * scale.ratio];
      context.fillStyle = background;
      context.fillRect(
        end === "left" ? place - pad : place - width - pad,
        y - 1.5 * scale.ratio,
        width + 2 * pad,
        height,
      );
      context.fillStyle = capacity;
      context.fillText(text, place, y);
    };
    const place =
      end === "left" ? scale.left + 6 * scale.ratio : scale.left + scale.width - 6 * scale.ratio;
    if (inside) {
      const y = Math.round(scale.y(value)) + 0.5;
      if (across) {
        stroke(context, scale, lineOf(scale.left, y, scale.left + scale.width, y), {
          colour: capacity,
          width: 1.25,
          dash: CAPACITY_DASH,
        });
      }
      write(label, y + 4 * scale.ratio);
    } else write(`↑ ${label}`, scale.top + 4 * scale.ratio);
    context.restore();
  };
  return [painter];
}

function lineOf(fromX: number, fromY: number, toX: number, toY: number): Path2D {
  const path = new Path2D();
  path.moveTo(fromX, fromY);
  path.lineTo(toX, toY);
  return path;
}

export function ruleAcross(x: number, colour: string, dash: readonly number[]): Painter {
  return (context, scale) => {
    const px = Math.round(scale.x(x)) + 0.5;
    stroke(context, scale, lineOf(px, scale.top, px, scale.top + scale.height), {
      colour,
      width: 1.25,
      dash,
    });
  };
}

export function cutsPainter(cuts: readonly number[], colour: string): Painter {
  return (context, scale) => {
    for (const value of cuts) {
      const y = scale.y(value);
      stroke(context, scale, lineOf(scale.left, y, scale.left + scale.width, y), {
        colour,
        width: 1,
        dash: [2, 4],
      });
    }
  };
}

interface Plate {
  label: string;
  weight?: string;
  pad: number;
  alpha: number;
  ink: string;
  ground: string;
}

/** A label on a plate; `place` gives the plate's left end and its middle from its width. */
export function plate(
  context: CanvasRenderingContext2D,
  ratio: number,
  { label, weight = "", pad, alpha, ink, ground }: Plate,
  place: (width: number) => [number, number],
): void {
  context.save();
  context.font = `${weight}${11 * ratio}px ${FONT}`;
  const [width, height] = [
    context.measureText(label).width + 2 * pad * ratio,
    PLATE_HEIGHT * ratio,
  ];
  const [left, middle] = place(width);
  context.globalAlpha = alpha;
  context.fillStyle = ground;
  context.beginPath();
  context.roundRect(left, middle - height / 2, width, height, 3 * ratio);
  context.fill();
  context.globalAlpha = 1;
  context.fillStyle = ink;
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText(label, left + pad * ratio, middle + ratio);
  context.restore();
}

const PLATE_HEIGHT = 18;

/** A label on a plate in the plot, if `room`, a height in data units from `y` up, can hold it. */
export function platePainter(
  y: number,
  room: number,
  label: string,
  ink: string,
  ground: string,
): Painter {
  return (context, scale) => {
    const { ratio } = scale;
    if (scale.y(y) - scale.y(y + room) < (PLATE_HEIGHT + 4) * ratio) return;
    plate(context, ratio, { label, pad: 7, alpha: 0.9, ink, ground }, () => [
      scale.left + 8 * ratio,
      scale.y(y + room / 2),
    ]);
  };
}

export interface Outlined {
  from: number;
  to: number;
  low: number;
  high: number;
  label: string;
}

/**
 * What was asked for but not given, as an outline from `low` to `high`, never too narrow to be
 * seen; or its label beside it, to be painted after the lines that would go through it.
 */
export function outlinedPainter(
  { from, to, low, high, label }: Outlined,
  inks: CapacityInks,
  part: "outline" | "label",
): Painter {
  return (context, scale) => {
    const { ratio, left: first } = scale;
    const last = first + scale.width;
    const middle = (scale.x(from) + scale.x(to)) / 2;
    if (!(middle >= first && middle <= last)) return;
    const width = Math.max(scale.x(to) - scale.x(from), 12 * ratio);
    const left = Math.max(Math.min(middle - width / 2, last - width - ratio), first + ratio);
    const [top, bottom] = [scale.y(high), scale.y(low)];
    if (part === "label") {
      const gap = 4 * ratio;
      const style = {
        label,
        weight: "500 ",
        pad: 5,
        alpha: 1,
        ink: inks.capacity,
        ground: inks.background,
      };
      plate(context, ratio, style, (wide) => [
        left - wide - gap >= first
          ? left - wide - gap
          : left + width + gap + wide <= last
            ? left + width + gap
            : left + gap,
        Math.max((top + bottom) / 2, scale.top + 12 * ratio),
      ]);
      return;
    }
    const path = new Path2D();
    path.rect(left, top, width, bottom - top);
    context.save();
    context.globalAlpha = 0.75;
    context.fillStyle = inks.background;
    context.fill(path);
    context.restore();
    stroke(context, scale, path, { colour: inks.capacity, width: 2 });
  };
}

/** A dashed line on to where a trend ends, with its label below it. */
export function trendPainter(
  from: readonly [number, number],
  to: readonly [number, number],
  label: string,
  inks: CapacityInks,
): Painter {
  return (context, scale) => {
    const { ratio } = scale;
    const [x, y, toX, toY] = [scale.x(from[0]), scale.y(from[1]), scale.x(to[0]), scale.y(to[1])];
    stroke(context, scale, lineOf(x, y, toX, toY), {
      colour: inks.capacity,
      width: 1.75,
      dash: [3, 3],
    });
    const end = Math.min(toX, scale.left + scale.width);
    if (end < x) return;
    const middle = (x + end) / 2;
    const height = y + ((toY - y) * (middle - x)) / (toX - x || 1);
    const style = {
      label,
      weight: "500 ",
      pad: 5,
      alpha: 0.92,
      ink: inks.capacity,
      ground: inks.background,
    };
    plate(context, ratio, style, (wide) => [
      Math.min(middle + 8 * ratio, scale.left + scale.width - wide),
      height + 14 * ratio,
    ]);
  };
}

export interface Span {
  from: number;
  to: number;
  name: number;
}

export const LANE_HEIGHT = 16;

/**
 * Epochs as blocks above the plot, validations as notches in them. Painted outside of the plot's
 * box.
 */
export function lanePainter(
  epochs: readonly Span[],
  notches: readonly number[],
  inks: { ground: string; shade: string; text: string; mark: string },
): Painter {
  return (context, scale) => {
    const height = LANE_HEIGHT * scale.ratio;
    const top = scale.top - height - 3 * scale.ratio;
    const [low, high] = [scale.left, scale.left + scale.width];
    context.save();
    context.font = `${11 * scale.ratio}px ${FONT}`;
    context.textBaseline = "middle";
    context.textAlign = "center";
    const spans = epochs
      .map(({ from, to, name }) => ({
        from: Math.max(scale.x(from), low),
        to: Math.min(scale.x(to), high),
        name,
      }))
      .filter(({ from, to }) => to > from);
    for (const block of placeBlocks(spans, (label) => context.measureText(label).width)) {
      context.fillStyle = block.shaded ? inks.shade : inks.ground;
      context.fillRect(block.from, top, block.to - block.from, height);
      context.fillStyle = inks.text;
      if (block.label)
        context.fillText(block.label, (block.from + block.to) / 2, top + height / 2 + scale.ratio);
    }
    context.fillStyle = inks.mark;
    for (const notch of notches) {
      const px = scale.x(notch);
      if (px >= low && px <= high) context.fillRect(px - scale.ratio, top, 2 * scale.ratio, height);
    }
    context.restore();
  };
}
