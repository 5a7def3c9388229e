import { describe, expect, it } from "vitest";

import type { Overview } from "../../src/model/overview";
import {
  batchSizeAt,
  comparedSteps,
  counterpartRow,
  defaultRow,
  peakWord,
  selectStep,
  stepNote,
  tracedNeighbours,
  tracedSteps,
  type StepSelection,
} from "../../src/model/step-selection";

const column = (...values: number[]): Float64Array => Float64Array.from(values);
const ref = (step: number) => ({
  step,
  phase: "train" as const,
  mode: "graph" as const,
  batch_size: 32,
  at_failure: false,
  first_step: step,
  earlier_slots_bytes: 0,
});

/** Steps 0 to 50 by tens; 10 and 30 were traced, the highest peak is at 40. */
const WHOLE = {
  phase: "train",
  rows: 6,
  step: column(0, 10, 20, 30, 40, 50),
  peak_bytes: column(1, 5, 6, 7, 9, 8),
  snapshots: [ref(10), ref(30)],
  snapshot: column(0, 0, 0, 1, 1, 1),
  traced: column(0, 1, 0, 1, 0, 0),
  failures: [],
} as unknown as Overview;

describe("what step A is compared with", () => {
  /** Traced at 10, 20, 40 and 50. */
  const traced = {
    ...WHOLE,
    traced: column(0, 1, 1, 0, 1, 1),
    changes: [{ step: 0 }],
  } as unknown as Overview;
  const changed = { ...traced, changes: [{ step: 0 }, { step: 30 }] } as unknown as Overview;

  it("is the traced peak of another run", () => {
    expect(counterpartRow(40, traced, false)).toBe(4);
    expect(counterpartRow(null, traced, true)).toBe(4);
  });

  it("is the traced peak on the other side of the last change of the same run", () => {
    expect(counterpartRow(40, changed, true)).toBe(2);
    expect(counterpartRow(10, changed, true)).toBe(4);
  });

  it("is the traced step that differs most where nothing changed", () => {
    expect(counterpartRow(40, traced, true)).toBe(1);
    expect(counterpartRow(10, traced, true)).toBe(4);
  });

  it("is the default where no other step was traced", () => {
    const alone = { ...traced, traced: column(0, 0, 0, 0, 1, 0) } as unknown as Overview;
    expect(counterpartRow(40, alone, true)).toBe(4);
  });
});

it("compares the selected step with its counterpart, the earlier one first", () => {
  /** The highest traced peak is at 40, after the change at 30. */
  const whole = {
    ...WHOLE,
    traced: column(0, 1, 1, 0, 1, 1),
    changes: [{ step: 0 }, { step: 30 }],
  } as unknown as Overview;
  expect(comparedSteps(whole, 40)).toEqual([20, 40]);
  expect(comparedSteps(whole, 10)).toEqual([10, 40]);
  expect(comparedSteps({ ...whole, rows: 0, step: column() } as Overview, 40)).toBeNull();
});

/** Steps 10 to 22, at full resolution. */
const ZOOM = {
  ...WHOLE,
  rows: 4,
  step: column(10, 15, 20, 22),
  peak_bytes: column(5, 5, 6, 6),
  snapshot: column(0, 0, 0, 0),
  traced: column(1, 0, 0, 0),
} as unknown as Overview;

const UNTRACED = {
  ...WHOLE,
  snapshots: [],
  snapshot: column(NaN, NaN, NaN, NaN, NaN, NaN),
  traced: column(0, 0, 0, 0, 0, 0),
} as Overview;
const EMPTY = { ...WHOLE, rows: 0, step: column(), snapshots: [] } as Overview;

const of = (chosen: number | null, shown = WHOLE, whole = WHOLE): StepSelection => {
  const found = selectStep(whole, shown, chosen);
  if (!found) throw new Error("no step");
  return found;
};

