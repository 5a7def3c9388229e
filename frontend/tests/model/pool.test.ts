import { describe, expect, it } from "vitest";

import { formatBytes } from "../../src/lib/bytes";
import {
  figureSource,
  fragmentationText,
  poolFacts,
  poolFinding,
  poolGrows,
  poolProvenance,
  poolSentence,
  poolRowOf,
  unchangedPool,
  deviceMemorySentence,
  inPool,
  segmentKey,
  segmentLabel,
  segmentMeaning,
  demandParts,
  hostFacts,
  hostSentence,
  listedParts,
  measuredRows,
  shownParts,
  type PoolSteps,
  type HostMemory,
} from "../../src/model/pool";
import { HOST_PARTS, MEMORY_PARTS, type DeviceMemory, type MemorySegment } from "../../src/schema";

const column = (...values: number[]): Float64Array => Float64Array.from(values);
const KIB = 1024;

/**
 * Step 5 measured at its end, step 6 unknown, step 7 traced at its peak, step 8 unknown, step 9 of
 * another session.
 */
const POOL: PoolSteps = {
  run: "r",
  device: "GPU:0",
  phase: "train",
  rows: 5,
  total_rows: 5,
  sources: ["unknown", "traced", "measured"],
  growths: [],
  sentences: [],
  step: column(5, 6, 7, 8, 9),
  wall_time: column(0, 1, 2, 3, 4),
  session: column(0, 0, 0, 0, 1),
  in_use_bytes: column(100 * KIB, 110 * KIB, 120 * KIB, 130 * KIB, 140 * KIB),
  peak_bytes: column(300 * KIB, 310 * KIB, 320 * KIB, 330 * KIB, 340 * KIB),
  capacity_bytes: column(1024 * KIB, 1024 * KIB, 1024 * KIB, 1024 * KIB, NaN),
  pool_source: column(2, 0, 1, 0, 2),
  pool_bytes: column(400 * KIB, NaN, 400 * KIB, NaN, 400 * KIB),
  largest_free_bytes: column(200 * KIB, NaN, 20 * KIB, NaN, NaN),
  fragmentation: column(1 / 3, NaN, 0.75, NaN, NaN),
  rounding_bytes: column(NaN, NaN, 7 * KIB, NaN, NaN),
};

describe("the pool at a step", () => {
  it("is measured at the step's end", () => {
    expect(poolFacts(POOL, 0)).toEqual({
      step: 5,
      source: "measured",
      instant: "step end",
      allocated_bytes: 100 * KIB,
      pool_bytes: 400 * KIB,
      free_bytes: 300 * KIB,
      free_largest: 200 * KIB,
      free_other: 100 * KIB,
      capacity_bytes: 1024 * KIB,
      unreserved: 624 * KIB,
      fragmentation: 1 / 3,
      utilisation: 0.25,
      rounding_bytes: null,
    });
  });

  it("is traced at the step's peak", () => {
    expect(poolFacts(POOL, 2)).toMatchObject({
      source: "traced",
      instant: "peak",
      allocated_bytes: 320 * KIB,
      free_bytes: 80 * KIB,
      free_largest: 20 * KIB,
      free_other: 60 * KIB,
      utilisation: 0.8,
      rounding_bytes: 7 * KIB,
    });
  });

  it("is unknown otherwise: allocated bytes stay, at the instant of the measurements", () => {
    expect(poolFacts(POOL, 1)).toMatchObject({
      source: "unknown",
      allocated_bytes: 110 * KIB,
      pool_bytes: null,
      free_bytes: null,
      unreserved: null,
    });
    const traced = { ...POOL, pool_source: column(1, 0, 1, 0, 1) };
    expect(poolFacts(traced, 1)).toMatchObject({ instant: "peak", allocated_bytes: 310 * KIB });
  });

  it("keeps what is known where the split of the free bytes is not", () => {
    expect(poolFacts(POOL, 4)).toMatchObject({
      free_bytes: 260 * KIB,
      free_largest: null,
      free_other: null,
      unreserved: null,
    });
  });

  it("never has less than nothing unreserved", () => {
    expect(
      poolFacts({ ...POOL, capacity_bytes: column(399 * KIB, 0, 0, 0, 0) }, 0).unreserved,
    ).toBe(0);
  });
});

