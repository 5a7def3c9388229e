import { expect, it } from "vitest";

import type { Overview } from "../../../src/model/overview";
import type { LedgerTotals } from "../../../src/model/snapshot";
import { DEFAULTS } from "../../../src/state/address";
import { layerSpec, layerSteps, totalOf, usedAt } from "../../../src/views/layer/layer-view";
import { NO_FOCUS } from "../focus-cases";
import type { LayerChange } from "../../../src/schema";

const OVERVIEW = {
  ...{ phase: "train", rows: 2, step: Float64Array.of(0, 9), wall_time: Float64Array.of(0, 9) },
  ...{ epochs: [], sessions: [], failures: [] },
};

const TOTALS = {
  step: Float64Array.of(1, 9),
  wall_time: Float64Array.of(0, 8),
  in_use_bytes: Float64Array.of(90, 95),
  groups: [{ category: "weights", trainable: true }],
  bytes: [Float64Array.of(20, 30)],
} as unknown as LedgerTotals;

it("shows the asked step with the figures of the traced one that describes it", () => {
  const asked = layerSteps(TOTALS, { step: 7, wall_time: 6, traced: 9 });
  expect([[...asked.step], [...asked.traced], [...asked.wall_time]]).toEqual([
    [1, 7, 9],
    [1, 9, 9],
    [0, 6, 8],
  ]);
  expect([0, 1, 2].map((row) => totalOf(asked, row))).toEqual([20, 30, 30]);
  expect([...layerSteps(TOTALS, { step: 12, wall_time: 9, traced: 9 }).step]).toEqual([1, 9, 12]);
  expect(layerSteps(TOTALS, { step: 9, wall_time: 8, traced: 9 })).toEqual(layerSteps(TOTALS));
});

it("marks changes of the layers in the chart, and only traced steps as measured", () => {
  const change = (step: number): Partial<LayerChange> => ({
    step,
    reason: "unfroze",
    became_trainable: ["a"],
    became_frozen: [],
  });
  const whole = { ...OVERVIEW, changes: [change(0), change(7)] } as unknown as Overview;
  const look = {
    choices: DEFAULTS,
    focus: NO_FOCUS,
    firstSteps: new Map<number, number>(),
    span: [0, 9],
  } as const;
  const steps = layerSteps(TOTALS, { step: 7, wall_time: 6, traced: 9 });
  const { marks, spec } = layerSpec(steps, { ...look, whole });
  expect(marks.map(({ x, step, label }) => [x, step, label])).toEqual([[6.5, 7, "unfroze a"]]);
  const bare = layerSpec(steps, { ...look, whole: null });
  expect([bare.marks, spec.painters.length - bare.spec.painters.length]).toEqual([[], 1]);
  expect(spec.headroom).toBeGreaterThan(bare.spec.headroom ?? 8);
});

it("at a step, a layer lists the categories that it uses then, and they sum to its total", () => {
  const totals = {
    step: Float64Array.of(1, 2),
    wall_time: Float64Array.of(0, 1),
    in_use_bytes: Float64Array.of(90, 90),
    groups: [
      { category: "weights", trainable: true },
      { category: "weights", trainable: false },
      { category: "optimizer_state", trainable: true },
      { category: "activations", trainable: true },
    ],
    bytes: [
      Float64Array.of(0, 30),
      Float64Array.of(30, 0),
      Float64Array.of(0, 60),
      Float64Array.of(0, 0),
    ],
  } as unknown as LedgerTotals;
  const steps = layerSteps(totals);
  expect(usedAt(steps, 0)).toEqual([{ category: "weights", bytes: 30 }]);
  expect(usedAt(steps, 1)).toEqual([
    { category: "optimizer_state", bytes: 60 },
    { category: "weights", bytes: 30 },
  ]);
  expect([0, 1].map((row) => totalOf(steps, row))).toEqual([30, 90]);
});
