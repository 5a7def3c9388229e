import { expect, it } from "vitest";

import { waterfallLayout } from "../../src/charts/waterfall-layout";

it("goes from one total to the other, without the changes that are none", () => {
  expect(waterfallLayout(100, [50, 0, -120])).toEqual({
    bars: [
      { index: -1, from: 0, to: 100 },
      { index: 0, from: 100, to: 150 },
      { index: 2, from: 150, to: 30 },
      { index: -2, from: 0, to: 30 },
    ],
    low: 0,
    high: 168,
  });
});

it("begins above 0 where small changes would be lost", () => {
  const { low, high } = waterfallLayout(1000, [10, -4]);
  expect(low).toBe(990);
  expect(high).toBeGreaterThan(1010);
  expect(waterfallLayout(0, []).high).toBeGreaterThan(0);
});
