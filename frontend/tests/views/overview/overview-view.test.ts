import { expect, it } from "vitest";

import type { Overview } from "../../../src/model/overview";
import { DEFAULTS } from "../../../src/state/address";
import { overviewPicture } from "../../../src/views/overview/overview-view";
import { MIB, OVERVIEW, change, column, unknown } from "../../model/overview-cases";
import { NO_FOCUS } from "../focus-cases";

const headroomOf = (changed: Partial<Overview>): number | undefined =>
  overviewPicture({ ...OVERVIEW, ...changed }, 0, [], DEFAULTS, "light", NO_FOCUS).spec.headroom;

it("the chart keeps room for labels only if a change or a failure is marked", () => {
  const plain = headroomOf({});
  expect(plain).toBe(headroomOf({ changes: [] }));
  const marked = headroomOf({ failures: [{ oom: 0, step: 30, reason: "no memory" }] });
  expect(marked).toBeGreaterThan(plain ?? NaN);
  expect(headroomOf({ changes: [...OVERVIEW.changes, change(30, {})] })).toBe(marked);
});

it("the chart reaches up to a capacity that is not far above the peak", () => {
  const topOf = (capacity: Float64Array): number =>
    overviewPicture({ ...OVERVIEW, capacity_bytes: capacity }, 0, [], DEFAULTS, "light", NO_FOCUS).spec.yMax;
  expect(topOf(unknown)).toBeLessThan(100 * MIB);
  expect(topOf(column(100 * MIB, 100 * MIB, 100 * MIB, 100 * MIB))).toBeGreaterThanOrEqual(100 * MIB);
});

it("has a lane of epochs, and room for it, only if there are epochs", () => {
  const epochs: Overview["epochs"] = [{ epoch: 0, first_step: 0, last_step: 3 }];
  const lanesOf = (changed: Partial<Overview>): number =>
    overviewPicture({ ...OVERVIEW, ...changed }, 0, [], DEFAULTS, "light", NO_FOCUS).spec.lanes.length;
  expect(lanesOf({ epochs })).toBe(lanesOf({ epochs: [] }) + 1);
  expect(headroomOf({ epochs })).toBeGreaterThan(headroomOf({ epochs: [] }) ?? NaN);
});
