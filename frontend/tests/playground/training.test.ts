/** The pool over the steps of the playground's cases, from the wire to the page. */

import { describe, expect, it } from "vitest";

import { CASES } from "../../playground/cases";
import {
  allocatedAtEnd,
  ledgerAt,
  poolOf,
  snapshotAt,
  snapshotsOf,
  type Plan,
} from "../../playground/training";
import { parsePool } from "../api/answers-cases";
import {
  figureSource,
  fragmentationText,
  poolFacts,
  poolFinding,
  poolGrows,
  poolProvenance,
  poolSentence,
  unchangedPool,
  usualInstant,
  type PoolSteps,
} from "../../src/model/pool";
import { DEFAULTS } from "../../src/state/address";
import { ratiosSpec, showsUnknown, sizesSpec } from "../../src/views/fragmentation/pool-panel";

const plans = Object.entries(CASES).flatMap(([name, { plans: some }]) =>
  some.slice(0, 1).map((plan) => [`${name}: ${plan.run.slice(0, 30)}`, plan] as const),
);
const read = (plan: Plan): PoolSteps => parsePool(poolOf(plan, 0, plan.steps - 1, 1500).buffer);
const rowOf = (pool: PoolSteps, step: number): number => pool.step.indexOf(step);
const planOf = (name: string): Plan => (CASES[name]?.plans as [Plan])[0];

describe.each(plans)("%s", (_, plan) => {
  const pool = read(plan);
  const all = Array.from({ length: pool.rows }, (_, row) => poolFacts(pool, row));

  it("shows at traced steps that were not measured what the snapshots say, at the peak", () => {
    for (const { step } of snapshotsOf(plan)) {
      const facts = poolFacts(pool, rowOf(pool, step));
      if (facts.source === "measured") continue;
      const {
        in_use_bytes,
        pool_bytes,
        largest_free_bytes: free_largest,
        fragmentation,
      } = snapshotAt(plan, step);
      const free_other = (pool_bytes ?? NaN) - in_use_bytes - (free_largest ?? NaN);
      const unreserved = plan.capacity === null ? null : plan.capacity - (pool_bytes ?? NaN);
      expect(facts.source).toBe(plan.pool ? "traced" : "unknown");
      if (plan.pool)
        expect(facts).toMatchObject({
          pool_bytes,
          free_largest,
          free_other,
          unreserved,
          fragmentation,
          instant: "peak",
        });
      if (plan.pool) expect(facts.allocated_bytes).toBe(in_use_bytes);
    }
  });

  it("has figures of one instant that add up, or none", () => {
    for (const facts of all) {
      const {
        source,
        allocated_bytes: allocated,
        free_bytes: free,
        free_largest: largest,
        free_other: rest,
      } = facts;
      if (source === "unknown") {
        expect([
          facts.pool_bytes,
          free,
          largest,
          rest,
          facts.unreserved,
          facts.fragmentation,
        ]).toEqual(Array(6).fill(null));
        continue;
      }
      if (source === "measured") expect(allocated).toBe(allocatedAtEnd(plan, facts.step ?? -1));
      expect((allocated ?? 0) + (free ?? NaN)).toBe(facts.pool_bytes);
      expect((largest ?? NaN) + (rest ?? NaN)).toBe(free);
      if (facts.capacity_bytes !== null)
        expect((facts.pool_bytes ?? NaN) + (facts.unreserved ?? NaN)).toBe(facts.capacity_bytes);
      if (free) expect(facts.fragmentation).toBeCloseTo(1 - (largest ?? NaN) / free, 12);
    }
  });

  it("has pictures that hold everything", () => {
    const most = pool.pool_bytes.reduce((found, value) => (value > found ? value : found), 0);
    for (const axis of ["step", "relative", "wall"] as const) {
      const specs = [sizesSpec, ratiosSpec].map((spec) =>
        spec(pool, { ...DEFAULTS, axis }, [0, plan.steps - 1]),
      );
      for (const { range, x } of specs)
        expect([range[1] > range[0], x.length]).toEqual([true, pool.rows]);
      expect(specs[0]?.yMax).toBeGreaterThan(most);
    }
  });

  it("says of every figure where it is from, and of which step", () => {
    for (const facts of all.slice(0, 50)) {
      for (const name of [
        "allocated_bytes",
        "pool_bytes",
        "free_largest",
        "unreserved",
        "fragmentation",
      ] as const)
        expect(figureSource(name, facts)).toMatch(/allocator.*step \d+/);
      expect(poolSentence(facts)).toMatch(
        /^step \d+, (unknown|traced|measured): allocated at (the peak|step end) /,
      );
    }
  });
});

