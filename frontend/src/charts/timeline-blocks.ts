/**
 * Rectangles over the moments of a step, stacked on each other or each at a place of its own. Pure.
 */

import { lowerBound, clamp } from "../lib/search";
import type { Range } from "./axis";
import type { StackLayout } from "./layout";
import { momentAt, timelineCells } from "./timeline-layout";

/** Columns of the rows: first moment, first moment after it, height. */
interface Spans {
  start: Float64Array;
  end: Float64Array;
  bytes: Float64Array;
}

export interface Blocks extends Spans {
  /** Rows of the stack, the lowest first; of placed blocks, in the order of painting. */
  order: Uint32Array;
  rank: Uint32Array;
  /** Lower end of each row, NaN if it has none; null: they are stacked. */
  place: Float64Array | null;
  /** Ranks by their first moment, and by the first moment after them. */
  begins: Index;
  ends: Index;
}

/**
 * Ranks in the order of a moment of theirs: those of moment m are at `first[m]` to before `first[m
 * + 1]`, ascending.
 */
interface Index {
  ranks: Uint32Array;
  first: Uint32Array;
}

function indexOf(order: Uint32Array, moment: Float64Array, moments: number): Index {
  const first = new Uint32Array(moments + 2);
  const of = (row: number): number => Math.min(moment[row] ?? 0, moments);
  for (const row of order) first[of(row) + 1] = (first[of(row) + 1] ?? 0) + 1;
  for (let at = 1; at < first.length; at += 1) first[at] = (first[at] ?? 0) + (first[at - 1] ?? 0);
  const next = Uint32Array.from(first);
  const ranks = new Uint32Array(order.length);
  order.forEach((row, rank) => {
    const at = next[of(row)] ?? 0;
    ranks[at] = rank;
    next[of(row)] = at + 1;
  });
  return { ranks, first };
}

function blocksOf(
  spans: Spans,
  order: Uint32Array,
  place: Float64Array | null,
  moments: number,
): Blocks {
  const rank = new Uint32Array(order.length);
  order.forEach((row, at) => (rank[row] = at));
  const { start, end, bytes } = spans;
  const [begins, ends] = [indexOf(order, start, moments), indexOf(order, end, moments)];
  return { start, end, bytes, order, rank, place, begins, ends };
}

export const stackedBlocks = (spans: Spans, order: Uint32Array, moments: number): Blocks =>
  blocksOf(spans, order, null, moments);

/**
 * The smallest are painted last, so that none is hidden below a neighbor that is drawn at least one
 * pixel high.
 */
export function placedBlocks(spans: Spans, place: Float64Array, moments: number): Blocks {
  const order = Uint32Array.from(place.keys()).sort(
    (a, b) => (spans.bytes[b] ?? 0) - (spans.bytes[a] ?? 0),
  );
  return blocksOf(spans, order, place, moments);
}

const lives = ({ start, end }: Spans, row: number, moment: number): boolean =>
  (start[row] ?? 0) <= moment && moment < (end[row] ?? 0);

export function blockAt(blocks: Blocks, moment: number, value: number): number {
  const { order, place, bytes } = blocks;
  let base = 0;
  if (value < 0) return -1;
  for (let rank = 0; rank < order.length; rank += 1) {
    const row = order[place ? order.length - 1 - rank : rank] ?? 0;
    if (!lives(blocks, row, moment)) continue;
    const from = place ? (place[row] ?? NaN) : base;
    base += bytes[row] ?? 0;
    if (from <= value && value < from + (bytes[row] ?? 0)) return row;
  }
  return -1;
}

interface Seen {
  edges: Float64Array;
  range: readonly [number, number];
  across: number;
  up: number;
}

/**
 * How many blocks that live in the range are narrower or lower than a pixel; rows of one `group`,
 * beside each other, are one block.
 */
export function countThin(
  { start, end, bytes }: Spans,
  group: Float64Array,
  { edges, range, across, up }: Seen,
): number {
  let [thin, height] = [0, 0];
  for (let row = 0; row < group.length; row += 1) {
    height += bytes[row] as number;
    if (group[row + 1] === group[row]) continue;
    const [from, to] = [edges[start[row] as number] as number, edges[end[row] as number] as number];
    if (from <= range[1] && to >= range[0] && (height * up < 1 || (to - from) * across < 1))
      thin += 1;
    height = 0;
  }
  return thin;
}

/** Lower end of a row at the moments from `first` to before `end`. */
export function basesOf(blocks: Blocks, row: number, first: number, end: number): Float64Array {
  const { order, rank, place, bytes, begins, ends } = blocks;
  const bases = new Float64Array(Math.max(end - first, 0));
  if (place) return bases.fill(place[row] ?? NaN);
  const own = rank[row] ?? 0;
  let base = 0;
  for (let below = 0; below < own; below += 1) {
    const other = order[below] as number;
    if (lives(blocks, other, first)) base += bytes[other] as number;
  }
  const change = (ranks: Uint32Array, from: number, to: number): number => {
    let sum = 0;
    // Ranks of one moment ascend: those below come first.
    for (let at = from; at < to && (ranks[at] as number) < own; at += 1)
      sum += bytes[order[ranks[at] as number] as number] as number;
    return sum;
  };
  for (let moment = first; moment < end; moment += 1) {
    if (moment > first) {
      base += change(
        begins.ranks,
        begins.first[moment] as number,
        begins.first[moment + 1] as number,
      );
      base -= change(ends.ranks, ends.first[moment] as number, ends.first[moment + 1] as number);
    }
    bases[moment - first] = base;
  }
  return bases;
}

