/** Paints the blocks of a step's timeline; what does not change from one paint to the next is kept. */

import type { Range } from "./axis";
import { fillStyle, type BandFill, type Painter, type Scale } from "./paint";
import { basesOf, type Blocks } from "./timeline-blocks";
import { momentAt, timelineCells, type TimelineLayout } from "./timeline-layout";
import { paintRaster, placedRaster, stackRaster, type Colours, type Raster } from "./timeline-raster";

export interface BlockFills {
  fills: readonly BandFill[];
  /** Index into `fills` of each row. */
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
  const edge = tileOf({ colour: ground, pattern: "plain", muted: false }, ground, size, ratio)[0] ?? 0;
  return { tiles, size, styles, edge };
}

/** A distance in bytes, large enough that its pixels are exact. */
const FAR = 2 ** 40;

/** Remembers the last result for the same parts. */
function kept<T>(): (parts: readonly unknown[], make: () => T) => T {
  let last: { parts: readonly unknown[]; value: T } | null = null;
  return (parts, make) => {
    if (last === null || parts.some((part, index) => part !== last?.parts[index])) last = { parts, value: make() };
    return last.value;
  };
}

/** A canvas and its pixels, kept from image to image: making them anew costs as much as filling them. */
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

/** Paints blocks; one for each chart, because it keeps its pixels. */
export class BlockPainter {
  private readonly raster = kept<Raster>();
  private readonly image = kept<HTMLCanvasElement>();
  private readonly colours = kept<Colours>();
  private readonly surface = new Surface();

  painter(blocks: Blocks, layout: TimelineLayout, range: Range, fills: BlockFills): Painter {
    return (context, scale) => {
      const [width, height] = [Math.round(scale.width), Math.round(scale.height)];
      const perByte = (scale.y(0) - scale.y(FAR)) / FAR;
      const raster = this.raster([blocks, layout, ...range, width, height, perByte], () =>
        blocks.place
          ? placedRaster(blocks, layout.edges, range, width, height, perByte)
          : stackRaster(blocks, timelineCells(layout, range, width), width, height, perByte),
      );
      const colours = this.colours([fills, scale.ratio], () => coloursOf(fills, scale.ratio));
      const image = this.image([raster, colours], () => this.surface.show(raster, colours));
      context.drawImage(image, Math.round(scale.left), Math.round(scale.y(0)) - height);
    };
  }
}

/** The outline of some rows of a block, the lowest first, that lie on each other. */
function outlineOf(blocks: Blocks, layout: TimelineLayout, rows: readonly number[], range: Range, scale: Scale): Path2D {
  const path = new Path2D();
  const row = rows[0] ?? 0;
  const first = Math.max(blocks.start[row] ?? 0, momentAt(layout.edges, range[0]));
  const end = Math.min(blocks.end[row] ?? 0, momentAt(layout.edges, range[1]) + 1);
  const bases = basesOf(blocks, row, first, end);
  const bytes = rows.reduce((sum, one) => sum + (blocks.bytes[one] ?? 0), 0);
  if (bases.length === 0 || Number.isNaN(bases[0])) return path;
  const corners: [number, number][] = [];
  bases.forEach((base, index) => {
    if (index > 0 && base === bases[index - 1]) return;
    if (index > 0) corners.push([scale.x(layout.edges[first + index] ?? 0), bases[index - 1] ?? 0]);
    corners.push([scale.x(layout.edges[first + index] ?? 0), base]);
  });
  corners.push([scale.x(layout.edges[end] ?? 0), bases.at(-1) ?? 0]);
  // At least two pixels wide, so that the outline of a short life is seen.
  const last = corners.at(-1);
  if (last && last[0] - (corners[0]?.[0] ?? 0) < 2 * scale.ratio) last[0] = (corners[0]?.[0] ?? 0) + 2 * scale.ratio;
  corners.forEach(([x, base], index) => path[index === 0 ? "moveTo" : "lineTo"](x, scale.y(base)));
  for (const [x, base] of corners.reverse()) path.lineTo(x, scale.y(base + bytes));
  path.closePath();
  return path;
}

/** A line around a tensor, legible on every fill. */
export function outlinePainter(
  blocks: Blocks,
  layout: TimelineLayout,
  rows: readonly number[],
  range: Range,
  inks: { line: string; ground: string; width: number },
): Painter {
  return (context, scale) => {
    if (rows.length === 0) return;
    const path = outlineOf(blocks, layout, rows, range, scale);
    context.save();
    context.lineJoin = "round";
    for (const [colour, width] of [
      [inks.ground, inks.width + 2],
      [inks.line, inks.width],
    ] as const) {
      context.strokeStyle = colour;
      context.lineWidth = width * scale.ratio;
      context.stroke(path);
    }
    context.restore();
  };
}

/** Dashed lines across the plot where unused addresses are cut out. */
export function cutsPainter(cuts: readonly number[], colour: string): Painter {
  return (context, scale) => {
    context.save();
    context.strokeStyle = colour;
    context.lineWidth = scale.ratio;
    context.setLineDash([2 * scale.ratio, 4 * scale.ratio]);
    for (const value of cuts) {
      context.beginPath();
      context.moveTo(scale.left, scale.y(value));
      context.lineTo(scale.left + scale.width, scale.y(value));
      context.stroke();
    }
    context.restore();
  };
}
