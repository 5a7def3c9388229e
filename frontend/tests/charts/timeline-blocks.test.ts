import { describe, expect, it } from "vitest";

import {
  StackWalk,
  basesOf,
  blockAt,
  countThin,
  stackedBlocks,
  blockPaths,
} from "../../src/charts/timeline-blocks";
import { stackLayout } from "../../src/charts/layout";
import { MOMENTS, ROWS, ORDER, BLOCKS, isLive, liveBytes, PLACED, LAYOUT } from "./blocks-cases";

describe("a stack of blocks", () => {
  it("loses no byte at any moment, however far it is from the last one", () => {
    for (const stride of [1, 3, 17]) {
      const walk = new StackWalk(BLOCKS);
      for (let moment = 0; moment < MOMENTS; moment += stride) {
        walk.to(moment);
        const expected = [...ORDER].filter((row) => isLive(ROWS, row, moment));
        expect([...walk.live.subarray(0, walk.count)].map((rank) => ORDER[rank])).toEqual(expected);
        expect(walk.base[walk.count]).toBe(liveBytes(moment));
        expected.forEach((row, at) =>
          expect((walk.base[at + 1] ?? 0) - (walk.base[at] ?? 0)).toBe(ROWS.bytes[row]),
        );
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
      basesOf(BLOCKS, row, first, end).forEach((base, index) =>
        expect(blockAt(BLOCKS, first + index, base)).toBe(row),
      );
    }
  });
});

describe("blocks at places of their own", () => {
  it("are hit where they lie", () => {
    expect([0, 3.9, 4, 6, 8.9, 9].map((value) => blockAt(PLACED, 2, value))).toEqual([
      0, 0, -1, 1, 1, -1,
    ]);
    expect([...basesOf(PLACED, 3, 6, 8)]).toEqual([6, 6]);
  });
});

describe("blocks smaller than a pixel", () => {
  const edges = Float64Array.from({ length: MOMENTS + 1 }, (_, moment) => moment);
  const own = Float64Array.from({ length: 150 }, (_, row) => row);

  it("are those that are too low, and those that are too short", () => {
    const expected = (from: number, to: number, low: number, short: number): number =>
      [...own].filter((row) => {
        const [start, end] = [ROWS.start[row] ?? 0, ROWS.end[row] ?? 0];
        return start <= to && end >= from && ((ROWS.bytes[row] ?? 0) < low || end - start < short);
      }).length;
    const thin = (from: number, to: number, across: number, up: number): number =>
      countThin(BLOCKS, own, { edges, range: [from, to], across, up });
    expect(thin(0, MOMENTS, 1, 1)).toBe(0);
    expect(thin(0, MOMENTS, 1, 0.2)).toBe(expected(0, MOMENTS, 5, 1));
    expect(thin(0, MOMENTS, 0.5, 1)).toBe(expected(0, MOMENTS, 1, 2));
    expect(thin(20, 30, 0.5, 0.2)).toBe(expected(20, 30, 5, 2));
  });

  it("are counted once for all rows of a tensor", () => {
    const pairs = own.map((row) => Math.floor(row / 2));
    const spans = {
      start: new Float64Array(150),
      end: new Float64Array(150).fill(MOMENTS),
      bytes: new Float64Array(150).fill(2),
    };
    const seen = { edges, range: [0, MOMENTS] as const, across: 1 };
    expect(countThin(spans, pairs, { ...seen, up: 0.2 })).toBe(75);
    expect(countThin(spans, pairs, { ...seen, up: 0.25 })).toBe(0);
  });
});

describe("paths of blocks", () => {
  it("are one for each row that can be seen", () => {
    const box = { left: 0, ground: 1000, width: MOMENTS, scale: 1 };
    const paths = blockPaths(BLOCKS, LAYOUT, [0, MOMENTS], box);
    expect(new Set(paths.map(({ row }) => row)).size).toBe(150);
    expect(blockPaths(BLOCKS, LAYOUT, [0, MOMENTS], { ...box, scale: 1e-3 })).toEqual([]);
    const one = stackedBlocks(
      { start: Float64Array.of(1), end: Float64Array.of(3), bytes: Float64Array.of(5) },
      Uint32Array.of(0),
      4,
    );
    const layout = stackLayout(Float64Array.of(0, 10, 20, 30, 40), [Float64Array.of(0, 5, 5, 0)]);
    expect(blockPaths(one, layout, [0, 40], { left: 0, ground: 100, width: 40, scale: 2 })).toEqual(
      [{ row: 0, path: "M10 100H30L30 90H10Z" }],
    );
  });

  it("are those of the moments in a range, the last one included, where blocks have places", () => {
    // One block for each of four moments, 10 wide.
    const columns = {
      start: Float64Array.of(0, 1, 2, 3),
      end: Float64Array.of(1, 2, 3, 4),
      bytes: Float64Array.of(5, 5, 5, 5),
    };
    const blocks = {
      ...stackedBlocks(columns, Uint32Array.of(0, 1, 2, 3), 4),
      place: Float64Array.of(0, 10, 20, NaN),
    };
    const layout = stackLayout(Float64Array.of(0, 10, 20, 30, 40), [Float64Array.of(5, 5, 5, 5)]);
    const rowsIn = (from: number, to: number): number[] =>
      blockPaths(blocks, layout, [from, to], {
        left: 0,
        ground: 100,
        width: to - from,
        scale: 2,
      }).map(({ row }) => row);
    expect(rowsIn(5, 15)).toEqual([0, 1]);
    expect(rowsIn(11, 25)).toEqual([1, 2]);
    // Without a place there is no path.
    expect(rowsIn(0, 40)).toEqual([0, 1, 2]);
  });
});
