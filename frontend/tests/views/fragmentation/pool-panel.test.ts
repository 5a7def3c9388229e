// @vitest-environment happy-dom
import { h, render } from "preact";
import { expect, it } from "vitest";

import type { Source } from "../../../src/api/source";
import { atInstant, poolFacts, type PoolSteps } from "../../../src/model/pool";
import { createStore } from "../../../src/state/store";
import { PoolPanel, showsUnknown } from "../../../src/views/fragmentation/pool-panel";
import { StoreContext } from "../../../src/views/shared/context";
import type { SnapshotSummary } from "../../../src/schema";

const one = (value: number): Float64Array => Float64Array.of(value);
const POOL: PoolSteps = {
  run: "r",
  device: "GPU:0",
  phase: "train",
  rows: 1,
  total_rows: 1,
  sources: ["unknown", "traced", "measured"],
  growths: [],
  sentences: [],
  step: one(7),
  wall_time: one(0),
  session: one(0),
  in_use_bytes: one(100),
  peak_bytes: one(300),
  capacity_bytes: one(1000),
  pool_source: one(1),
  pool_bytes: one(400),
  largest_free_bytes: one(50),
  fragmentation: one(0.5),
  rounding_bytes: one(0),
};

it("every step is at the same instant, known from its trace or from its measurement", () => {
  const traced = {
    step: 7,
    pool_bytes: 100,
    in_use_bytes: 80,
    largest_free_bytes: 15,
    fragmentation: 0.25,
    rounding_bytes: 3,
  } as SnapshotSummary;
  const ended: PoolSteps = { ...POOL, sources: ["unknown", "measured"], capacity_bytes: one(120) };
  const pool = atInstant(ended, [traced], "peak");
  expect(poolFacts(ended, 0)).toMatchObject({ instant: "step end", allocated_bytes: 100 });
  expect(poolFacts(pool, 0)).toMatchObject({
    source: "traced",
    instant: "peak",
    allocated_bytes: 80,
    free_bytes: 20,
    free_largest: 15,
    free_other: 5,
    pool_bytes: 100,
    unreserved: 20,
    utilisation: 0.8,
    fragmentation: 0.25,
    rounding_bytes: 3,
  });
  // A step without a trace is unknown at its peak, and one without a measurement at its end.
  const other = atInstant(ended, [{ ...traced, step: 8 }], "peak");
  expect(poolFacts(other, 0)).toMatchObject({
    source: "unknown",
    instant: "peak",
    allocated_bytes: 300,
    pool_bytes: null,
    fragmentation: null,
  });
  const both = { ...ended, sources: [...ended.sources, "traced" as const], rows: 2 };
  for (const name of ["step", "session", "in_use_bytes", "peak_bytes", "capacity_bytes"] as const)
    both[name] = Float64Array.of(...ended[name], 8);
  for (const name of ["pool_bytes", "largest_free_bytes", "fragmentation"] as const)
    both[name] = Float64Array.of(...ended[name], 9);
  both.pool_source = Float64Array.of(1, 2);
  both.rounding_bytes = Float64Array.of(0, 0);
  const end = atInstant(both, [traced], "step end");
  expect(poolFacts(end, 0)).toEqual(poolFacts(both, 0));
  expect(poolFacts(end, 1)).toMatchObject({ instant: "step end", pool_bytes: null });
  // What is known at one instant only stays as it is.
  expect(atInstant(ended, [], "peak")).toBe(ended);
});

it.each([
  ["graph", "train · traced (graph) · "],
  [null, "train · "],
])("the mode %s of a step is named if it was traced", (mode, text) => {
  const host = document.createElement("div");
  const store = createStore({} as Source);
  render(
    h(
      StoreContext.Provider,
      { value: store },
      h(PoolPanel, { pool: POOL, facts: poolFacts(POOL, 0), mode }),
    ),
    host,
  );
  const said = host.querySelector("header p")?.textContent ?? "";
  expect(said.startsWith(text)).toBe(true);
  expect(said.includes("traced")).toBe(mode !== null);
  render(null, host);
});

const column = (...values: number[]): Float64Array => Float64Array.from(values);

/**
 * Three steps; between the first and the last one, whose pool is the same, the split of the pool is
 * unknown.
 */
const poolWith = (peak: number): PoolSteps => ({
  run: "r",
  device: "GPU:0",
  phase: "train",
  rows: 3,
  total_rows: 3,
  sources: ["unknown", "traced"],
  growths: [],
  sentences: [],
  step: column(1, 2, 3),
  wall_time: column(0, 1, 2),
  session: column(0, 0, 0),
  in_use_bytes: column(10, 10, 10),
  peak_bytes: column(100, peak, 100),
  capacity_bytes: column(NaN, NaN, NaN),
  pool_source: column(1, 0, 1),
  pool_bytes: column(400, NaN, 400),
  largest_free_bytes: column(300, NaN, 300),
  fragmentation: column(0, NaN, 0),
  rounding_bytes: column(0, NaN, 0),
});

it("a split is unknown where something is free, and not where all of the pool is in use", () => {
  expect(showsUnknown(poolWith(399))).toBe(true);
  expect(showsUnknown(poolWith(400))).toBe(false);
});
