import { describe, expect, it } from "vitest";

import { blockingSentence, chunkFacts, largestLayers, ownerOf, regionStarts, stateOf, type MemoryMap } from "../../src/model/memory-map";

const column = (...values: number[]): Float64Array => Float64Array.from(values);

/** Two regions: weights, a free chunk and an activation; then a chunk of unknown owner and one of unknown state. */
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
    rounding_bytes: null,
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
    expect([0, 1, 2, 3, 4].map((chunk) => stateOf(MAP, chunk))).toEqual(["in_use", "free", "in_use", "in_use", "unknown"]);
    expect(stateOf({ ...MAP, states: ["free"] }, 4)).toBe("unknown");
  });

  it("have an owner, or null where it is unknown", () => {
    expect([0, 2, 3].map((chunk) => ownerOf(MAP, chunk)?.layer ?? null)).toEqual(["net/dense", "net/conv", null]);
  });

  it("are listed with size, request, address and source", () => {
    expect(chunkFacts(MAP, 0)).toEqual({
      title: "net/dense: weights, trainable",
      facts: ["2.0 KiB (2,048 B)", "2,000 B requested", "at 0x1000", "first seen at step 4", "holds a variable"],
    });
    expect(chunkFacts(MAP, 2)).toEqual({
      title: "net/conv: activations, frozen",
      facts: ["2.0 KiB (2,048 B)", "requested size unknown", "at 0x1c00", "first seen at step 9", "allocation traced"],
    });
    expect(chunkFacts(MAP, 3)).toEqual({ title: "owner unknown", facts: ["3.0 KiB (3,072 B)", "requested size unknown", "at 0x9000"] });
    expect(chunkFacts(MAP, 1)).toEqual({ title: "free", facts: ["1.0 KiB (1,024 B)", "at 0x1800"] });
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
