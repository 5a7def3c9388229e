/**
 * Paints the blocks of a step's timeline; what does not change from one paint to the next is kept.
 */

import { clamp } from "../lib/search";
import type { Range } from "./axis";
import type { StackLayout } from "./layout";
import { fillStyle, type BandFill, type Painter, type Scale, stroke } from "./paint";
import { basesOf, StackWalk, type Blocks } from "./timeline-blocks";
import { momentAt, timelineCells, type Cell } from "./timeline-layout";

/**
 * Row of each pixel, column after column, each from the ground up; -1 where there is none. The work
 * is bounded by pixels and events, not by the corners of polygons, which are too many where
 * thousands of blocks shift.
 */
export interface Raster {
  rows: Int32Array;
  width: number;
  height: number;
}

const EMPTY = -1;

/** An empty raster, in the memory of another one that is no longer used if it is as large. */
function emptyRaster(width: number, height: number, used?: Raster): Raster {
  const rows = used?.rows.length === width * height ? used.rows : new Int32Array(width * height);
  return { rows: rows.fill(EMPTY), width, height };
}

/** What a raster shows: its size in pixels, its scale in pixels per byte, and one to overwrite. */
interface Frame {
  width: number;
  height: number;
  scale: number;
  used?: Raster | undefined;
}

/**
 * Blocks that reach no pixel's edge are left out; the height of each column is exact to half a
 * pixel.
 */
export function stackRaster(
  blocks: Blocks,
  cells: readonly Cell[],
  { width, height, scale, used }: Frame,
): Raster {
  const raster = emptyRaster(width, height, used);
  const walk = new StackWalk(blocks);
  const column = new Int32Array(height).fill(EMPTY);
  let top = 0;
  for (const { from, to, moment } of cells) {
    const changed = walk.to(moment);
    if (changed < walk.count || Math.round((walk.base[walk.count] ?? 0) * scale) !== top)
      top = paintColumn(column, walk, blocks, changed, top, scale);
    const last = Math.min(Math.ceil(to), width);
    for (let x = Math.floor(from); x < last; x += 1) raster.rows.set(column, x * height);
  }
  return raster;
}

/** Repaints a column from a place of the stack upwards; returns its height. */
function paintColumn(
  column: Int32Array,
  { live, base, count }: StackWalk,
  { order }: Blocks,
  first: number,
  top: number,
  scale: number,
) {
  let y = Math.round((base[first] as number) * scale);
  for (let at = first; at < count; at += 1) {
    const next = Math.round((base[at + 1] as number) * scale);
    if (next > y) column.fill(order[live[at] as number] as number, y, next);
    y = next;
  }
  if (top > y) column.fill(EMPTY, y, top);
  return y;
}

/**
 * Blocks at their places in a range of the x-axis with these edges of moments. Each is at least one
 * pixel wide and high.
 */
export function placedRaster(
  blocks: Blocks,
  edges: Float64Array,
  range: Range,
  { width, height, scale, used }: Frame,
): Raster {
  const raster = emptyRaster(width, height, used);
  const across = width / (range[1] - range[0]);
  const [first, last] = [momentAt(edges, range[0]), momentAt(edges, range[1])];
  for (const row of blocks.order) {
    const [start, end, place] = [
      blocks.start[row] as number,
      blocks.end[row] as number,
      blocks.place?.[row] ?? NaN,
    ];
    if (end <= first || start > last || Number.isNaN(place)) continue;
    const from = Math.max(Math.floor(((edges[start] as number) - range[0]) * across), 0);
    const to = clamp(Math.floor(((edges[end] as number) - range[0]) * across), from + 1, width);
    const low = Math.floor(place * scale);
    const high = Math.max(Math.round((place + (blocks.bytes[row] as number)) * scale), low + 1);
    for (let x = from; x < to; x += 1)
      raster.rows.fill(row, x * height + low, Math.min(x * height + high, (x + 1) * height));
  }
  return raster;
}

/**
 * Colours of pixels as 32-bit words: a square for each style, repeated over the plot, and the style
 * of each row.
 */
