import { describe, expect, it } from "vitest";

import { paintRaster, placedRaster, stackRaster } from "../../src/charts/timeline-block-paint";
import { stackedBlocks } from "../../src/charts/timeline-blocks";
import { timelineCells } from "../../src/charts/timeline-layout";
import { stackLayout } from "../../src/charts/layout";
import {
  MOMENTS,
  ROWS,
  ORDER,
  BLOCKS,
  isLive,
  liveBytes,
  LAYOUT,
  columnOf,
  PLACED_EDGES,
  PLACED,
  type Rows,
} from "./blocks-cases";

describe("the raster of a stack", () => {
  it("shows each byte as a pixel where there is one for it", () => {
    const height = 1 + Math.max(...LAYOUT.total);
    const raster = stackRaster(BLOCKS, timelineCells(LAYOUT, [0, MOMENTS], MOMENTS), {
      width: MOMENTS,
      height,
      scale: 1,
    });
    for (let moment = 0; moment < MOMENTS; moment += 1) {
      const expected = [...ORDER].flatMap((row) =>
        isLive(ROWS, row, moment) ? Array<number>(ROWS.bytes[row] ?? 0).fill(row) : [],
      );
      expect(columnOf(raster, moment)).toEqual([
        ...expected,
        ...Array<number>(height - expected.length).fill(-1),
      ]);
    }
  });

  it("keeps its height where there are fewer pixels than bytes and moments", () => {
    for (const [width, scale] of [
      [11, 0.05],
      [333, 0.13],
    ] as const) {
      const cells = timelineCells(LAYOUT, [0, MOMENTS], width);
      const raster = stackRaster(BLOCKS, cells, { width, height: 200, scale });
      for (const { from, moment } of cells.filter(({ from }) => Number.isInteger(from))) {
        const filled = columnOf(raster, from).filter((row) => row >= 0).length;
        expect(filled).toBe(Math.round(liveBytes(moment) * scale));
      }
    }
  });

  it("shows the same in a part of the range", () => {
    const height = 1 + Math.max(...LAYOUT.total);
    const whole = stackRaster(BLOCKS, timelineCells(LAYOUT, [0, MOMENTS], MOMENTS), {
      width: MOMENTS,
      height,
      scale: 1,
    });
    const part = stackRaster(BLOCKS, timelineCells(LAYOUT, [20, 30], 10), {
      width: 10,
      height,
      scale: 1,
    });
    for (let x = 0; x < 10; x += 1) expect(columnOf(part, x)).toEqual(columnOf(whole, 20 + x));
  });
});

describe("the raster of placed blocks", () => {
  it("are rectangles with gaps; those without a place are not drawn", () => {
    const raster = placedRaster(PLACED, PLACED_EDGES, [0, 10], { width: 10, height: 12, scale: 1 });
    expect(columnOf(raster, 1)).toEqual([0, 0, 0, 0, ...Array<number>(8).fill(-1)]);
    expect(columnOf(raster, 3)).toEqual([0, 0, 0, 0, -1, -1, 1, 1, 1, -1, -1, -1]);
    expect(columnOf(raster, 7)).toEqual([0, 0, 0, 0, -1, -1, 3, 3, 3, 3, 3, -1]);
  });

  it("are culled outside of the range, and never thinner than a pixel", () => {
    const far = placedRaster(PLACED, PLACED_EDGES, [4, 6], { width: 20, height: 12, scale: 1 });
    expect(new Set(far.rows)).toEqual(new Set([0, -1]));
    const small = placedRaster(PLACED, PLACED_EDGES, [0, 10], { width: 3, height: 3, scale: 0.01 });
    expect(new Set(small.rows)).toEqual(new Set([0, 1, -1]));
  });
});

describe("colours", () => {
  it("fill the pixels from the top row on and set large blocks apart", () => {
    const rows: Rows = {
      start: Float64Array.of(0, 0),
      end: Float64Array.of(1, 1),
      bytes: Float64Array.of(5, 2),
    };
    const blocks = stackedBlocks(rows, Uint32Array.of(0, 1), 1);
    const layout = stackLayout(Float64Array.of(0, 1), [Float64Array.of(7)]);
    const raster = stackRaster(blocks, timelineCells(layout, [0, 1], 1), {
      width: 1,
      height: 9,
      scale: 1,
    });
    const out = new Uint32Array(9);
    paintRaster(
      raster,
      {
        tiles: [Uint32Array.of(11), Uint32Array.of(22)],
        size: 1,
        styles: Uint8Array.of(0, 1),
        edge: 99,
      },
      out,
    );
    expect([...out]).toEqual([0, 0, 22, 22, 99, 11, 11, 11, 11]);
  });
});
