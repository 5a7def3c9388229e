import { expect, it } from "vitest";

import type { Overview } from "../../../src/model/overview";
import type { Answer } from "../../../src/schema";
import { DEFAULTS } from "../../../src/state/address";
import { overviewPicture, trendOf } from "../../../src/views/overview/overview-view";
import { MIB, OVERVIEW, change, column, unknown } from "../../model/overview-cases";
import { NO_FOCUS } from "../focus-cases";

const headroomOf = (changed: Partial<Overview>): number | undefined =>
  overviewPicture({ ...OVERVIEW, ...changed }, 0, [], DEFAULTS, NO_FOCUS).spec.headroom;

it("the chart keeps room for labels only if a change or a failure is marked", () => {
  const plain = headroomOf({});
  expect(plain).toBe(headroomOf({ changes: [] }));
  const marked = headroomOf({
    failures: [
      { oom: 0, step: 30, reason: "no memory", requested_bytes: null, in_use_bytes: null },
    ],
  });
  expect(marked).toBeGreaterThan(plain ?? NaN);
  expect(headroomOf({ changes: [...OVERVIEW.changes, change(30, {})] })).toBe(marked);
});

it("the chart reaches up to a capacity that is not far above the peak", () => {
  const topOf = (capacity: Float64Array): number =>
    overviewPicture({ ...OVERVIEW, capacity_bytes: capacity }, 0, [], DEFAULTS, NO_FOCUS).spec.yMax;
  expect(topOf(unknown)).toBeLessThan(100 * MIB);
  expect(topOf(column(100 * MIB, 100 * MIB, 100 * MIB, 100 * MIB))).toBeGreaterThanOrEqual(
    100 * MIB,
  );
});

it("has a lane of epochs, and room for it, only if there are epochs", () => {
  const epochs: Overview["epochs"] = [{ epoch: 0, first_step: 0, last_step: 3 }];
  const lanesOf = (changed: Partial<Overview>): number =>
    overviewPicture({ ...OVERVIEW, ...changed }, 0, [], DEFAULTS, NO_FOCUS).spec.lanes?.length ?? 0;
  expect(lanesOf({ epochs })).toBe(lanesOf({ epochs: [] }) + 1);
  expect(headroomOf({ epochs })).toBeGreaterThan(headroomOf({ epochs: [] }) ?? NaN);
});

const FAILED = {
  oom: 0,
  step: 3,
  reason: "no memory",
  requested_bytes: 60 * MIB,
  in_use_bytes: 90 * MIB,
};
const CAPACITY = column(100 * MIB, 100 * MIB, 100 * MIB, 100 * MIB);

it("the chart reaches up to a failed request, but not far above the capacity", () => {
  const topOf = (
    failure: Partial<typeof FAILED>,
    zoom: readonly [number, number] | null = null,
  ): number =>
    overviewPicture(
      { ...OVERVIEW, capacity_bytes: CAPACITY, failures: [{ ...FAILED, ...failure }] },
      0,
      [],
      { ...DEFAULTS, zoom },
      NO_FOCUS,
    ).spec.yMax;
  const step = OVERVIEW.step[OVERVIEW.rows - 1] ?? NaN;
  expect(topOf({ step })).toBeCloseTo(150 * MIB * 1.08);
  expect(topOf({ step, requested_bytes: 9000 * MIB })).toBeCloseTo(150 * MIB * 1.08);
  expect(topOf({ step }, [0, step - 1])).toBeLessThan(120 * MIB);
});

const GROWS = {
  name: "growing",
  device: OVERVIEW.device,
  evidence: { phase: OVERVIEW.phase, zoom: [1, 90] },
  figures: {
    last_step: 40,
    last_peak_bytes: 50 * MIB,
    capacity_step: 90,
    capacity_bytes: 100 * MIB,
  },
} as unknown as Answer;

it("a growing series goes on to the capacity, as the server says, in the chart of its own steps", () => {
  expect(trendOf(OVERVIEW, GROWS)).toEqual({
    from: [40, 50 * MIB],
    to: [90, 100 * MIB],
    label: "full by step 90",
  });
  expect(trendOf({ ...OVERVIEW, phase: "validation" }, GROWS)).toBeNull();
  expect(trendOf(OVERVIEW, { ...GROWS, device: "GPU:7" })).toBeNull();
  expect(trendOf(OVERVIEW, { ...GROWS, figures: { last_step: 40 } })).toBeNull();
  const range = (choices: Partial<typeof DEFAULTS>): readonly [number, number] =>
    overviewPicture(OVERVIEW, 0, [], { ...DEFAULTS, ...choices }, NO_FOCUS, true, GROWS).spec.range;
  expect(range({})[1]).toBe(90.5);
  expect(range({ axis: "relative" })[1]).toBeLessThan(90);
  expect(range({ zoom: [0, 20] })[1]).toBeLessThan(30);
});