interface Colours {
  tiles: readonly Uint32Array[];
  size: number;
  styles: Uint8Array;
  /** Colour of the edges of blocks that are large enough to have one. */
  edge: number;
}

/** From this many pixels on, a block is set off from its neighbours. */
const APART = 4;

/** The raster in colours, row after row from the top, as an image has them. */
export function paintRaster(
  { rows, width, height }: Raster,
  { tiles, size, styles, edge }: Colours,
  out: Uint32Array,
): void {
  out.fill(0);
  // Most blocks have one colour: theirs need no place in a tile.
  const plain = tiles.map((tile) => tile.every((colour) => colour === tile[0]));
  for (let x = 0; x < width; x += 1) {
    const column = x * height;
    const [left, right] = [x === 0 ? column : column - height, column + (APART - 1) * height];
    let y = 0;
    while (y < height) {
      const row = rows[column + y] as number;
      let end = y + 1;
      while (end < height && rows[column + end] === row) end += 1;
      if (row !== EMPTY) {
        const style = styles[row] as number;
        const tile = tiles[style] as Uint32Array;
        const isPlain = plain[style] as boolean;
        let image = (height - 1 - y) * width + x;
        for (let at = y; at < end; at += 1, image -= width)
          out[image] = tile[isPlain ? 0 : ((height - 1 - at) % size) * size + (x % size)] as number;
        if (end - y >= APART) {
          // The same above and below in the column to the left: no edge.
          if (rows[left + y] !== row || rows[left + end - 1] !== row)
            for (let at = y; at < end; at += 1)
              if (rows[left + at] !== row && rows[right + at] === row)
                out[(height - 1 - at) * width + x] = edge;
          out[(height - end) * width + x] = edge;
        }
      }
      y = end;
    }
  }
}

export interface BlockFills {
  fills: readonly BandFill[];
  styles: Uint8Array;
  ground: string;
}

/** The image of the fill's pattern as 32-bit words, in a square of `size` pixels. */
function tileOf(fill: BandFill, ground: string, size: number, ratio: number): Uint32Array {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = size;
  const brush = canvas.getContext("2d", { willReadFrequently: true });
  if (!brush) return new Uint32Array(size * size);
  brush.fillStyle = fillStyle(brush, fill, ground, ratio, 1);
  brush.fillRect(0, 0, size, size);
  return new Uint32Array(brush.getImageData(0, 0, size, size).data.buffer);
}

function coloursOf({ fills, styles, ground }: BlockFills, ratio: number): Colours {
  const size = Math.round(6 * ratio);
  const tiles = fills.map((fill) => tileOf(fill, ground, size, ratio));
  const edge = tileOf({ colour: ground, pattern: "plain" }, ground, size, ratio)[0] ?? 0;
  return { tiles, size, styles, edge };
}

/** A distance in bytes, large enough that its pixels are exact. */
const FAR = 2 ** 40;

/** Remembers the last result for the same parts; `make` may overwrite the one before. */
function kept<T extends object>(): (parts: readonly unknown[], make: (before?: T) => T) => T {
  let last: { parts: readonly unknown[]; value: T } | null = null;
  return (parts, make) => {
    // An overwritten result is another object, so that everything derived from it is computed
    // again.
    if (last === null || parts.some((part, index) => part !== last?.parts[index]))
      last = { parts, value: make(last?.value) };
    return last.value;
  };
}

/**
 * A canvas and its pixels, kept from image to image: allocating them costs as much as filling them.
 */
class Surface {
  private canvas: HTMLCanvasElement | null = null;
  private brush: CanvasRenderingContext2D | null = null;
  private pixels: ImageData | null = null;

  show(raster: Raster, colours: Colours): HTMLCanvasElement {
    this.canvas ??= document.createElement("canvas");
    if (this.pixels?.width !== raster.width || this.pixels.height !== raster.height) {
      [this.canvas.width, this.canvas.height] = [raster.width, raster.height];
      this.brush = this.canvas.getContext("2d");
      this.pixels = new ImageData(raster.width, raster.height);
    }
    paintRaster(raster, colours, new Uint32Array(this.pixels.data.buffer));
    this.brush?.putImageData(this.pixels, 0, 0);
    return this.canvas;
  }
}

