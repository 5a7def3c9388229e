import { describe, expect, it } from "vitest";

import { StackWalk, basesOf, blockAt, placedBlocks, stackedBlocks } from "./timeline-blocks";
import { blockPaths } from "./timeline-block-path";
import { timelineCells, timelineLayout } from "./timeline-layout";
import { paintRaster, placedRaster, stackRaster, type Raster } from "./timeline-raster";

/** A linear congruential generator: the same rows in every run. */
function random(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((state / 2_147_483_648) * below);
  };
}

interface Rows {
  start: Float64Array;
  end: Float64Array;
  bytes: Float64Array;
}

/** Rows with any lifetimes, some of one moment, some throughout. */
function rowsOf(seed: number, rows: number, moments: number): Rows {
  const next = random(seed);
  const start = Float64Array.from({ length: rows }, (_, row) => (row % 7 === 0 ? 0 : next(moments)));
  const end = start.map((from, row) => (row % 14 === 0 ? moments : Math.min(from + 1 + next(row % 3 === 0 ? 1 : moments), moments)));
  return { start, end, bytes: Float64Array.from({ length: rows }, () => 1 + next(9)) };
}

const shuffled = (seed: number, rows: number): Uint32Array => {
  const next = random(seed);
  const keys = Array.from({ length: rows }, () => next(1e6));
  return Uint32Array.from(keys.keys()).sort((a, b) => (keys[a] ?? 0) - (keys[b] ?? 0));
};

const MOMENTS = 40;
const ROWS = rowsOf(1, 150, MOMENTS);
const ORDER = shuffled(2, 150);
const BLOCKS = stackedBlocks(ROWS, ORDER, MOMENTS);
const isLive = (rows: Rows, row: number, moment: number): boolean => (rows.start[row] ?? 0) <= moment && moment < (rows.end[row] ?? 0);
const liveBytes = (moment: number): number => ROWS.bytes.reduce((sum, bytes, row) => sum + (isLive(ROWS, row, moment) ? bytes : 0), 0);
const EDGES = Float64Array.from({ length: MOMENTS + 1 }, (_, moment) => moment);
const LAYOUT = timelineLayout(EDGES, [Float64Array.from({ length: MOMENTS }, (_, moment) => liveBytes(moment))]);

const columnOf = ({ rows, height }: Raster, x: number): number[] => [...rows.subarray(x * height, (x + 1) * height)];

describe("a stack of blocks", () => {
  it("loses no byte at any moment, however far it is from the last one", () => {
    for (const stride of [1, 3, 17]) {
      const walk = new StackWalk(BLOCKS);
      for (let moment = 0; moment < MOMENTS; moment += stride) {
        walk.to(moment);
        const expected = [...ORDER].filter((row) => isLive(ROWS, row, moment));
        expect([...walk.live.subarray(0, walk.count)].map((rank) => ORDER[rank])).toEqual(expected);
        expect(walk.base[walk.count]).toBe(liveBytes(moment));
        expected.forEach((row, at) => expect((walk.base[at + 1] ?? 0) - (walk.base[at] ?? 0)).toBe(ROWS.bytes[row]));
      }
    }
  });

  it("is hit where it lies", () => {
    for (let moment = 0; moment < MOMENTS; moment += 1) {
      let base = 0;
      for (const row of ORDER) {
        if (!isLive(ROWS, row, moment)) continue;
        expect(blockAt(BLOCKS, moment, base)).toBe(row);
        base += ROWS.bytes[row] ?? 0;
        expect(blockAt(BLOCKS, moment, base - 0.01)).toBe(row);
      }
      expect(blockAt(BLOCKS, moment, base)).toBe(-1);
    }
    expect(blockAt(BLOCKS, 0, -1)).toBe(-1);
  });

  it("knows where a row lies at all of its moments", () => {
    for (let row = 0; row < 150; row += 1) {
      const [first, end] = [ROWS.start[row] ?? 0, ROWS.end[row] ?? 0];
      basesOf(BLOCKS, row, first, end).forEach((base, index) => expect(blockAt(BLOCKS, first + index, base)).toBe(row));
    }
  });

  it("shows each byte as a pixel where there is one for it", () => {
    const height = 1 + Math.max(...LAYOUT.total);
    const raster = stackRaster(BLOCKS, timelineCells(LAYOUT, [0, MOMENTS], MOMENTS), MOMENTS, height, 1);
    for (let moment = 0; moment < MOMENTS; moment += 1) {
      const expected = [...ORDER].flatMap((row) => (isLive(ROWS, row, moment) ? Array<number>(ROWS.bytes[row] ?? 0).fill(row) : []));
      expect(columnOf(raster, moment)).toEqual([...expected, ...Array<number>(height - expected.length).fill(-1)]);
    }
  });

  it("keeps its height where there are fewer pixels than bytes and moments", () => {
    for (const [width, scale] of [
      [11, 0.05],
      [333, 0.13],
    ] as const) {
      const cells = timelineCells(LAYOUT, [0, MOMENTS], width);
      const raster = stackRaster(BLOCKS, cells, width, 200, scale);
      for (const { from, moment } of cells.filter(({ from }) => Number.isInteger(from))) {
        const filled = columnOf(raster, from).filter((row) => row >= 0).length;
        expect(filled).toBe(Math.round(liveBytes(moment) * scale));
      }
    }
  });

  it("shows the same in a part of the range", () => {
    const height = 1 + Math.max(...LAYOUT.total);
    const whole = stackRaster(BLOCKS, timelineCells(LAYOUT, [0, MOMENTS], MOMENTS), MOMENTS, height, 1);
    const part = stackRaster(BLOCKS, timelineCells(LAYOUT, [20, 30], 10), 10, height, 1);
    for (let x = 0; x < 10; x += 1) expect(columnOf(part, x)).toEqual(columnOf(whole, 20 + x));
  });

  it("is drawn with a path for each row that can be seen", () => {
    const box = { left: 0, ground: 1000, width: MOMENTS, scale: 1 };
    const paths = blockPaths(BLOCKS, LAYOUT, [0, MOMENTS], box);
    expect(new Set(paths.map(({ row }) => row)).size).toBe(150);
    expect(blockPaths(BLOCKS, LAYOUT, [0, MOMENTS], { ...box, scale: 1e-3 })).toEqual([]);
    const one = stackedBlocks({ start: Float64Array.of(1), end: Float64Array.of(3), bytes: Float64Array.of(5) }, Uint32Array.of(0), 4);
    const layout = timelineLayout(Float64Array.of(0, 10, 20, 30, 40), [Float64Array.of(0, 5, 5, 0)]);
    expect(blockPaths(one, layout, [0, 40], { left: 0, ground: 100, width: 40, scale: 2 })).toEqual([
      { row: 0, path: "M10 100H30L30 90H10Z" },
    ]);
  });
});

