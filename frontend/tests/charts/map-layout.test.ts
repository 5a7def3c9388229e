import { describe, expect, it } from "vitest";

import { chunkAt, clamped, dragged, panned, stripCells, zoomed } from "../../src/charts/map-layout";

const chunks = {
  address: [1000, 1100, 1101, 1102, 1200],
  bytes: [100, 1, 1, 98, 800],
  key: [0, 1, 2, 2, 0],
};

describe("stripCells", () => {
  it("gives each chunk its place, and a pixel to the most bytes of those that share it", () => {
    const cells = stripCells(chunks, 0, 5, [1000, 2000], 100);
    expect(
      cells.map((cell) => ({
        ...cell,
        x: Number(cell.x.toFixed(6)),
        width: Number(cell.width.toFixed(6)),
      })),
    ).toEqual([
      { x: 0, width: 10, key: 0, chunk: 0 },
      { x: 10, width: 1, key: 1, chunk: -1 },
      { x: 10.2, width: 9.8, key: 2, chunk: 3 },
      { x: 20, width: 80, key: 0, chunk: 4 },
    ]);
  });

  it("shows only what lies inside the view", () => {
    expect(stripCells(chunks, 0, 5, [1100, 1102], 100)).toEqual([
      { x: 0, width: 50, key: 1, chunk: 1 },
      { x: 50, width: 50, key: 2, chunk: 2 },
    ]);
    expect(stripCells(chunks, 0, 2, [1150, 1160], 100)).toEqual([]);
  });

  it("is done with 50,000 chunks in no more cells than pixels", () => {
    const many = Array.from({ length: 50_000 }, (_, index) => index);
    const cells = stripCells(
      {
        address: many.map((i) => i * 256),
        bytes: many.map(() => 256),
        key: many.map((i) => i % 3),
      },
      0,
      50_000,
      [0, 50_000 * 256],
      1000,
    );
    expect(cells).toHaveLength(1000);
  });
});

describe("chunkAt", () => {
  it("finds the chunk that holds an address", () => {
    expect(
      [1000, 1099, 1100, 1101, 1199, 1999].map((address) => chunkAt(chunks, 0, 5, address)),
    ).toEqual([0, 0, 1, 2, 3, 4]);
    expect(chunkAt(chunks, 0, 5, 0)).toBe(0);
    expect(chunkAt(chunks, 0, 5, 9999)).toBe(5);
    expect(chunkAt(chunks, 2, 4, 1000)).toBe(2);
  });
});

describe("views", () => {
  const whole = [0, 100_000] as const;

  it("zoom around a place and stay inside", () => {
    expect(zoomed(whole, whole, 50_000, 0.5)).toEqual([25_000, 75_000]);
    expect(zoomed([0, 1000], whole, 0, 2)).toEqual([0, 2000]);
    expect(zoomed([0, 1000], whole, 500, 1e-9)).toEqual([372, 628]);
    expect(zoomed([0, 1000], whole, 500, 1e9)).toEqual(whole);
    expect(panned([0, 1000], whole, -1)).toEqual([0, 1000]);
    expect(panned([0, 1000], whole, 0.5)).toEqual([500, 1500]);
    expect(clamped([99_990, 99_995], whole)).toEqual([99_744, 100_000]);
  });
});

describe("dragged", () => {
  it("marks a span in either direction, and nothing for a click", () => {
    expect(dragged(300, 100, [0, 1000])).toEqual([100, 300]);
    expect(dragged(100, 106, [0, 1000])).toEqual([100, 106]);
    expect(dragged(100, 105, [0, 1000])).toBeNull();
    expect(dragged(105, 100, [0, 1000])).toBeNull();
    // BUT a zoomed view takes a shorter drag
    expect(dragged(100, 105, [0, 900])).toEqual([100, 105]);
  });
});
