import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";

import {
  blockingSentence,
  chunkFacts,
  largestLayers,
  ownerOf,
  regionStarts,
  stateOf,
  wouldFit,
  freeBySize,
  requestPlace,
  type MemoryMap,
  type Fit,
  type FitMap,
} from "../../src/model/memory-map";

const column = (...values: number[]): Float64Array => Float64Array.from(values);

/**
 * Two regions: weights, a free chunk and an activation; then a chunk of unknown owner and one of
 * unknown state.
 */
const MAP: MemoryMap = {
  run: "r",
  step: 9,
  phase: "train",
  device: "GPU:0",
  wall_time: 0,
  chunks: 5,
  in_use_bytes: 7168,
  pool_bytes: 9216,
  capacity_bytes: 1 << 20,
  complete: false,
  not_available: [],
  rows: 5,
  states: ["in_use", "free", "unknown"],
  sources: ["none", "variable", "trace"],
  owners: [
    { layer: "net/dense", category: "weights", trainable: true },
    { layer: "net/conv", category: "activations", trainable: false },
  ],
  regions: [
    { address: 0x1000, bytes: 5120 },
    { address: 0x9000, bytes: 4096 },
  ],
  summary: {
    free_bytes: 1024,
    largest_free_bytes: 1024,
    unreserved_bytes: null,
    rounding_bytes: 0,
    owned_bytes: 4096,
    owner_unknown_bytes: 3072,
    unknown_bytes: 1024,
    bins: [],
    blocking_chunks: [],
  },
  address: column(0x1000, 0x1800, 0x1c00, 0x9000, 0x9c00),
  bytes: column(2048, 1024, 2048, 3072, 1024),
  requested_bytes: column(2000, NaN, NaN, NaN, NaN),
  state: column(0, 1, 0, 0, 2),
  owner: column(0, NaN, 1, NaN, NaN),
  source: column(1, 0, 2, 0, 0),
  since: column(4, NaN, 9, NaN, NaN),
  region: column(0, 0, 0, 1, 1),
};

describe("chunks", () => {
  it("have the states that the answer names, in any order", () => {
    expect([0, 1, 2, 3, 4].map((chunk) => stateOf(MAP, chunk))).toEqual([
      "in_use",
      "free",
      "in_use",
      "in_use",
      "unknown",
    ]);
    expect(stateOf({ ...MAP, states: ["free"] }, 4)).toBe("unknown");
  });

  it("have an owner, or null where it is unknown", () => {
    expect([0, 2, 3].map((chunk) => ownerOf(MAP, chunk)?.layer ?? null)).toEqual([
      "net/dense",
      "net/conv",
      null,
    ]);
  });

  it("are listed with size, request, address and source", () => {
    expect(chunkFacts(MAP, 0)).toEqual({
      title: "net/dense: weights, trainable",
      facts: [
        "2.0 KiB (2,048 B)",
        "2,000 B requested",
        "at 0x1000",
        "first seen at step 4",
        "holds a variable",
      ],
    });
    expect(chunkFacts(MAP, 2)).toEqual({
      title: "net/conv: activations, frozen",
      facts: [
        "2.0 KiB (2,048 B)",
        "requested size unknown",
        "at 0x1c00",
        "first seen at step 9",
        "allocation traced",
      ],
    });
    expect(chunkFacts(MAP, 3)).toEqual({
      title: "owner unknown",
      facts: ["3.0 KiB (3,072 B)", "requested size unknown", "at 0x9000"],
    });
    expect(chunkFacts(MAP, 1)).toEqual({
      title: "free",
      facts: ["1.0 KiB (1,024 B)", "at 0x1800"],
    });
    expect(chunkFacts(MAP, 4).title).toBe("unknown: no traced step touched it");
  });
});

