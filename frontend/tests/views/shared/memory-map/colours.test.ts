import { describe, expect, it } from "vitest";

import type { MemoryMap } from "../../../../src/model/memory-map";
import { mapColours } from "../../../../src/views/shared/memory-map/strip";

const column = (...values: number[]): Float64Array => Float64Array.from(values);

/**
 * Frozen and trainable weights, two activations of which one is rounded, an unknown owner, free and
 * unknown chunks.
 */
const MAP = {
  rows: 7,
  states: ["free", "in_use", "unknown"],
  sources: [],
  owners: [
    { layer: "net/a", category: "weights", trainable: false },
    { layer: "net/b", category: "weights", trainable: true },
    { layer: "net/a", category: "activations", trainable: false },
    { layer: null, category: "activations", trainable: null },
  ],
  bytes: column(1000, 2000, 3072, 4000, 500, 600, 700),
  requested_bytes: column(1000, 2000, 3000, NaN, NaN, NaN, NaN),
  state: column(1, 1, 1, 1, 1, 0, 2),
  owner: column(0, 1, 2, 3, NaN, NaN, NaN),
  since: column(1, 1, 5, 9, NaN, NaN, NaN),
} as unknown as MemoryMap;

const listed = (colouring: Parameters<typeof mapColours>[1]) =>
  mapColours(MAP, colouring).kinds.map(({ name, bytes, chunks }) => [name, bytes, chunks]);

describe("the colours of a memory map", () => {
  it("by category split weights and take rounding from its chunks", () => {
    expect(listed("category")).toEqual([
      ["weights:frozen", 1000, 1],
      ["weights:trainable", 2000, 1],
      ["activations", 7000, 2],
      ["rounding", 72, 1],
      ["unattributed", 500, 1],
      ["free", 600, 1],
      ["unknown", 700, 1],
    ]);
  });

  it("by layer name layers, largest first, and memory without one", () => {
    expect(listed("layer")).toEqual([
      ["layer:net/a", 4072, 2],
      ["layer:net/b", 2000, 1],
      ["no_layer", 4000, 1],
      ["owner_unknown", 500, 1],
      ["free", 600, 1],
      ["unknown", 700, 1],
    ]);
    expect(
      mapColours(MAP, "layer")
        .kinds.map(({ label }) => label)
        .slice(0, 4),
    ).toEqual(["a", "b", "not tied to a layer", "owner unknown"]);
  });

  it("by age span the steps that are known", () => {
    const kinds = mapColours(MAP, "age").kinds;
    expect(kinds.map(({ label }) => label)).toEqual([
      "since step 1",
      "since step 5",
      "since step 9",
      "age unknown",
      "free",
      "unknown",
    ]);
    expect(kinds.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(11872);
  });

  it("give every chunk its kind, and pale all but the selected category", () => {
    const { key, kinds } = mapColours(MAP, "category", "activations");
    expect([...key].map((index) => kinds[index]?.name)).toEqual([
      "weights:frozen",
      "weights:trainable",
      "activations",
      "activations",
      "unattributed",
      "free",
      "unknown",
    ]);
    expect(kinds.filter(({ fill }) => !fill.muted).map(({ name }) => name)).toEqual([
      "activations",
      "free",
      "unknown",
    ]);
  });
});
