import { describe, expect, it } from "vitest";

import { stackedBlocks } from "../../src/charts/timeline-blocks";
import { blockPaths } from "../../src/charts/timeline-block-path";
import { timelineLayout } from "../../src/charts/timeline-layout";
import { MOMENTS, BLOCKS, LAYOUT } from "./blocks-cases";

describe("paths of blocks", () => {
  it("are one for each row that can be seen", () => {
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

  it("are those of the moments in a range, the last one included, where blocks have places", () => {
    // One block for each of four moments, 10 wide.
    const columns = { start: Float64Array.of(0, 1, 2, 3), end: Float64Array.of(1, 2, 3, 4), bytes: Float64Array.of(5, 5, 5, 5) };
    const blocks = { ...stackedBlocks(columns, Uint32Array.of(0, 1, 2, 3), 4), place: Float64Array.of(0, 10, 20, NaN) };
    const layout = timelineLayout(Float64Array.of(0, 10, 20, 30, 40), [Float64Array.of(5, 5, 5, 5)]);
    const rowsIn = (from: number, to: number): number[] =>
      blockPaths(blocks, layout, [from, to], { left: 0, ground: 100, width: to - from, scale: 2 }).map(({ row }) => row);
    expect(rowsIn(5, 15)).toEqual([0, 1]);
    expect(rowsIn(11, 25)).toEqual([1, 2]);
    // Without a place there is no path.
    expect(rowsIn(0, 40)).toEqual([0, 1, 2]);
  });
});
