import { describe, expect, it } from "vitest";

import { formatBytes } from "../../src/lib/bytes";
import {
  PARTS,
  deviceMemorySentence,
  inPool,
  segmentKey,
  segmentLabel,
  segmentMeaning,
  type DeviceMemory,
  type Segment,
} from "../../src/model/device-memory";

const GIB = 2 ** 30;

const MEMORY: DeviceMemory = {
  run: "r",
  device: "GPU:0",
  step: 3,
  at_failure: false,
  phase: "train",
  in_use_bytes: 3 * GIB,
  pool_bytes: 4 * GIB,
  capacity_bytes: 8 * GIB,
  total_bytes: 10 * GIB,
  driver_process_bytes: 4.5 * GIB,
  driver_used_bytes: 7 * GIB,
  driver_total_bytes: 10 * GIB,
  segments: [],
  notes: [],
};
const sentence = (changed: Partial<DeviceMemory>): string => deviceMemorySentence({ ...MEMORY, ...changed }, formatBytes);

describe("the sentence on a device's memory", () => {
  it("splits the pool, this process and other processes", () => {
    expect(sentence({})).toBe(
      "TensorFlow's pool holds 4.0 GiB: 3.0 GiB in use, 1.0 GiB free. " +
        "This process uses another 512 MiB (CUDA context, libraries). Other processes use 2.5 GiB.",
    );
  });

  it("leaves out what the driver does not report or what is nothing", () => {
    const pool = "TensorFlow's pool holds 4.0 GiB: 3.0 GiB in use, 1.0 GiB free.";
    expect(sentence({ driver_process_bytes: null, driver_used_bytes: null })).toBe(pool);
    expect(sentence({ driver_process_bytes: 4 * GIB, driver_used_bytes: 4 * GIB })).toBe(pool);
    expect(sentence({ driver_process_bytes: null })).toBe(pool);
    expect(sentence({ pool_bytes: 3 * GIB, driver_process_bytes: null })).toBe(
      "TensorFlow's pool holds 3.0 GiB: 3.0 GiB in use, 0 B free.",
    );
  });

  it("needs no pool", () => {
    expect(sentence({ pool_bytes: null })).toBe("3.0 GiB are in use. Other processes use 2.5 GiB.");
    expect(sentence({ pool_bytes: null, driver_used_bytes: null })).toBe("3.0 GiB are in use.");
  });
});

describe("the parts of the bar", () => {
  const segment = (part: Segment["part"], category: Segment["category"] = null, trainable: boolean | null = null): Segment => ({
    part,
    category,
    trainable,
    bytes: 1,
  });

  it("have keys and labels of their own", () => {
    const all = PARTS.map((part) => segment(part));
    expect(new Set(all.map(segmentKey)).size).toBe(PARTS.length);
    expect(new Set(all.map(segmentLabel)).size).toBe(PARTS.length);
    expect(all.every((one) => segmentMeaning(one).length > 5 && segmentLabel(one).split(" ").length <= 4)).toBe(true);
    expect(segmentKey(segment("in_use", "weights", false))).toBe("in_use:weights:false");
    expect(segmentLabel(segment("in_use", "weights", false))).toBe("weights, frozen");
  });

  it("lie in the pool or outside", () => {
    expect(PARTS.filter((part) => inPool(segment(part)))).toEqual(["in_use", "free_largest", "free_other", "pool_free"]);
  });
});
