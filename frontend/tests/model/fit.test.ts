import { readFileSync } from "node:fs";

import { describe, expect, it } from "vitest";

import { wouldFit, type Fit, type FitMap } from "../../src/model/fit";

interface GoldenMap {
  device: string;
  pool_bytes: number | null;
  in_use_bytes: number | null;
  capacity_bytes: number | null;
  complete: boolean;
  /** Bytes, state and region of each chunk. */
  chunks: [number, number, number][];
  region_bytes: number[];
}
interface Golden {
  states: string[];
  cases: { name: string; map: GoldenMap; fits: Fit[] }[];
}
const golden = JSON.parse(readFileSync(new URL("../../../tests/golden/fits.json", import.meta.url), "utf8")) as Golden;

function mapOf({ chunks, region_bytes, ...map }: GoldenMap): FitMap {
  return {
    ...map,
    states: golden.states,
    rows: chunks.length,
    bytes: Float64Array.from(chunks, ([bytes]) => bytes),
    state: Float64Array.from(chunks, ([, state]) => state),
    region: Float64Array.from(chunks, ([, , region]) => region),
    regions: region_bytes.map((bytes, index) => ({ address: index * 2 ** 40, bytes })),
  };
}

describe.each(golden.cases)("$name", ({ map, fits }) => {
  it.each(fits)("$requested_bytes bytes: $fits", (fit) => {
    expect(wouldFit(mapOf(map), fit.requested_bytes)).toEqual(fit);
  });
});

it("knows every answer", () => {
  const all = golden.cases.flatMap(({ fits }) => fits.map(({ fits: answer }) => answer));
  expect(new Set(all)).toEqual(new Set([true, false, null]));
});

describe("the sentence", () => {
  const MIB = 2 ** 20;
  /** Free chunks of 1, 4 and 300 MiB between chunks in use, and a free region of 2 MiB. */
  const map: FitMap = mapOf({
    device: "GPU:0",
    pool_bytes: 320 * MIB,
    in_use_bytes: 13 * MIB,
    capacity_bytes: 330 * MIB,
    complete: true,
    chunks: [
      [MIB, 0, 0],
      [6 * MIB, 1, 0],
      [4 * MIB, 0, 0],
      [7 * MIB, 1, 0],
      [300 * MIB, 0, 0],
      [2 * MIB, 0, 1],
    ],
    region_bytes: [318 * MIB, 2 * MIB],
  });
  const reason = (requested: number, changed: Partial<FitMap> = {}): string => wouldFit({ ...map, ...changed }, requested).reason;

  it("names the chunk and what remains of it", () => {
    expect(reason(4 * MIB)).toBe("A free chunk of 4.0 MiB serves the request: an exact fit.");
    expect(reason(3 * MIB)).toBe(
      "A free chunk of 4.0 MiB serves the request: the allocator does not split it, because the chunk is smaller than twice the request.",
    );
    // 300 MiB is less than twice 160 MiB, but more than 128 MiB would be left over.
    expect(reason(160 * MIB)).toBe("A free chunk of 300 MiB serves the request: the allocator splits it and 140 MiB stay free.");
    expect(reason(1)).toBe(
      "A free chunk of 1.0 MiB serves the request: the allocator splits it and 1.0 MiB stay free. (The allocator rounds the request up to 256 bytes.)",
    );
  });

  it("says how the pool could still serve a request above the largest free chunk", () => {
    const none = "the largest free chunk is 300 MiB of 307 MiB free in the pool";
    expect(reason(301 * MIB, { capacity_bytes: 640 * MIB })).toBe(
      `No free chunk is large enough (${none}), but the pool can grow by 320 MiB if the device has that much memory.`,
    );
    expect(reason(301 * MIB)).toBe(`No free chunk is large enough: ${none}, and the pool can grow by only 10.0 MiB.`);
    expect(reason(301 * MIB, { capacity_bytes: 320 * MIB })).toBe(`No free chunk is large enough: ${none}, and the pool is at its limit.`);
    expect(reason(301 * MIB, { capacity_bytes: null })).toBe(
      `No free chunk is large enough: ${none}. Whether the pool can grow is unknown.`,
    );
  });

  it("counts unused regions on a GPU only", () => {
    const small = { rows: 1, bytes: Float64Array.of(2 * MIB), state: Float64Array.of(0), region: Float64Array.of(1) };
    const tight = { ...small, capacity_bytes: 321 * MIB };
    expect(wouldFit({ ...map, ...tight }, 3 * MIB)).toMatchObject({
      fits: true,
      reason:
        "No free chunk is large enough (the largest free chunk is 2.0 MiB of 2.0 MiB free in the pool), but the allocator can release unused regions (2.0 MiB) and reserve a larger one.",
    });
    expect(wouldFit({ ...map, ...tight, device: "CPU:0" }, 3 * MIB).fits).toBe(false);
  });

  it("is unknown where chunks of unknown state could be free", () => {
    const partly = { complete: false, capacity_bytes: 320 * MIB, in_use_bytes: 10 * MIB };
    // 320 − 10 MiB in use − 307 MiB known to be free: 3 MiB may lie next to the chunk of 300 MiB.
    expect(reason(303 * MIB, partly)).toBe(
      "Unknown: the largest free chunk is 300 MiB of 307 MiB free in the pool, but the state of some chunks is unknown.",
    );
    expect(wouldFit({ ...map, ...partly }, 304 * MIB).fits).toBe(false);
  });
});
