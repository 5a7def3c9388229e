import { describe, expect, it } from "vitest";

import type { MemoryMap } from "../../src/model/memory-map";
import { freeBySize, requestPlace } from "../../src/model/request-place";

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
    expect(requestPlace(map, 2, 6 * MIB)).toEqual({ holds: true, sentence: "Holds it: 6.0 MiB free, 6.0 MiB needed." });
    expect(requestPlace(map, 2, 6 * MIB - 255).holds).toBe(true);
    expect(requestPlace(map, 2, 6 * MIB + 1).holds).toBe(false);
    expect(requestPlace(map, 0, 6 * MIB)).toEqual({ holds: false, sentence: "Too small: 4.0 MiB free, 6.0 MiB needed, 2.0 MiB short." });
  });

  it("is not held by a chunk in use, and unknown where the state is", () => {
    expect(requestPlace(map, 1, MIB)).toEqual({ holds: false, sentence: "In use: 8.0 MiB, net/a: weights, trainable." });
    expect(requestPlace(map, 4, MIB).holds).toBeNull();
  });
});
