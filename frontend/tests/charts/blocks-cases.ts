/** Stacks of blocks: 150 random rows, and four at places of their own. */

import type { Raster } from "../../src/charts/timeline-block-paint";
import { placedBlocks, stackedBlocks } from "../../src/charts/timeline-blocks";
import { stackLayout } from "../../src/charts/layout";

/** A linear congruential generator: the same rows in every run. */
function random(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((state / 2_147_483_648) * below);
  };
}

export interface Rows {
  start: Float64Array;
  end: Float64Array;
  bytes: Float64Array;
}

/** Rows with any lifetimes, some of one moment, some throughout. */
function rowsOf(seed: number, rows: number, moments: number): Rows {
  const next = random(seed);
  const start = Float64Array.from({ length: rows }, (_, row) =>
    row % 7 === 0 ? 0 : next(moments),
  );
  const end = start.map((from, row) =>
    row % 14 === 0 ? moments : Math.min(from + 1 + next(row % 3 === 0 ? 1 : moments), moments),
  );
  return { start, end, bytes: Float64Array.from({ length: rows }, () => 1 + next(9)) };
}

const shuffled = (seed: number, rows: number): Uint32Array => {
  const next = random(seed);
  const keys = Array.from({ length: rows }, () => next(1e6));
  return Uint32Array.from(keys.keys()).sort((a, b) => (keys[a] ?? 0) - (keys[b] ?? 0));
};

export const MOMENTS = 40;
export const ROWS = rowsOf(1, 150, MOMENTS);

export const ORDER = shuffled(2, 150);
export const BLOCKS = stackedBlocks(ROWS, ORDER, MOMENTS);

export const isLive = (rows: Rows, row: number, moment: number): boolean =>
  (rows.start[row] ?? 0) <= moment && moment < (rows.end[row] ?? 0);

export const liveBytes = (moment: number): number =>
  ROWS.bytes.reduce((sum, bytes, row) => sum + (isLive(ROWS, row, moment) ? bytes : 0), 0);

const EDGES = Float64Array.from({ length: MOMENTS + 1 }, (_, moment) => moment);

export const LAYOUT = stackLayout(EDGES, [
  Float64Array.from({ length: MOMENTS }, (_, moment) => liveBytes(moment)),
]);

export const columnOf = ({ rows, height }: Raster, x: number): number[] => [
  ...rows.subarray(x * height, (x + 1) * height),
];

const PLACED_ROWS: Rows = {
  start: Float64Array.of(0, 2, 0, 6),
  end: Float64Array.of(10, 4, 10, 8),
  bytes: Float64Array.of(4, 3, 2, 5),
};

export const PLACED_EDGES = Float64Array.from({ length: 11 }, (_, moment) => moment);
export const PLACED = placedBlocks(PLACED_ROWS, Float64Array.of(0, 6, NaN, 6), 10);