/**
 * Width of a column of pixels while the range changes, in device pixels: painting half of them
 * takes half the time.
 */
const COARSE = 2;

export class BlockPainter {
  private readonly raster = kept<Raster>();
  private readonly image = kept<HTMLCanvasElement>();
  private readonly colours = kept<Colours>();
  private readonly surface = new Surface();

  /** `moving`: the range is about to change again. */
  painter(
    blocks: Blocks,
    layout: StackLayout,
    range: Range,
    fills: BlockFills,
    moving: boolean,
  ): Painter {
    return (context, scale) => {
      const [whole, height] = [Math.round(scale.width), Math.round(scale.height)];
      const width = moving ? Math.ceil(whole / COARSE) : whole;
      const perByte = (scale.y(0) - scale.y(FAR)) / FAR;
      const raster = this.raster([blocks, layout, ...range, width, height, perByte], (used) => {
        const frame = { width, height, scale: perByte, used };
        return blocks.place
          ? placedRaster(blocks, layout.edges, range, frame)
          : stackRaster(blocks, timelineCells(layout, range, width), frame);
      });
      const colours = this.colours([fills, scale.ratio], () => coloursOf(fills, scale.ratio));
      const image = this.image([raster, colours], () => this.surface.show(raster, colours));
      context.imageSmoothingEnabled = false;
      context.drawImage(
        image,
        Math.round(scale.left),
        Math.round(scale.y(0)) - height,
        whole,
        height,
      );
    };
  }
}

/**
 * Path data of the outline of some rows of a block, the lowest first, that lie on each other; empty
 * if they have no place.
 */
export function outlinePath(
  blocks: Blocks,
  { edges }: StackLayout,
  rows: readonly number[],
  range: Range,
  scale: Scale,
): string {
  const row = rows[0];
  if (row === undefined) return "";
  const first = Math.max(blocks.start[row] ?? 0, momentAt(edges, range[0]));
  const end = Math.min(blocks.end[row] ?? 0, momentAt(edges, range[1]) + 1);
  const bases = basesOf(blocks, row, first, end);
  if (bases.length === 0 || Number.isNaN(bases[0])) return "";
  const bytes = rows.reduce((sum, one) => sum + (blocks.bytes[one] ?? 0), 0);
  const across = scale.width / (range[1] - range[0]);
  const x = (moment: number): number => scale.left + ((edges[moment] ?? 0) - range[0]) * across;
  // The block's new place; changes within a pixel count once.
  const steps: { x: number; base: number }[] = [];
  bases.forEach((base, index) => {
    const last = steps.at(-1);
    if (last?.base === base) return;
    const at = x(first + index);
    if (last && at - last.x < scale.ratio) last.base = base;
    else steps.push({ x: at, base });
  });
  const y = (value: number): string => scale.y(value).toFixed(1);
  const start = steps[0]?.x ?? 0;
  // At least two pixels wide, so that the outline of a short life is seen.
  const right = Math.max(x(end), start + 2 * scale.ratio).toFixed(1);
  const there = steps.map((step) => `H${step.x.toFixed(1)}V${y(step.base)}`).join("");
  const back = steps.map((step) => `V${y(step.base + bytes)}H${step.x.toFixed(1)}`).reverse();
  return `M${start.toFixed(1)} ${y(bases[0] ?? 0)}${there}H${right}${back.join("")}Z`;
}

export function outlinePainter(
  blocks: Blocks,
  layout: StackLayout,
  rows: readonly number[],
  range: Range,
  inks: { line: string; ground: string },
): Painter {
  return (context, scale) => {
    if (rows.length === 0) return;
    const path = new Path2D(outlinePath(blocks, layout, rows, range, scale));
    stroke(context, scale, path, { colour: inks.ground, width: 4.5 });
    stroke(context, scale, path, { colour: inks.line, width: 2.5 });
  };
}