describe("the pool over steps", () => {
  it("is assumed between equal known values of one session", () => {
    expect([...unchangedPool(POOL)]).toEqual([NaN, 400 * KIB, NaN, NaN, NaN]);
    expect([...unchangedPool({ ...POOL, session: column(0, 0, 0, 0, 0) })]).toEqual([
      NaN,
      400 * KIB,
      NaN,
      400 * KIB,
      NaN,
    ]);
    expect(
      [...unchangedPool({ ...POOL, pool_bytes: column(400, NaN, 401, NaN, 401) })].every(
        Number.isNaN,
      ),
    ).toBe(true);
    // Never above the capacity of its step.
    expect(
      unchangedPool({
        ...POOL,
        capacity_bytes: column(1024 * KIB, 300 * KIB, 1024 * KIB, NaN, NaN),
      })[1],
    ).toBe(300 * KIB);
  });

  it("is that of the selected step, also outside of a zoom", () => {
    const zoom = { ...POOL, rows: 2, step: column(6, 7) };
    expect(poolRowOf([zoom, POOL], 7)).toEqual({ pool: zoom, row: 1 });
    expect(poolRowOf([zoom, POOL], 9)).toEqual({ pool: POOL, row: 4 });
    expect(poolRowOf([POOL], 99)).toEqual({ pool: POOL, row: 4 });
    expect(poolRowOf([{ ...POOL, rows: 0, step: column() }], 7)).toBeNull();
  });

  it("grows if it changed or is still below its limit", () => {
    const growth = (pool_bytes: number) => ({
      after_step: null,
      by_step: 5,
      bytes: pool_bytes,
      pool_bytes,
      peak_rise_bytes: null,
    });
    expect(poolGrows({ ...POOL, growths: [growth(400 * KIB)] })).toBe(true);
    expect(poolGrows({ ...POOL, growths: [growth(1024 * KIB - 255)] })).toBe(false);
    expect(poolGrows({ ...POOL, growths: [growth(1024 * KIB - 256)] })).toBe(true);
    expect(poolGrows({ ...POOL, growths: [growth(1), growth(1024 * KIB)] })).toBe(true);
    expect(poolGrows(POOL)).toBeNull();
  });
});

describe("words on the pool", () => {
  const [measured, unknown, traced] = [0, 1, 2].map((row) => poolFacts(POOL, row)) as [
    ReturnType<typeof poolFacts>,
    ReturnType<typeof poolFacts>,
    ReturnType<typeof poolFacts>,
  ];

  it("state source and step of every figure", () => {
    expect([measured, unknown, traced].map(poolProvenance)).toEqual([
      "Measured at step end.",
      "Fragmentation unknown: the pool was not measured at this step.",
      "Traced: measured at the peak of this step.",
    ]);
    expect(figureSource("pool_bytes", measured)).toBe(
      "the allocator's own figure, at the end of step 5",
    );
    expect(figureSource("pool_bytes", unknown)).toBe(
      "unknown: the allocator's pool was not measured at step 6",
    );
    expect(figureSource("allocated_bytes", unknown)).toBe(
      "the allocator's own figure, at the end of step 6",
    );
    expect(figureSource("rounding_bytes", traced)).toBe("traced at the peak of step 7");
    expect(figureSource("rounding_bytes", measured)).toBe("unknown: step 5 was not traced");
    expect(figureSource("capacity_bytes", unknown)).toBe("the allocator's own figure, step 6");
  });

  it("say what the next allocation would meet", () => {
    expect(poolFinding(traced)).toBe(
      "At the peak of step 7, 80.0 KiB of the pool are free; the largest free chunk is 20.0 KiB, and the pool can still grow by 624 KiB.",
    );
    expect(poolFinding({ ...traced, unreserved: 0 })).toBe(
      "At the peak of step 7, 80.0 KiB of the pool are free; the largest free chunk is 20.0 KiB, so a tensor above 20.0 KiB (20,480 B) does not fit.",
    );
    expect(poolFinding({ ...measured, unreserved: null })).toBe(
      "At the end of step 5, 300 KiB of the pool are free; the largest free chunk is 200 KiB.",
    );
    expect(poolFinding({ ...measured, free_bytes: 0, free_largest: 0 })).toBe(
      "At the end of step 5, the whole pool is allocated.",
    );
    expect(poolFinding(unknown)).toBeNull();
  });

  it("read all figures aloud", () => {
    expect(poolSentence(traced)).toBe(
      "step 7, traced: allocated at the peak 320 KiB; pool 400 KiB; free: largest chunk 20.0 KiB; free: other chunks 60.0 KiB; unreserved 624 KiB; fragmentation 75 %",
    );
    expect(poolSentence(unknown)).toContain(
      "pool unknown; free: largest chunk unknown; free: other chunks unknown; unreserved unknown",
    );
    expect(
      [measured, unknown, { ...measured, free_bytes: 0, fragmentation: null }].map(
        fragmentationText,
      ),
    ).toEqual(["33 %", "–", "0/0"]);
  });
});

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
const sentence = (changed: Partial<DeviceMemory>): string =>
  deviceMemorySentence({ ...MEMORY, ...changed }, formatBytes);