describe("the selected step", () => {
  it("is the traced step with the highest peak by default, whatever the zoom", () => {
    expect(defaultRow(WHOLE)).toBe(3);
    expect(of(null)).toMatchObject({
      step: 30,
      row: 3,
      snapshot: ref(30),
      chosen: null,
      isPeak: false,
    });
    const zoomed = of(null, ZOOM);
    expect([zoomed.step, zoomed.overview]).toEqual([30, WHOLE]);
  });

  it("is the step of the highest peak where none was traced", () => {
    expect(of(null, UNTRACED, UNTRACED)).toMatchObject({ step: 40, snapshot: null, isPeak: true });
    const unmeasured = { ...UNTRACED, peak_bytes: column(NaN, NaN, NaN, NaN, NaN, NaN) };
    expect(of(null, unmeasured, unmeasured)).toMatchObject({ step: 0, isPeak: false });
    expect(selectStep(EMPTY, EMPTY, 3)).toBeNull();
    expect(defaultRow(EMPTY)).toBe(-1);
  });

  it("is the chosen one, at the resolution of the zoom, outside of it that of the run", () => {
    expect(of(15, ZOOM)).toMatchObject({ step: 15, row: 1, overview: ZOOM, snapshot: ref(10) });
    expect(of(40, ZOOM)).toMatchObject({
      step: 40,
      row: 4,
      overview: WHOLE,
      snapshot: ref(30),
      isPeak: true,
    });
    expect(of(16)).toMatchObject({ step: 20, chosen: 16 });
  });

  it("has traced neighbours", () => {
    expect(tracedSteps({ ...WHOLE, snapshots: [ref(30), ref(10), ref(30)] })).toEqual([10, 30]);
    expect(tracedNeighbours([10, 30], 30)).toEqual({ before: 10, after: null });
    expect(tracedNeighbours([10, 30], 20)).toEqual({ before: 10, after: 30 });
    expect(tracedNeighbours([10, 30], 3)).toEqual({ before: null, after: 10 });
    expect(tracedNeighbours([], 3)).toEqual({ before: null, after: null });
  });

  it("says whether it is the peak", () => {
    expect([of(null), of(40), of(20)].map(peakWord)).toEqual(["traced peak", "peak", ""]);
  });
});

describe("the note on the selected step", () => {
  it("says nothing where the step itself is shown", () => {
    expect([stepNote(of(30), null), stepNote(of(30), 30)]).toEqual(["", ""]);
  });

  it("names the traced step of the breakdown", () => {
    expect(stepNote(of(20), null)).toBe("Step 20 was not traced; breakdown from step 10.");
    expect(stepNote(of(16), null)).toBe(
      "Step 16 is not in the chart; step 20 is the nearest. Step 20 was not traced; breakdown from step 10.",
    );
    expect(stepNote(of(20, UNTRACED, UNTRACED), null)).toBe(
      "No train step was traced; breakdown from the layer table.",
    );
  });

  it("names the step of the timeline where it is another one", () => {
    expect(stepNote(of(20), 10)).toBe("Step 20 was not traced; timeline from step 10.");
    expect(stepNote(of(30), 10)).toBe("Step 30 has no timeline; timeline from step 10.");
  });
});

describe("a run that failed", () => {
  const failure = (step: number) => ({ oom: 0, step, reason: "" });
  const failed = { ...WHOLE, failures: [failure(20), failure(50)] } as Overview;

  it("is shown at the last failed step, or at the step nearest to it", () => {
    const found = of(null, failed, failed);
    expect([found.step, found.defaultStep, found.failed, peakWord(found)]).toEqual([
      50,
      50,
      true,
      "failed",
    ]);
    const later = { ...WHOLE, failures: [failure(51)] } as Overview;
    expect([of(null, later, later).step, of(null, later, later).failed]).toEqual([50, false]);
    expect(of(30, failed, failed).failed).toBe(false);
  });
});

it("a step has the batch size it was traced with", () => {
  const snapshots = [ref(10), { ...ref(30), batch_size: 8 }, { ...ref(50), batch_size: null }];
  expect([10, 30, 50, 40].map((step) => batchSizeAt(snapshots, step))).toEqual([32, 8, null, null]);
});
