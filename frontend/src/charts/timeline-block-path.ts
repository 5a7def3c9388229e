/** Blocks as paths of a saved drawing. Pure. */

import type { Range } from "./axis";
import { StackWalk, type Blocks } from "./timeline-blocks";
import { momentAt, timelineCells, type TimelineLayout } from "./timeline-layout";

export interface BlockPath {
  row: number;
  /** Path data of an SVG. */
  path: string;
}

interface Box {
  left: number;
  /** Of the y-axis, which grows downward. */
  ground: number;
  width: number;
  /** Pixels per byte. */
  scale: number;
}

/** Blocks and parts of them below this height in pixels would not be seen in a drawing. */
const LEAST = 0.25;

const round = (value: number): number => Math.round(value * 100) / 100;

/** The paths of all blocks in a range that are high enough to be seen, in the order of painting. */
export function blockPaths(blocks: Blocks, layout: TimelineLayout, range: Range, box: Box): BlockPath[] {
  return blocks.place ? placedPaths(blocks, layout.edges, range, box) : stackedPaths(blocks, layout, range, box);
}

function placedPaths({ order, place, start, end, bytes }: Blocks, edges: Float64Array, range: Range, box: Box): BlockPath[] {
  const [first, last] = [momentAt(edges, range[0]), momentAt(edges, range[1])];
  const x = (moment: number): number => {
    const share = ((edges[moment] ?? 0) - range[0]) / (range[1] - range[0]);
    return round(box.left + Math.min(Math.max(share, 0), 1) * box.width);
  };
  return [...order].flatMap((row): BlockPath[] => {
    const [from, to, base, size] = [start[row] ?? 0, end[row] ?? 0, place?.[row] ?? NaN, bytes[row] ?? 0];
    if (to <= first || from > last || Number.isNaN(base)) return [];
    const top = round(box.ground - (base + size) * box.scale);
    return [{ row, path: `M${x(from)} ${round(box.ground - base * box.scale)}V${top}H${x(to)}V${round(box.ground - base * box.scale)}Z` }];
  });
}

/** Runs of cells in which a block lies at one height. */
interface Run {
  from: number;
  to: number;
  base: number;
}

function stackedPaths(blocks: Blocks, layout: TimelineLayout, range: Range, box: Box): BlockPath[] {
  const walk = new StackWalk(blocks);
  const runs = new Map<number, Run[]>();
  for (const { from, to, moment } of timelineCells(layout, range, box.width)) {
    walk.to(moment);
    for (let at = 0; at < walk.count; at += 1) {
      const row = blocks.order[walk.live[at] ?? 0] ?? 0;
      if ((blocks.bytes[row] ?? 0) * box.scale < LEAST) continue;
      const own = runs.get(row) ?? [];
      const last = own.at(-1);
      if (last && last.to === from && last.base === walk.base[at]) last.to = to;
      else own.push({ from, to, base: walk.base[at] ?? 0 });
      runs.set(row, own);
    }
  }
  return [...runs].map(([row, own]) => ({ row, path: outline(own, (blocks.bytes[row] ?? 0) * box.scale, box) }));
}

/** There along the lower side, back along the upper one. */
function outline(runs: readonly Run[], height: number, box: Box): string {
  const low = runs.map(({ from, to, base }) => ({
    from: round(box.left + from),
    to: round(box.left + to),
    y: box.ground - base * box.scale,
  }));
  const there = low.map(({ from, to, y }) => `L${from} ${round(y)}H${to}`).join("");
  const back = [...low].reverse().map(({ from, to, y }) => `L${to} ${round(y - height)}H${from}`);
  return `M${there.slice(1)}${back.join("")}Z`;
}
