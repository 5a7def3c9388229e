/** Paints one region of the allocator's address space. */

import type { Cell } from "./map-layout";
import { fillStyle, type BandFill } from "./paint";

interface StripInks {
  ground: string;
  text: string;
  focus: string;
}

/** From this width on, in device pixels, a chunk is set off from its neighbour. */
const APART = 4;

export function paintStrip(
  canvas: HTMLCanvasElement,
  cells: readonly Cell[],
  fills: readonly BandFill[],
  marked: number | null,
  inks: StripInks,
): void {
  const context = canvas.getContext("2d");
  if (!context) return;
  const ratio = window.devicePixelRatio || 1;
  const { width, height } = canvas;
  context.fillStyle = inks.ground;
  context.fillRect(0, 0, width, height);
  const styles = fills.map((fill) => fillStyle(context, fill, inks.ground, ratio, 1));
  for (const { x, width: wide, key } of cells) {
    context.fillStyle = styles[key] ?? inks.text;
    context.fillRect(Math.floor(x), 0, Math.max(Math.ceil(x + wide) - Math.floor(x), 1), height);
  }
  context.fillStyle = inks.ground;
  for (const { x, width: wide } of cells) if (wide >= APART) context.fillRect(Math.floor(x), 0, 1, height);
  const cell = marked === null ? undefined : cells.find(({ chunk }) => chunk === marked);
  if (!cell) return;
  context.strokeStyle = inks.text;
  context.lineWidth = 2 * ratio;
  context.strokeRect(cell.x + ratio, ratio, Math.max(cell.width - 2 * ratio, 1), height - 2 * ratio);
}
