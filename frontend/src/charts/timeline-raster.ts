/**
 * Blocks as pixels: which row each pixel shows. The work is bounded by pixels and events, not by the corners of polygons, which are too
 * many where thousands of blocks shift. Pure.
 */

import { momentAt, type Cell } from "./timeline-layout";
import { StackWalk, type Blocks } from "./timeline-blocks";
import type { Range } from "./axis";

/** Row of each pixel, column after column, each from the ground up; -1 where there is none. */
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
export interface Frame {
  width: number;
  height: number;
  scale: number;
  used?: Raster | undefined;
}

/** Blocks that reach no pixel's edge are left out; the height of each column is exact to half a pixel. */
export function stackRaster(blocks: Blocks, cells: readonly Cell[], { width, height, scale, used }: Frame): Raster {
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

/** Paints a column anew from a place of the stack on; returns its height. */
function paintColumn(column: Int32Array, { live, base, count }: StackWalk, { order }: Blocks, first: number, top: number, scale: number) {
  let y = Math.round((base[first] as number) * scale);
  for (let at = first; at < count; at += 1) {
    const next = Math.round((base[at + 1] as number) * scale);
    if (next > y) column.fill(order[live[at] as number] as number, y, next);
    y = next;
  }
  if (top > y) column.fill(EMPTY, y, top);
  return y;
}

/** Blocks at their places in a range of the x-axis with these edges of moments. Each is at least one pixel wide and high. */
export function placedRaster(blocks: Blocks, edges: Float64Array, range: Range, { width, height, scale, used }: Frame): Raster {
  const raster = emptyRaster(width, height, used);
  const across = width / (range[1] - range[0]);
  const [first, last] = [momentAt(edges, range[0]), momentAt(edges, range[1])];
  for (const row of blocks.order) {
    const [start, end, place] = [blocks.start[row] as number, blocks.end[row] as number, blocks.place?.[row] ?? NaN];
    if (end <= first || start > last || Number.isNaN(place)) continue;
    const from = Math.max(Math.floor(((edges[start] as number) - range[0]) * across), 0);
    const to = Math.min(Math.max(Math.floor(((edges[end] as number) - range[0]) * across), from + 1), width);
    const low = Math.floor(place * scale);
    const high = Math.max(Math.round((place + (blocks.bytes[row] as number)) * scale), low + 1);
    for (let x = from; x < to; x += 1) raster.rows.fill(row, x * height + low, Math.min(x * height + high, (x + 1) * height));
  }
  return raster;
}

/** Colours of pixels as 32-bit words: a square for each style, repeated over the plot, and the style of each row. */
export interface Colours {
  tiles: readonly Uint32Array[];
  /** Side of the squares in pixels. */
  size: number;
  styles: Uint8Array;
  /** Colour of the edges of blocks that are large enough to have one. */
  edge: number;
}

/** From this many pixels on, a block is set off from its neighbours. */
const APART = 4;

/** The raster in colours, row after row from the top, as an image has them. */
export function paintRaster({ rows, width, height }: Raster, { tiles, size, styles, edge }: Colours, out: Uint32Array): void {
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
              if (rows[left + at] !== row && rows[right + at] === row) out[(height - 1 - at) * width + x] = edge;
          out[(height - end) * width + x] = edge;
        }
      }
      y = end;
    }
  }
}
