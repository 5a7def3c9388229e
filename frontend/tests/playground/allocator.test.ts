/**
 * Memory maps, device memory and post-mortems of the playground's cases, from the wire to the page.
 */

import { describe, expect, it } from "vitest";

import { deviceMemoryOf, mapOf, mapRefOf, oomsOf } from "../../playground/allocator";
import { CASES } from "../../playground/cases";
import { layersOf, snapshotAt, infoOf, type Plan } from "../../playground/training";
import {
  parseDeviceMemory,
  parseLayers,
  parseMap,
  parseMaps,
  parseOoms,
} from "../api/answers-cases";
import { stripCells } from "../../src/charts/map-layout";
import { formatBytes } from "../../src/lib/bytes";
import { growthFindings, verdictSentence, whenSentence } from "../../src/model/answer";
import {
  COLOURINGS,
  chunkFacts,
  largestLayers,
  blockingSentence,
  regionStarts,
} from "../../src/model/memory-map";
import { deviceMemorySentence, segmentKey, segmentLabel } from "../../src/model/pool";
import { mapColours } from "../../src/views/shared/memory-map/strip";

const wire = (value: unknown): unknown => JSON.parse(JSON.stringify(value));
const plan = (name: string): Plan => (CASES[name]?.plans as [Plan])[0];
const pooled = Object.entries(CASES).flatMap(([name, { plans }]) =>
  plans
    .slice(0, 1)
    .filter(({ pool }) => pool)
    .map((one) => [name, one] as const),
);

