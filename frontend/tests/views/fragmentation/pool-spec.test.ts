import { expect, it } from "vitest";

import type { PoolSteps } from "../../../src/model/pool";
import { showsUnknown } from "../../../src/views/fragmentation/pool-spec";

const column = (...values: number[]): Float64Array => Float64Array.from(values);

/** Three steps; between the first and the last one, whose pool is the same, the split of the pool is unknown. */
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
