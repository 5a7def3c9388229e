import { describe, expect, it } from "vitest";

import { curveLayout } from "../../../src/views/what-if/plan-curve";
import { MIB, plan } from "./plan-cases";

describe("the curve of peak against time", () => {
  it("goes from the recorded training to the smallest peak, with room for the ranges and the budget", () => {
    const layout = curveLayout(plan);
    expect(layout.points.map(({ segments }) => segments)).toEqual([0, 2, 3]);
    expect(layout.time).toBeCloseTo(0.44);
    expect(layout.ticks).toEqual([0, 0.1, 0.2, 0.30000000000000004, 0.4]);
    expect(layout.top).toBeGreaterThan(104 * MIB);
    expect(layout.budgetInside).toBe(true);
  });

  it("leaves a budget far above all points outside", () => {
    const { top, budgetInside } = curveLayout({ ...plan, budget_bytes: 4000 * MIB });
    expect(budgetInside).toBe(false);
    expect(top).toBeLessThan(150 * MIB);
  });

  it("has an axis for times that are nearly nothing", () => {
    const cheap = plan.curve.map((point) => ({ ...point, extra_time: point.extra_time / 100 }));
    expect(curveLayout({ ...plan, curve: cheap })).toMatchObject({ time: 0.1, ticks: expect.arrayContaining([0, 0.1]) as number[] });
  });
});