/** The stack at one moment after the other; only changes are computed. */
export class StackWalk {
  /** Ranks that live, the lowest first, and their lower ends. */
  live: Uint32Array;
  base: Float64Array;
  count = 0;
  private spare: Uint32Array;
  private moment = -1;

  constructor(private readonly blocks: Blocks) {
    this.live = new Uint32Array(blocks.order.length);
    this.spare = new Uint32Array(blocks.order.length);
    this.base = new Float64Array(blocks.order.length + 1);
  }

  /** Goes on to a later moment; returns the place in `live` from which on it changed. */
  to(moment: number): number {
    const fresh = this.moment < 0;
    const born = fresh ? this.all(moment) : this.between(this.blocks.begins, moment);
    const lowest = fresh
      ? 0
      : Math.min(born[0] ?? Infinity, this.between(this.blocks.ends, moment)[0] ?? Infinity);
    this.moment = moment;
    if (lowest === Infinity) return this.count;
    const changed = lowerBound(this.live, lowest, 0, this.count);
    this.merge(changed, born, moment);
    return changed;
  }

  private all(moment: number): Uint32Array {
    const { order } = this.blocks;
    const found = new Uint32Array(order.length);
    let count = 0;
    for (let rank = 0; rank < order.length; rank += 1)
      if (lives(this.blocks, order[rank] as number, moment)) found[count++] = rank;
    return found.subarray(0, count);
  }

  private between({ ranks, first }: Index, moment: number): Uint32Array {
    return ranks.slice(first[this.moment + 1] ?? 0, first[moment + 1] ?? ranks.length).sort();
  }

  /** Replaces the live ranks from a place on: those that still live, merged with the born ones. */
  private merge(from: number, born: Uint32Array, moment: number): void {
    const { order, end, bytes } = this.blocks;
    const { live, spare, base } = this;
    let [old, next, count] = [from, 0, from];
    while (old < this.count || next < born.length) {
      const isOld =
        old < this.count && (next >= born.length || (live[old] as number) < (born[next] as number));
      const rank = (isOld ? live[old++] : born[next++]) as number;
      const row = order[rank] as number;
      if ((end[row] as number) <= moment) continue;
      spare[count] = rank;
      base[count + 1] = (base[count] as number) + (bytes[row] as number);
      count += 1;
    }
    live.set(spare.subarray(from, count), from);
    this.count = count;
  }
}

export interface BlockPath {
  row: number;
  path: string;
}

interface Box {
  left: number;
  /** Of the y-axis, which grows downward. */
  ground: number;
  width: number;
  scale: number;
}

/** Blocks and parts of them below this height in pixels would not be seen in a drawing. */
const LEAST = 0.25;

const round = (value: number): number => Math.round(value * 100) / 100;

/** The paths of all blocks in a range that are high enough to be seen, in the order of painting. */
export const blockPaths = (
  blocks: Blocks,
  layout: StackLayout,
  range: Range,
  box: Box,
): BlockPath[] =>
  blocks.place
    ? placedPaths(blocks, layout.edges, range, box)
    : stackedPaths(blocks, layout, range, box);

function placedPaths(
  { order, place, start, end, bytes }: Blocks,
  edges: Float64Array,
  range: Range,
  box: Box,
): BlockPath[] {
  const [first, last] = [momentAt(edges, range[0]), momentAt(edges, range[1])];
  const x = (moment: number): number => {
    const share = ((edges[moment] ?? 0) - range[0]) / (range[1] - range[0]);
    return round(box.left + clamp(share, 0, 1) * box.width);
  };
  return [...order].flatMap((row): BlockPath[] => {
    const [from, to, base, size] = [
      start[row] ?? 0,
      end[row] ?? 0,
      place?.[row] ?? NaN,
      bytes[row] ?? 0,
    ];
    if (to <= first || from > last || Number.isNaN(base)) return [];
    const top = round(box.ground - (base + size) * box.scale);
    return [
      {
        row,
        path: `M${x(from)} ${round(box.ground - base * box.scale)}V${top}H${x(to)}V${round(box.ground - base * box.scale)}Z`,
      },
    ];
  });
}

interface Run {
  from: number;
  to: number;
  base: number;
}

function stackedPaths(blocks: Blocks, layout: StackLayout, range: Range, box: Box): BlockPath[] {
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
  return [...runs].map(([row, own]) => ({
    row,
    path: outline(own, (blocks.bytes[row] ?? 0) * box.scale, box),
  }));
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
