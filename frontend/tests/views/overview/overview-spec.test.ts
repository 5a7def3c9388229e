import { expect, it } from "vitest";

import type { Overview } from "../../../src/model/overview";
import { DEFAULTS } from "../../../src/state/address";
import { overviewPicture } from "../../../src/views/overview/overview-spec";
import { OVERVIEW, change } from "../../model/overview-cases";
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
