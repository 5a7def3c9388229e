/** The pool over the steps of the playground's cases, from the wire to what is shown. */

import { describe, expect, it } from "vitest";

import { CASES } from "../playground/cases";
import { poolOf, snapshotAt, snapshotsOf, type Plan } from "../playground/training";
import { parsePool } from "../src/api/pool-answer";
import { poolParts } from "../src/model/snapshot";
import { fragmentationText, poolFacts, poolFinding, poolGrows, poolProvenance, poolSentence, type PoolSteps } from "../src/model/pool";
import { DEFAULTS } from "../src/state/address";
import { ratiosSpec, regionsSpec, sizesSpec } from "../src/views/pool-spec";

const plans = Object.entries(CASES).flatMap(([name, { plans: some }]) =>
  some.slice(0, 1).map((plan) => [`${name}: ${plan.run.slice(0, 30)}`, plan] as const),
);
const read = (plan: Plan): PoolSteps => parsePool(poolOf(plan, 0, plan.steps - 1, 1500).buffer);
const rowOf = (pool: PoolSteps, step: number): number => pool.step.indexOf(step);

describe.each(plans)("%s", (_, plan) => {
  const pool = read(plan);

  it("shows at traced steps what the snapshots say", () => {
    for (const { step } of snapshotsOf(plan)) {
      const facts = poolFacts(pool, rowOf(pool, step));
      const { in_use_bytes, pool_bytes, free_largest, free_rest, fragmentation, utilisation } = poolParts(snapshotAt(plan, step));
      expect(facts).toMatchObject({ in_use_bytes, pool_bytes, free_largest, free_rest, fragmentation, utilisation });
      expect(facts.source).toBe(plan.pool ? "traced" : "none");
    }
  });

  it("adds up wherever the pool is known, and splits nothing where it was not traced", () => {
    for (let row = 0; row < pool.rows; row += 1) {
      const facts = poolFacts(pool, row);
      if (facts.pool_bytes !== null) expect((facts.in_use_bytes ?? 0) + (facts.idle ?? 0)).toBe(facts.pool_bytes);
      if (facts.source !== "traced")
        expect([facts.free_largest, facts.free_rest, facts.fragmentation, facts.rounding_bytes]).toEqual([null, null, null, null]);
      if (facts.free_rest !== null) expect((facts.free_largest ?? 0) + facts.free_rest).toBe(facts.idle);
      expect(facts.low_bytes ?? 0).toBeLessThanOrEqual(facts.high_bytes ?? Infinity);
    }
  });

  it("has pictures that hold everything", () => {
    const most = pool.pool_low_bytes.reduce((found, value) => (value > found ? value : found), 0);
    for (const axis of ["step", "relative", "wall"] as const) {
      const specs = [sizesSpec, ratiosSpec, regionsSpec].map((spec) => spec(pool, { ...DEFAULTS, axis }, "dark", [0, plan.steps - 1]));
      for (const { range, x } of specs) expect([range[1] > range[0], x.length]).toEqual([true, pool.rows]);
      expect(specs[0]?.yMax).toBeGreaterThan(most);
    }
  });
});

describe("the pool", () => {
  const [plan] = CASES["two-runs"]?.plans as [Plan];
  const pool = read(plan);
  const factsAt = (step: number) => poolFacts(pool, rowOf(pool, step));

  it("says how it is known", () => {
    const growth = pool.growths[1];
    expect(growth).toBeDefined();
    expect(poolProvenance(factsAt(3))).toBe("Measured: this step was traced.");
    expect(poolProvenance(factsAt(4))).toContain("split is not known between traced steps");
    expect(poolProvenance(factsAt((growth?.by_step ?? 0) - 1))).toMatch(/the pool had .* to .*: it is known at traced steps only/);
    expect(poolProvenance({ ...factsAt(3), source: "bounded", low_bytes: 1024, high_bytes: plan.capacity })).toContain(
      "1.0 KiB or more, up to the limit",
    );
    expect(poolProvenance({ ...factsAt(3), source: "none" })).toContain("not known");
    expect(poolSentence(factsAt(4))).toMatch(
      /^step 4, inferred: in use at the peak .*; idle .*; largest free block not known; fragmentation –; /,
    );
  });

  it("says what its state means, and 0/0 where it is full", () => {
    const facts = factsAt(3);
    expect(poolFinding(facts)).toContain("of the pool lie idle; the largest free block is");
    expect(poolFinding(factsAt(4))).toBeNull();
    const full = { ...facts, idle: 0, free_largest: 0, fragmentation: null };
    expect(fragmentationText(full)).toBe("0/0");
    expect(poolFinding(full)).toBe("At step 3, all of the pool is in use.");
    expect(fragmentationText(factsAt(4))).toBe("–");
  });

  it("grows, or took its limit at once, or nobody knows", () => {
    expect(poolGrows(pool)).toBe(true);
    expect(poolGrows(read((CASES["at-once"]?.plans as [Plan])[0]))).toBe(false);
    expect(poolGrows(read((CASES["roomy"]?.plans as [Plan])[0]))).toBeNull();
    const once = { ...pool, growths: [{ after_step: null, by_step: 3, bytes: plan.capacity ?? 0, pool_bytes: plan.capacity ?? 0 }] };
    expect(poolGrows({ ...once, bands: pool.bands.slice(0, 1) })).toBe(false);
    expect(poolGrows({ ...pool, growths: [], bands: [] })).toBeNull();
  });
});
