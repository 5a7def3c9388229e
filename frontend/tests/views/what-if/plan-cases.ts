/** A plan with a curve, two segments and both ledgers. */

import type { Plan, PlanOption, PlanPoint } from "../../../src/schema";

export const MIB = 2 ** 20;

const range = (mib: number) => ({
  peak_bytes: mib * MIB,
  low_bytes: (mib - 4) * MIB,
  high_bytes: (mib + 4) * MIB,
});

export const option = (kind: PlanOption["kind"], mib: number): PlanOption => ({
  kind,
  sentence: kind,
  segments: [],
  batch_size: null,
  accumulation: 1,
  ...range(mib),
  fits: false,
  extra_time: null,
  frozen: [],
  reason: null,
  peak_source: "predicted",
  time_source: "measured",
});
const point = (mib: number, extra_time: number, segments: number): PlanPoint => ({
  ...range(mib),
  extra_time,
  segments,
});

export const plan: Plan = {
  run: "a",
  device: "CPU:0",
  model: "net",
  budget_bytes: 80 * MIB,
  batch_size: null,
  accumulation: 1,
  fits: true,
  segments: [
    ["a", "b"],
    ["d", "e", "f", "g"],
  ],
  ...range(60),
  peak_source: "predicted",
  unchanged_peak_bytes: 100 * MIB,
  demand_bytes: 58 * MIB,
  extra_time: 0.2,
  time_source: "measured",
  code: "model = tb_memplugin.remat(model, [])",
  options: [
    { ...option("none", 100), extra_time: 0 },
    {
      ...option("recompute", 60),
      sentence: "recompute 2 segments with 6 layers",
      fits: true,
      extra_time: 0.2,
    },
    option("batch_size", 55),
  ],
  curve: [point(50, 0.4, 3), point(60, 0.2, 2), point(100, 0, 0)],
  ledger: [
    {
      layer: "net/a",
      category: "activations",
      trainable: true,
      bytes: 40 * MIB,
      rounding_bytes: 0,
    },
    { layer: "net/a", category: "weights", trainable: true, bytes: 20 * MIB, rounding_bytes: 0 },
  ],
  sentences: [],
};
