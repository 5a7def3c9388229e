/** Straight lines with words: capacity, marks, and the lane of epochs above the plot. */

import { placeBlocks } from "./layout";
import { stepPainter, type Painter } from "./paint";

export const FONT = '"Roboto", "Helvetica Neue", Arial, sans-serif';

const CAPACITY_DASH = [6, 4];

/** Line and label, and the ground that the label gets where fills lie behind it. */
interface CapacityInks {
  capacity: string;
  background: string;
}

/**
 * The limit of every row as a dashed step, its last value labelled: a restarted training may have another one. `label` gives the text
 * for a value.
 */
export function capacitiesPainter(
  edges: Float64Array,
  values: Float64Array,
  label: (value: number) => string,
  inside: boolean,
  inks: CapacityInks,
): Painter[] {
  const known = values.filter((value) => !Number.isNaN(value));
  const last = known.at(-1);
  if (last === undefined) return [];
  if (!inside || known.every((value) => value === last)) return [capacityPainter(last, label(last), inside, inks)];
  return [
    stepPainter(edges, values, { colour: inks.capacity, width: 1.25, dash: CAPACITY_DASH }),
    capacityPainter(last, label(last), true, inks, "right", false),
  ];
}

/** A dashed line across the plot with its label at one end; an arrow at the top if it is above the range. */
export function capacityPainter(
  value: number,
  label: string,
  inside: boolean,
  { capacity, background }: CapacityInks,
  end: "left" | "right" = "right",
  across = true,
): Painter {
  return (context, scale) => {
    context.save();
    context.font = `${11 * scale.ratio}px ${FONT}`;
    context.textAlign = end;
    context.textBaseline = "top";
    const write = (text: string, y: number): void => {
      const width = context.measureText(text).width;
      const [pad, height] = [3 * scale.ratio, 13 * scale.ratio];
      context.fillStyle = background;
      context.fillRect(end === "left" ? place - pad : place - width - pad, y - 1.5 * scale.ratio, width + 2 * pad, height);
      context.fillStyle = capacity;
      context.fillText(text, place, y);
    };
    const place = end === "left" ? scale.left + 6 * scale.ratio : scale.left + scale.width - 6 * scale.ratio;
    if (inside) {
      const y = Math.round(scale.y(value)) + 0.5;
      if (across) {
        context.strokeStyle = capacity;
        context.lineWidth = 1.25 * scale.ratio;
        context.setLineDash(CAPACITY_DASH.map((length) => length * scale.ratio));
        context.beginPath();
        context.moveTo(scale.left, y);
        context.lineTo(scale.left + scale.width, y);
        context.stroke();
      }
      write(label, y + 4 * scale.ratio);
    } else write(`↑ ${label}`, scale.top + 4 * scale.ratio);
    context.restore();
  };
}

export function ruleAcross(x: number, colour: string, dash: readonly number[]): Painter {
  return (context, scale) => {
    const px = Math.round(scale.x(x)) + 0.5;
    context.save();
    context.strokeStyle = colour;
    context.lineWidth = 1.25 * scale.ratio;
    context.setLineDash(dash.map((length) => length * scale.ratio));
    context.beginPath();
    context.moveTo(px, scale.top);
    context.lineTo(px, scale.top + scale.height);
    context.stroke();
    context.restore();
  };
}

/** A label on a plate in the plot, if `room`, a height in data units from `y` up, can hold it. */
export function platePainter(y: number, room: number, label: string, ink: string, ground: string): Painter {
  return (context, scale) => {
    const height = 18 * scale.ratio;
    if (scale.y(y) - scale.y(y + room) < height + 4 * scale.ratio) return;
    context.save();
    context.font = `${11 * scale.ratio}px ${FONT}`;
    const width = context.measureText(label).width + 14 * scale.ratio;
    const middle = scale.y(y + room / 2);
    const left = scale.left + 8 * scale.ratio;
    context.globalAlpha = 0.9;
    context.fillStyle = ground;
    context.beginPath();
    context.roundRect(left, middle - height / 2, width, height, 3 * scale.ratio);
    context.fill();
    context.globalAlpha = 1;
    context.fillStyle = ink;
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.fillText(label, left + 7 * scale.ratio, middle + scale.ratio);
    context.restore();
  };
}

export interface Span {
  from: number;
  to: number;
  name: number;
}

interface LaneInks {
  ground: string;
  shade: string;
  text: string;
  mark: string;
}

export const LANE_HEIGHT = 16;

/** Epochs as blocks above the plot, validations as notches in them. Painted outside of the plot's box. */
export function lanePainter(epochs: readonly Span[], notches: readonly number[], inks: LaneInks): Painter {
  return (context, scale) => {
    const height = LANE_HEIGHT * scale.ratio;
    const top = scale.top - height - 3 * scale.ratio;
    const [low, high] = [scale.left, scale.left + scale.width];
    context.save();
    context.font = `${11 * scale.ratio}px ${FONT}`;
    context.textBaseline = "middle";
    context.textAlign = "center";
    const spans = epochs
      .map(({ from, to, name }) => ({ from: Math.max(scale.x(from), low), to: Math.min(scale.x(to), high), name }))
      .filter(({ from, to }) => to > from);
    for (const block of placeBlocks(spans, (label) => context.measureText(label).width)) {
      context.fillStyle = block.shaded ? inks.shade : inks.ground;
      context.fillRect(block.from, top, block.to - block.from, height);
      context.fillStyle = inks.text;
      if (block.label) context.fillText(block.label, (block.from + block.to) / 2, top + height / 2 + scale.ratio);
    }
    context.fillStyle = inks.mark;
    for (const notch of notches) {
      const px = scale.x(notch);
      if (px >= low && px <= high) context.fillRect(px - scale.ratio, top, 2 * scale.ratio, height);
    }
    context.restore();
  };
}