describe.each(pooled)("the map of %s", (_, one) => {
  const map = parseMap(mapOf(one, 3).buffer);

  it("holds every byte of the pool", () => {
    expect(map.bytes.reduce((sum, size) => sum + size, 0)).toBe(map.pool_bytes);
    const inUse = map.bytes.filter((_, chunk) => map.states[map.state[chunk] ?? -1] === "in_use");
    expect(inUse.reduce((sum, size) => sum + size, 0)).toBe(snapshotAt(one, 3).in_use_bytes);
    expect(map.regions.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(map.pool_bytes);
  });

  it.each(COLOURINGS)("is painted by %s without losing a byte", (colouring) => {
    const { key, kinds } = mapColours(map, colouring);
    expect(kinds.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(map.pool_bytes);
    // Rounding is inside of the others' chunks.
    const others = kinds.filter(({ name }) => name !== "rounding");
    expect(others.reduce((sum, { chunks }) => sum + chunks, 0)).toBe(map.rows);
    expect(Math.max(...key)).toBe(kinds.length - 1);
  });

  it("fills its strips to the last pixel", () => {
    const { key } = mapColours(map, "category");
    const starts = regionStarts(map);
    map.regions.forEach(({ address, bytes }, index) => {
      const [first, end] = [starts[index] as number, starts[index + 1] as number];
      const cells = stripCells(
        { address: map.address, bytes: map.bytes, key },
        first,
        end,
        [address, address + bytes],
        1000,
      );
      expect(cells.length).toBeLessThan(2100);
      expect(cells[0]?.x).toBeCloseTo(0);
      const last = cells.at(-1);
      expect((last?.x ?? 0) + (last?.width ?? 0)).toBeGreaterThan(998.9);
    });
  });
});

describe("sentences about the allocator", () => {
  const map = parseMap(mapOf(plan("two-runs"), 3).buffer);

  it("name a chunk with its figures", () => {
    const used = map.owner.findIndex((owner) => owner === 0);
    expect(chunkFacts(map, used)).toEqual({
      title: "vgg16/block1_conv1: workspace, frozen",
      facts: [
        "4.0 MiB (4,194,304 B)",
        "4,194,240 B requested",
        "at 0x400000000000",
        "first seen at step 0",
        "allocation traced",
      ],
    });
    expect(chunkFacts(map, 1).title).toBe("free");
    expect(largestLayers(map, 1)).toEqual(["vgg16/block1_conv1"]);
    expect(
      blockingSentence(map, { owner: 0, chunks: 1, bytes: 1048576, joined_bytes: 9437184 }),
    ).toBe(
      "A chunk of 1.0 MiB (vgg16/block1_conv1: workspace, frozen) splits free memory: without it, a free chunk of 9.0 MiB would form.",
    );
    expect(blockingSentence(map, { owner: -1, chunks: 3, bytes: 768, joined_bytes: 4096 })).toBe(
      "3 chunks (768 B, owner unknown) split free memory: without one of them, a free chunk of 4.0 KiB would form.",
    );
  });

  it("come through the wire", () => {
    const one = plan("two-runs");
    expect(parseMaps(wire({ run: "r", maps: [mapRefOf(one, 3)] }))).toEqual([mapRefOf(one, 3)]);
    expect(parseLayers(wire(layersOf(one, 3)))).toEqual(layersOf(one, 3));
    expect(
      parseLayers(wire(layersOf(one, 3))).layers.map(({ output_bytes }) => output_bytes),
    ).toEqual([null, 2 ** 24, 2 ** 24]);
  });
});

describe("the device's memory", () => {
  const memory = parseDeviceMemory(wire(deviceMemoryOf(plan("two-runs"), 3)));

  it("is one bar that holds everything once", () => {
    expect(memory.segments.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(memory.total_bytes);
    expect(new Set(memory.segments.map(segmentKey)).size).toBe(memory.segments.length);
    expect(memory.segments.map(segmentLabel)).toContain("free in the pool");
  });

  it("is a sentence from the device to the tensors", () => {
    const gib = 2 ** 30;
    const whole = {
      ...memory,
      pool_bytes: 40 * gib,
      in_use_bytes: 25 * gib,
      driver_process_bytes: 41 * gib,
      driver_used_bytes: 44 * gib,
    };
    expect(deviceMemorySentence(whole, formatBytes)).toBe(
      "TensorFlow's pool holds 40.0 GiB: 25.0 GiB in use, 15.0 GiB free. This process uses another 1.0 GiB (CUDA context, libraries). Outside this process, 3.0 GiB are in use.",
    );
    expect(
      deviceMemorySentence({ ...whole, pool_bytes: null, driver_used_bytes: null }, formatBytes),
    ).toBe("25.0 GiB are in use.");
  });
});

describe("post-mortems", () => {
  const ooms = parseOoms(wire({ run: "r", ooms: oomsOf(plan("oom")) }));

  it("say what happened and why", () => {
    expect(ooms.map((oom) => whenSentence(oom))).toEqual([
      "Step 43 ran out of memory on GPU:0",
      "Step 44 ran out of memory on GPU:0",
    ]);
    expect(ooms.map(({ verdict }) => verdict)).toEqual(["fragmentation", "capacity"]);
    const [pieces] = ooms as [(typeof ooms)[0]];
    const known = {
      ...pieces,
      requested_bytes: 96 * 2 ** 20,
      free_bytes: 120 * 2 ** 20,
      largest_free_bytes: 40 * 2 ** 20,
    };
    expect(verdictSentence(known)).toBe(
      "Free memory is fragmented: 96.0 MiB requested, 120 MiB free, largest free chunk 40.0 MiB.",
    );
    expect(verdictSentence({ ...known, verdict: "capacity", free_bytes: 75 * 2 ** 20 })).toBe(
      "Not enough free memory: 96.0 MiB requested, 75.0 MiB free.",
    );
    expect(
      verdictSentence({ ...known, verdict: null, requested_bytes: null, free_bytes: null }),
    ).toBe("Verdict unknown.");
    expect(whenSentence({ ...pieces, status: "failing", phase: null })).toBe(
      "Step 43 ended while waiting for memory on GPU:0",
    );
    expect(whenSentence({ ...pieces, step: null })).toBe("An allocation on GPU:0 failed");
    expect([whenSentence(pieces, false), whenSentence({ ...pieces, step: null }, false)]).toEqual([
      "Step 43 ran out of memory",
      "An allocation failed",
    ]);
  });

  it("are no findings, because the answers name them; growths are", () => {
    expect(growthFindings(infoOf(plan("oom")), "GPU:0")).toEqual([]);
    expect(growthFindings(infoOf(plan("growing")), "GPU:0")).toMatchObject([
      { kind: "growth", view: "overview", step: 239, zoom: [40, 239] },
    ]);
    const info = infoOf(plan("growing"));
    expect(growthFindings(info, "CPU:0")).toEqual([]);
  });
});
