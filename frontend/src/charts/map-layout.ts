/** Places of the allocator's chunks on a strip of pixels. Pure. */

import { lowerBound, clamp } from "../lib/search";
import type { Range } from "./axis";
import { fillStyle, type BandFill } from "./paint";

interface Chunks {
  address: ArrayLike<number>;
  bytes: ArrayLike<number>;
  key: ArrayLike<number>;
}

interface Cell {
  x: number;
  width: number;
  key: number;
  /**
   * Index of the chunk; -1 where several share a pixel, which then shows the kind with the most
   * bytes.
   */
  chunk: number;
}

class Pixel {
  private readonly bytes = new Map<number, number>();
  private count = 0;
  private only = -1;

  constructor(readonly column: number) {}

  add(chunk: number, key: number, bytes: number): void {
    this.bytes.set(key, (this.bytes.get(key) ?? 0) + bytes);
    this.count += 1;
    this.only = chunk;
  }

  cell(): Cell {
    const [key] = [...this.bytes].reduce((best, entry) => (entry[1] > best[1] ? entry : best));
    return { x: this.column, width: 1, key, chunk: this.count === 1 ? this.only : -1 };
  }
}

/**
 * Cells of the chunks from index `first` to before `end` that lie inside `view`, a span of
 * addresses, `width` pixels wide.
 */
export function stripCells(
  chunks: Chunks,
  first: number,
  end: number,
  view: Range,
  width: number,
): Cell[] {
  const scale = width / (view[1] - view[0]);
  const cells: Cell[] = [];
  let pixel: Pixel | null = null;
  const flush = () => {
    if (pixel) cells.push(pixel.cell());
    pixel = null;
  };
  for (let chunk = chunkAt(chunks, first, end, view[0]); chunk < end; chunk += 1) {
    const address = chunks.address[chunk] as number;
    const bytes = chunks.bytes[chunk] as number;
    if (address >= view[1]) break;
    const from = Math.max((address - view[0]) * scale, 0);
    const to = Math.min((address + bytes - view[0]) * scale, width);
    if (to <= from) continue;
    if (to - from >= 1) {
      flush();
      cells.push({ x: from, width: to - from, key: chunks.key[chunk] as number, chunk });
      continue;
    }
    const column = Math.floor(from);
    if ((pixel as Pixel | null)?.column !== column) {
      flush();
      pixel = new Pixel(column);
    }
    (pixel as Pixel | null)?.add(chunk, chunks.key[chunk] as number, bytes);
  }
  flush();
  return cells;
}

export function chunkAt(
  chunks: Pick<Chunks, "address" | "bytes">,
  first: number,
  end: number,
  address: number,
): number {
  const next = lowerBound(chunks.address, address, first, end);
  const before = next - 1;
  if (
    before >= first &&
    (chunks.address[before] as number) + (chunks.bytes[before] as number) > address
  )
    return before;
  return next;
}

/** The smallest span that a strip shows: one rounding unit of the allocator. */
const LEAST = 256;

/**
 * A view inside the region: zoomed by `factor` around an address, moved back inside where it stands
 * out.
 */
export function zoomed(
  view: Range,
  whole: Range,
  around: number,
  factor: number,
  least = LEAST,
): Range {
  const length = clamp((view[1] - view[0]) * factor, least, whole[1] - whole[0]);
  const share = (around - view[0]) / (view[1] - view[0]);
  return clamped([around - share * length, around + (1 - share) * length], whole, least);
}

/**
 * The view moved by a share of its length, at most to an end of the whole: an infinite share goes
 * there.
 */
export function panned(view: Range, whole: Range, share: number, least = LEAST): Range {
  const distance = clamp((view[1] - view[0]) * share, whole[0] - view[0], whole[1] - view[1]);
  return clamped([view[0] + distance, view[1] + distance], whole, least);
}

export function clamped(view: Range, whole: Range, least = LEAST): Range {
  const length = clamp(view[1] - view[0], least, whole[1] - whole[0]);
  const from = clamp(view[0], whole[0], whole[1] - length);
  return [from, from + length];
}

/**
 * The span that a drag over a view marks, from its low end; null for a click, which moves by at
 * most a 200th of the view.
 */
export const dragged = (from: number, to: number, view: Range): Range | null =>
  Math.abs(to - from) > (view[1] - view[0]) / 200 ? [Math.min(from, to), Math.max(from, to)] : null;

/** From this width on, in device pixels, a chunk is set off from its neighbour. */
const APART = 4;

export function paintStrip(
  canvas: HTMLCanvasElement,
  cells: readonly Cell[],
  fills: readonly BandFill[],
  marked: number | null,
  inks: { ground: string; text: string; focus: string },
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
  for (const { x, width: wide } of cells)
    if (wide >= APART) context.fillRect(Math.floor(x), 0, 1, height);
  const cell = marked === null ? undefined : cells.find(({ chunk }) => chunk === marked);
  if (!cell) return;
  context.strokeStyle = inks.text;
  context.lineWidth = 2 * ratio;
  context.strokeRect(
    cell.x + ratio,
    ratio,
    Math.max(cell.width - 2 * ratio, 1),
    height - 2 * ratio,
  );
}