describe("blocks at places of their own", () => {
  const rows: Rows = {
    start: Float64Array.of(0, 2, 0, 6),
    end: Float64Array.of(10, 4, 10, 8),
    bytes: Float64Array.of(4, 3, 2, 5),
  };
  const edges = Float64Array.from({ length: 11 }, (_, moment) => moment);
  const blocks = placedBlocks(rows, Float64Array.of(0, 6, NaN, 6), 10);

  it("are rectangles with gaps; those without a place are not drawn", () => {
    const raster = placedRaster(blocks, edges, [0, 10], 10, 12, 1);
    expect(columnOf(raster, 1)).toEqual([0, 0, 0, 0, ...Array<number>(8).fill(-1)]);
    expect(columnOf(raster, 3)).toEqual([0, 0, 0, 0, -1, -1, 1, 1, 1, -1, -1, -1]);
    expect(columnOf(raster, 7)).toEqual([0, 0, 0, 0, -1, -1, 3, 3, 3, 3, 3, -1]);
  });

  it("are hit where they lie", () => {
    expect([0, 3.9, 4, 6, 8.9, 9].map((value) => blockAt(blocks, 2, value))).toEqual([0, 0, -1, 1, 1, -1]);
    expect([...basesOf(blocks, 3, 6, 8)]).toEqual([6, 6]);
  });

  it("are culled outside of the range, and never thinner than a pixel", () => {
    const far = placedRaster(blocks, edges, [4, 6], 20, 12, 1);
    expect(new Set(far.rows)).toEqual(new Set([0, -1]));
    const small = placedRaster(blocks, edges, [0, 10], 3, 3, 0.01);
    expect(new Set(small.rows)).toEqual(new Set([0, 1, -1]));
  });
});

describe("colours", () => {
  it("fill the pixels from the top row on and set large blocks apart", () => {
    const rows: Rows = { start: Float64Array.of(0, 0), end: Float64Array.of(1, 1), bytes: Float64Array.of(5, 2) };
    const blocks = stackedBlocks(rows, Uint32Array.of(0, 1), 1);
    const layout = timelineLayout(Float64Array.of(0, 1), [Float64Array.of(7)]);
    const raster = stackRaster(blocks, timelineCells(layout, [0, 1], 1), 1, 9, 1);
    const out = new Uint32Array(9);
    paintRaster(raster, { tiles: [Uint32Array.of(11), Uint32Array.of(22)], size: 1, styles: Uint8Array.of(0, 1), edge: 99 }, out);
    expect([...out]).toEqual([0, 0, 22, 22, 99, 11, 11, 11, 11]);
  });
});