describe("the sentence on a device's memory", () => {
  it("splits the pool, this process and memory outside it", () => {
    expect(sentence({})).toBe(
      "TensorFlow's pool holds 4.0 GiB: 3.0 GiB in use, 1.0 GiB free. " +
        "This process uses another 512 MiB (CUDA context, libraries). " +
        "Outside this process, 2.5 GiB are in use.",
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
    expect(sentence({ pool_bytes: null })).toBe(
      "3.0 GiB are in use. Outside this process, 2.5 GiB are in use.",
    );
    expect(sentence({ pool_bytes: null, driver_used_bytes: null })).toBe("3.0 GiB are in use.");
  });
});

describe("the parts of the bar", () => {
  const segment = (
    part: MemorySegment["part"],
    category: MemorySegment["category"] = null,
    trainable: boolean | null = null,
  ): MemorySegment => ({ part, category, trainable, bytes: 1 });

  it("have keys and labels of their own", () => {
    const all = MEMORY_PARTS.map((part) => segment(part));
    expect(new Set(all.map(segmentKey)).size).toBe(MEMORY_PARTS.length);
    expect(new Set(all.map(segmentLabel)).size).toBe(MEMORY_PARTS.length);
    expect(
      all.every(
        (one) => segmentMeaning(one).length > 5 && segmentLabel(one).split(" ").length <= 4,
      ),
    ).toBe(true);
    expect(segmentKey(segment("in_use", "weights", false))).toBe("in_use:weights:false");
    expect(segmentLabel(segment("in_use", "weights", false))).toBe("weights, frozen");
  });

  it("lie in the pool or outside", () => {
    expect(MEMORY_PARTS.filter((part) => inPool(segment(part)))).toEqual([
      "in_use",
      "free_largest",
      "free_other",
      "pool_free",
    ]);
  });
});

describe("the parts of a peak", () => {
  const demand = {
    step: 3,
    phase: "train" as const,
    peak_bytes: 200,
    demand_bytes: 150,
    rounding_bytes: 10,
    unsplit_bytes: 40,
    pool_bytes: 256,
    one_region_bytes: null,
    growing_bytes: null,
    sentences: [],
  };

  it("are shares of the peak that sum to all of it", () => {
    const parts = demandParts(demand);
    expect(parts.map(({ name, bytes, share }) => [name, bytes, share])).toEqual([
      ["demand", 150, 0.75],
      ["rounding", 10, 0.05],
      ["unsplit", 40, 0.2],
    ]);
  });

  it("are nothing of a peak of nothing", () => {
    expect(
      demandParts({ ...demand, peak_bytes: 0, demand_bytes: 0 }).map(({ share }) => share),
    ).toEqual([0, 0, 0]);
  });
});

const { NaN: unknown } = Number;

/** Four steps, the parts measured at the second and the fourth. */
const HOST: HostMemory = {
  run: "run",
  device: "GPU:0",
  phase: "train",
  worker: "",
  rows: 4,
  total_rows: 4,
  summary: null,
  step: column(0, 1, 2, 3),
  wall_time: column(0, 1, 2, 3),
  host_resident_bytes: column(900, 1000, 1100, 1200),
  pinned_pool_bytes: column(unknown, unknown, unknown, unknown),
  tf_data_bytes: column(unknown, 0, unknown, 0),
  cpu_bytes: column(unknown, 300, unknown, 350),
  other_bytes: column(unknown, 700, unknown, 850),
};

describe("host memory", () => {
  it("has parts that sum to the RSS of the step at which they were measured", () => {
    const facts = hostFacts(HOST, 2);
    expect(facts.host_resident_bytes).toBe(1100);
    expect([facts.measured_step, facts.measured_bytes]).toEqual([1, 1000]);
    expect(HOST_PARTS.reduce((sum, name) => sum + (facts.parts[name] ?? 0), 0)).toBe(1000);
  });

  it("has no parts before the first measurement", () => {
    const facts = hostFacts(HOST, 0);
    expect(facts.measured_step).toBeNull();
    expect(HOST_PARTS.every((name) => facts.parts[name] === null)).toBe(true);
    expect([...measuredRows(HOST)]).toEqual([-1, 1, 1, 3]);
  });

  it("shows the parts that hold something, and leaves unknown ones out", () => {
    expect(shownParts(HOST)).toEqual(["cpu_bytes", "other_bytes"]);
    expect(hostFacts(HOST, 3).parts.pinned_pool_bytes).toBeNull();
  });

  it("lists the same parts at every step: pinned memory and that of the CPU only where they are known of one", () => {
    expect(listedParts(HOST)).toEqual(["other_bytes", "cpu_bytes", "tf_data_bytes"]);
    const pinned = { ...HOST, pinned_pool_bytes: column(unknown, 0, unknown, 30) };
    expect(listedParts(pinned)).toEqual([...HOST_PARTS].reverse());
  });

  it("says a step's RSS", () => {
    expect(hostSentence(HOST, 1)).toBe("step 1: host RSS 1000 B");
  });
});