describe("a map", () => {
  it("has the first chunk of each region and the number of chunks", () => {
    expect(regionStarts(MAP)).toEqual([0, 3, 5]);
    expect(regionStarts({ ...MAP, rows: 0, regions: [], region: column() })).toEqual([0]);
  });

  it("has its largest layers first, as many as requested", () => {
    const more = { ...MAP, owner: column(0, NaN, 1, 1, NaN) };
    expect(largestLayers(more, 5)).toEqual(["net/conv", "net/dense"]);
    expect(largestLayers(more, 1)).toEqual(["net/conv"]);
  });

  it("names the owner of chunks that split free memory", () => {
    expect(blockingSentence(MAP, { owner: 0, chunks: 1, bytes: 2048, joined_bytes: 8192 })).toBe(
      "A chunk of 2.0 KiB (net/dense: weights, trainable) splits free memory: without it, a free chunk of 8.0 KiB would form.",
    );
    expect(blockingSentence(MAP, { owner: -1, chunks: 2, bytes: 512, joined_bytes: 4096 })).toBe(
      "2 chunks (512 B, owner unknown) split free memory: without one of them, a free chunk of 4.0 KiB would form.",
    );
  });
});

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
const golden = JSON.parse(
  readFileSync(new URL("../../../tests/golden/fits.json", import.meta.url), "utf8"),
) as Golden;

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
  const reason = (requested: number, changed: Partial<FitMap> = {}): string =>
    wouldFit({ ...map, ...changed }, requested).reason;

  it("names the chunk and what remains of it", () => {
    expect(reason(4 * MIB)).toBe("A free chunk of 4.0 MiB serves the request: an exact fit.");
    expect(reason(3 * MIB)).toBe(
      "A free chunk of 4.0 MiB serves the request: the allocator does not split it, because the chunk is smaller than twice the request.",
    );
    // 300 MiB is less than twice 160 MiB, but more than 128 MiB would be left over.
    expect(reason(160 * MIB)).toBe(
      "A free chunk of 300 MiB serves the request: the allocator splits it and 140 MiB stay free.",
    );
    expect(reason(1)).toBe(
      "A free chunk of 1.0 MiB serves the request: the allocator splits it and 1.0 MiB stay free. (The allocator rounds the request up to 256 bytes.)",
    );
  });

  it("says how the pool could still serve a request above the largest free chunk", () => {
    const none = "the largest free chunk is 300 MiB of 307 MiB free in the pool";
    expect(reason(301 * MIB, { capacity_bytes: 640 * MIB })).toBe(
      `No free chunk is large enough (${none}), but the pool can grow by 320 MiB if the device has that much memory.`,
    );
    expect(reason(301 * MIB)).toBe(
      `No free chunk is large enough: ${none}, and the pool can grow by only 10.0 MiB.`,
    );
    expect(reason(301 * MIB, { capacity_bytes: 320 * MIB })).toBe(
      `No free chunk is large enough: ${none}, and the pool is at its limit.`,
    );
    expect(reason(301 * MIB, { capacity_bytes: null })).toBe(
      `No free chunk is large enough: ${none}. Whether the pool can grow is unknown.`,
    );
  });

  it("counts unused regions on a GPU only", () => {
    const small = {
      rows: 1,
      bytes: Float64Array.of(2 * MIB),
      state: Float64Array.of(0),
      region: Float64Array.of(1),
    };
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

const MIB = 2 ** 20;

/** Chunks of 4 MiB free, 8 in use, 6 free, 6 free and 2 of unknown state. */
const map = {
  device: "CPU:0",
  rows: 5,
  states: ["free", "in_use", "unknown"],
  sources: [],
  owners: [{ layer: "net/a", category: "weights", trainable: true }],
  regions: [{ address: 0, bytes: 26 * MIB }],
  pool_bytes: 26 * MIB,
  in_use_bytes: 10 * MIB,
  capacity_bytes: 26 * MIB,
  complete: true,
  state: Float64Array.of(0, 1, 0, 0, 2),
  bytes: Float64Array.from([4, 8, 6, 6, 2], (size) => size * MIB),
  address: Float64Array.from([0, 4, 12, 18, 24], (at) => at * MIB),
  owner: Float64Array.of(-1, 0, -1, -1, -1),
  requested_bytes: Float64Array.of(NaN, 8 * MIB, NaN, NaN, NaN),
  since: new Float64Array(5).fill(NaN),
  source: new Float64Array(5).fill(-1),
  region: new Float64Array(5),
} as unknown as MemoryMap;

describe("a request over a memory map", () => {
  it("goes through the free chunks, the largest first", () => {
    expect(freeBySize(map)).toEqual([2, 3, 0]);
  });

  it("is held by a free chunk of its rounded size, and by no smaller one", () => {
    expect(requestPlace(map, 2, 6 * MIB)).toEqual({
      holds: true,
      sentence: "Holds it: 6.0 MiB free, 6.0 MiB needed.",
    });
    expect(requestPlace(map, 2, 6 * MIB - 255).holds).toBe(true);
    expect(requestPlace(map, 2, 6 * MIB + 1).holds).toBe(false);
    expect(requestPlace(map, 0, 6 * MIB)).toEqual({
      holds: false,
      sentence: "Too small: 4.0 MiB free, 6.0 MiB needed, 2.0 MiB short.",
    });
  });

  it("is not held by a chunk in use, and unknown where the state is", () => {
    expect(requestPlace(map, 1, MIB)).toEqual({
      holds: false,
      sentence: "In use: 8.0 MiB, net/a: weights, trainable.",
    });
    expect(requestPlace(map, 4, MIB).holds).toBeNull();
  });
});