describe("a run with measured pools", () => {
  const pool = read(planOf("measured-at-times"));
  const factsAt = (step: number) => poolFacts(pool, rowOf(pool, step));

  it("tells measured, traced and unknown apart", () => {
    expect(
      [factsAt(7), factsAt(3), factsAt(8)].map(({ source, instant }) => [source, instant]),
    ).toEqual([
      ["measured", "step end"],
      ["traced", "peak"],
      ["unknown", "step end"],
    ]);
    expect(usualInstant(pool)).toBe("step end");
    expect(poolProvenance(factsAt(7))).toBe("Measured at step end.");
    expect(poolProvenance(factsAt(3))).toBe("Traced: measured at the peak of this step.");
    expect(poolProvenance({ ...factsAt(3), free_largest: null })).toContain(
      "Fragmentation unknown.",
    );
    expect(poolProvenance(factsAt(8))).toMatch(/^Fragmentation unknown/);
  });

  it("joins equal pools of one session only", () => {
    const unchanged = unchangedPool(pool);
    const row = rowOf(pool, 8);
    expect(unchanged[row]).toBe(pool.pool_bytes[row - 1]);
    expect(unchanged[row - 1]).toBeNaN();
    for (let at = 0; at < pool.rows; at += 1)
      if (!Number.isNaN(unchanged[at])) expect(factsAt(pool.step[at] ?? -1).source).toBe("unknown");
    // Step 119 is the last known one of the first session, step 123 the first known one of the
    // second.
    expect(
      [119, 120, 121, 122, 123].map((step) => Number.isNaN(unchanged[rowOf(pool, step)])),
    ).toEqual(Array(5).fill(true));
    const joined = { ...pool, session: new Float64Array(pool.rows) };
    expect(unchangedPool(joined)[rowOf(pool, 120)]).toBe(pool.pool_bytes[rowOf(pool, 119)]);
  });

  it("keeps the rounding of a traced step at the peak", () => {
    const measured = read(planOf("measured"));
    const facts = poolFacts(measured, rowOf(measured, 3));
    const ofLedger = ledgerAt(planOf("measured"), 3).filter(
      ({ category }) => category === "rounding",
    );
    expect(ofLedger.length).toBeGreaterThan(0);
    const rounding = ofLedger.reduce((total, { bytes }) => total + bytes, 0);
    expect([facts.source, facts.rounding_bytes]).toEqual(["measured", rounding]);
    expect(figureSource("rounding_bytes", facts)).toBe("traced at the peak of step 3");
    expect(figureSource("rounding_bytes", factsAt(7))).toBe("unknown: step 7 was not traced");
  });
});

describe("a run without measured pools", () => {
  const pool = read(planOf("two-runs"));
  const factsAt = (step: number) => poolFacts(pool, rowOf(pool, step));

  it("knows the pool at traced steps only", () => {
    expect(usualInstant(pool)).toBe("peak");
    expect([factsAt(3), factsAt(4)].map(({ source, instant }) => [source, instant])).toEqual([
      ["traced", "peak"],
      ["unknown", "peak"],
    ]);
    expect(poolSentence(factsAt(4))).toContain("pool unknown; free: largest chunk unknown");
  });

  it("says what its state means, and 0/0 where it is full", () => {
    const facts = factsAt(3);
    expect(poolFinding(facts)).toMatch(
      /^At the peak of step 3, .* of the pool are free; the largest free chunk is /,
    );
    expect(poolFinding(factsAt(4))).toBeNull();
    const full = { ...facts, free_bytes: 0, free_largest: 0, fragmentation: null };
    expect(fragmentationText(full)).toBe("0/0");
    expect(poolFinding(full)).toBe("At the peak of step 3, the whole pool is allocated.");
    expect(fragmentationText(factsAt(4))).toBe("–");
  });

  it("grows, or took its limit at once, or nobody knows", () => {
    expect(poolGrows(pool)).toBe(true);
    expect(poolGrows(read(planOf("at-once")))).toBe(false);
    expect(poolGrows(read(planOf("roomy")))).toBeNull();
    const first = {
      after_step: null,
      by_step: 3,
      bytes: 512,
      pool_bytes: 512,
      peak_rise_bytes: null,
    };
    expect(poolGrows({ ...pool, growths: [first] })).toBe(true);
    expect(
      poolGrows({ ...pool, growths: [first], capacity_bytes: new Float64Array([NaN]) }),
    ).toBeNull();
    expect(poolGrows({ ...pool, growths: [] })).toBeNull();
  });
});

describe("the legend's hatched key", () => {
  it("stands where a pool of unknown split is drawn above the bytes in use, and nowhere else", () => {
    // Neighbouring steps have the same pool: what is free between them is drawn hatched.
    expect(showsUnknown(read(planOf("measured-at-times")))).toBe(true);
    // Every step is measured, or none: nothing lies between two known pools.
    expect(showsUnknown(read(planOf("measured")))).toBe(false);
    const roomy = read(planOf("roomy"));
    expect(roomy.pool_source.includes(roomy.sources.indexOf("unknown"))).toBe(true);
    expect(showsUnknown(roomy)).toBe(false);
  });
});
