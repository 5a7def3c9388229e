import { describe, expect, it } from "vitest";

import { categoriesOf, peaksOf } from "../../../src/model/what-if";
import { barsLayout, dotsLayout, spread, timeTicks } from "../../../src/views/what-if/peak-charts";
import type { WhatIf } from "../../../src/schema";
import { plan } from "./plan-cases";
import { MIB, answer } from "./what-if-cases";

const layoutOf = (of: WhatIf, planned = false) => {
  const peaks = peaksOf(of, planned ? plan : null);
  return barsLayout(peaks, categoriesOf(peaks), of.capacity_bytes);
};

describe("the stacked bars", () => {
  it("stack the categories of all ledgers in the same order", () => {
    const { bars } = layoutOf(answer, true);
    expect(bars.map(({ peak: { name, peak_bytes } }) => [name, (peak_bytes ?? 0) / MIB])).toEqual([
      ["measured", 110],
      ["predicted", 200],
      ["plan", 60],
    ]);
    expect(
      bars.map(({ segments }) =>
        segments.map(({ key, low, high }) => [key, low / MIB, high / MIB]),
      ),
    ).toEqual([
      [["activations", 0, 110]],
      [
        ["weights:trainable", 0, 22],
        ["activations", 22, 202],
      ],
      [
        ["weights:trainable", 0, 20],
        ["activations", 20, 60],
      ],
    ]);
  });

  it("leave room for the range, and for the capacity where it is near", () => {
    expect(layoutOf(answer)).toMatchObject({ capacityInside: true, top: 400 * 1.06 * MIB });
    const { capacityInside, top } = layoutOf({ ...answer, capacity_bytes: 4000 * MIB });
    expect(capacityInside).toBe(false);
    expect(top).toBeGreaterThan(210 * MIB);
    expect(top).toBeLessThan(260 * MIB);
  });

  it("show the prediction alone where nothing was measured", () => {
    expect(layoutOf({ ...answer, measured: null }).bars.map(({ peak }) => peak.name)).toEqual([
      "predicted",
    ]);
  });
});

describe("the picture of peaks against times", () => {
  it("has every change as a point, with room for the ranges and the budget", () => {
    const layout = dotsLayout(plan);
    expect(layout.dots.map(({ time }) => time)).toEqual([0, 0.2, 0.4, null]);
    expect(layout.time).toBeCloseTo(0.44);
    expect(timeTicks(layout.time, 6)).toEqual([0, 0.1, 0.2, 0.30000000000000004, 0.4]);
    expect(timeTicks(layout.time, 2.2)).toEqual([0, 0.2, 0.4]);
    expect(layout.top).toBeGreaterThan(104 * MIB);
    expect(layout.budgetInside).toBe(true);
  });

  it("leaves a budget far above all points outside", () => {
    const { top, budgetInside } = dotsLayout({ ...plan, budget_bytes: 4000 * MIB });
    expect(budgetInside).toBe(false);
    expect(top).toBeLessThan(150 * MIB);
  });

  it("has an axis for times that are nearly nothing", () => {
    const short = <T extends { extra_time: number | null }>(one: T): T => ({
      ...one,
      extra_time: one.extra_time && one.extra_time / 100,
    });
    const cheap = { ...plan, options: plan.options.map(short), curve: plan.curve.map(short) };
    expect(dotsLayout(cheap)).toMatchObject({ time: 0.1 });
    expect(timeTicks(0.1, 6)).toEqual(expect.arrayContaining([0, 0.1]));
  });

  it("keeps labels apart, in order and inside", () => {
    expect(spread([10, 11, 40], 14, 100)).toEqual([10, 24, 40]);
    expect(spread([80, 90, 99], 14, 100)).toEqual([72, 86, 100]);
    expect(spread([], 14, 100)).toEqual([]);
  });
});
