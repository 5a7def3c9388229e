import { expect, it } from "vitest";

import type { LedgerTotals } from "../../../src/model/snapshot";
import { layerSteps, totalOf, usedAt } from "../../../src/views/layer/layer-view";

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
    bytes: [Float64Array.of(0, 30), Float64Array.of(30, 0), Float64Array.of(0, 60), Float64Array.of(0, 0)],
  } as unknown as LedgerTotals;
  const steps = layerSteps(totals);
  expect(usedAt(steps, 0)).toEqual([{ category: "weights", bytes: 30 }]);
  expect(usedAt(steps, 1)).toEqual([
    { category: "optimizer_state", bytes: 60 },
    { category: "weights", bytes: 30 },
  ]);
  expect([0, 1].map((row) => totalOf(steps, row))).toEqual([30, 90]);
});
