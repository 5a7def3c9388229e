import { describe, expect, it } from "vitest";

import { StackWalk, basesOf, blockAt } from "../../src/charts/timeline-blocks";
import { MOMENTS, ROWS, ORDER, BLOCKS, isLive, liveBytes, PLACED } from "./blocks-cases";

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
});

describe("blocks at places of their own", () => {
  it("are hit where they lie", () => {
    expect([0, 3.9, 4, 6, 8.9, 9].map((value) => blockAt(PLACED, 2, value))).toEqual([0, 0, -1, 1, 1, -1]);
    expect([...basesOf(PLACED, 3, 6, 8)]).toEqual([6, 6]);
  });
});
