// @vitest-environment happy-dom
import { h, render } from "preact";
import { act } from "preact/test-utils";
import { describe, expect, it, afterEach, vi } from "vitest";

import type { Overview } from "../../../src/model/overview";
import { DEFAULTS, type Choices } from "../../../src/state/address";
import type { Store } from "../../../src/state/store";
import { StoreContext } from "../../../src/views/shared/context";
import {
  changeMarks,
  failureMarks,
  headroom,
  highest,
  lastKnown,
  placesOf,
  rangeOf,
  rangeOfSome,
  startOf,
  tracedSpans,
  validationPoints,
  zoomOf,
  useStepsChart,
} from "../../../src/views/shared/frame";
import type { RunInfo } from "../../../src/schema";

const column = (...values: number[]): Float64Array => Float64Array.from(values);
const choices = (changed: Partial<Choices>): Choices => ({ ...DEFAULTS, ...changed });

/** Steps 10, 20 and 30, at 100, 101 and 111 seconds. */
const OVERVIEW = {
  rows: 3,
  step: column(10, 20, 30),
  wall_time: column(100, 101, 111),
  peak_bytes: column(5, NaN, 7),
  changes: [],
  epochs: [],
  sessions: [],
  validations: [],
  failures: [],
} as unknown as Overview;

describe("columns", () => {
  it("have a highest value between two places", () => {
    const x = column(0, 1, 2, 3);
    expect(highest(column(9, 4, NaN, 6), x, [0.5, 2.5])).toBe(4);
    expect(highest(column(9, 4, NaN, 6), x, [0, 3])).toBe(9);
    expect(highest(column(9, 4, NaN, 6), x, [2, 2])).toBe(0);
    expect(highest(column(), column(), [0, 1])).toBe(0);
  });

  it("have a last known value", () => {
    expect([
      lastKnown(column(1, 2, NaN)),
      lastKnown(column(0, NaN)),
      lastKnown(column(NaN)),
      lastKnown(column()),
    ]).toEqual([2, 0, null, null]);
  });
});

describe("places on the x-axis", () => {
  it("are steps or seconds since the start, each row a cell", () => {
    expect(startOf({ ...OVERVIEW, wall_time: column(NaN, 101) })).toBe(101);
    expect([...placesOf(OVERVIEW, 100, choices({})).edges]).toEqual([5, 15, 25, 35]);
    expect([...placesOf(OVERVIEW, 100, choices({ axis: "relative" })).x]).toEqual([0, 1, 11]);
  });

  it("are zoomed to whole steps, on every axis", () => {
    expect(placesOf(OVERVIEW, 100, choices({ zoom: [20, 30] })).range).toEqual([19.5, 30.5]);
    // On an axis of time, step 20 begins between 0 s and 1 s; step 30 is the last one.
    expect(placesOf(OVERVIEW, 100, choices({ axis: "relative", zoom: [20, 30] })).range).toEqual([
      0.5, 16,
    ]);
    // A zoom of another run that is beyond this one's steps shows all of it.
    expect(placesOf(OVERVIEW, 100, choices({ axis: "relative", zoom: [500, 600] })).range).toEqual([
      -0.5, 16,
    ]);
  });

  it("span something even for one row or none", () => {
    expect([rangeOf(column(3, 4)), rangeOf(column(3, 3)), rangeOf(column())]).toEqual([
      [3, 4],
      [2.5, 3.5],
      [0, 1],
    ]);
  });
});

describe("validation passes", () => {
  const passes = [0, 20, 40].map((after_step, index) => ({
    after_step,
    batches: 1,
    peak_bytes: index === 1 ? 9 : 8,
  }));
  const validated = { ...OVERVIEW, validations: passes } as unknown as Overview;
  const points = (changed: Partial<Choices>) =>
    validationPoints(placesOf(validated, 100, choices(changed)));

  it("are marked where they ran, not at the ends of a zoom", () => {
    expect(points({ zoom: [10, 30] })).toEqual([{ x: 20, y: 9 }]);
    expect(points({ zoom: [21, 30] })).toEqual([]);
    expect(points({ axis: "relative" })).toEqual([{ x: 1, y: 9 }]);
  });

  /** Passes after steps 39 and 79, the second one traced. */
  const phase = {
    ...OVERVIEW,
    phase: "validation",
    rows: 2,
    step: column(39, 79),
    wall_time: column(120, 160),
    epochs: [
      { epoch: 0, first_step: 0, last_step: 39 },
      { epoch: 1, first_step: 40, last_step: 79 },
    ],
  } as unknown as Overview;

  it("have cells below their epochs when they are the phase", () => {
    const places = placesOf(phase, 120, choices({}));
    expect([...places.edges]).toEqual([-0.5, 39.5, 79.5]);
    expect([-3, 5, 39, 40, 79, 99].map((x) => places.rowAt?.(x))).toEqual([0, 0, 0, 1, 1, 1]);
    expect(tracedSpans(places, column(0, 1))).toEqual([[39.5, 79.5]]);
    expect(placesOf(OVERVIEW, 100, choices({})).rowAt).toBeUndefined();
  });
});

describe("a zoom by pointer", () => {
  const [steps, seconds] = [column(10, 20, 30), column(0, 1, 11)];

  it("covers whole steps inside the dragged span", () => {
    expect(zoomOf("step", steps, steps, 11.2, 29.9)).toEqual([12, 29]);
    expect(zoomOf("step", steps, steps, -4, 12)).toEqual([0, 12]);
    expect(zoomOf("relative", steps, seconds, 0.5, 20)).toEqual([20, 30]);
  });

  it("is none for fewer than two steps", () => {
    expect(zoomOf("step", steps, steps, 11.2, 11.8)).toBeNull();
    expect(zoomOf("relative", steps, seconds, 2, 12)).toBeNull();
    expect(zoomOf("relative", steps, seconds, 20, 30)).toBeNull();
  });

  it("ranges over the run's steps in a chart of only some of them", () => {
    const some = (changed: Partial<Choices>, span: [number, number] | null) =>
      rangeOfSome(steps, steps, choices(changed), span);
    expect(some({}, [0, 99])).toEqual([-0.5, 99.5]);
    expect(some({ zoom: [12, 40] }, [0, 99])).toEqual([11.5, 40.5]);
    expect(some({}, null)).toBeNull();
    expect(
      rangeOfSome(steps, seconds, choices({ axis: "relative", zoom: [10, 20] }), [0, 99]),
    ).toEqual([0, 1]);
    expect(
      rangeOfSome(steps, seconds, choices({ axis: "relative", zoom: [11, 19] }), [0, 99]),
    ).toBeNull();
  });
});

describe("marks", () => {
  const change = {
    frozen_weight_bytes: 0,
    trainable_weight_bytes: 0,
    statistics_bytes: 0,
    unfreezing_weight_bytes: 0,
    optimizer_bytes: 0,
    other_optimizer_bytes: 0,
    frozen_layers: 0,
    trainable_layers: 0,
    became_frozen: [],
  };
  const changed = {
    ...OVERVIEW,
    changes: [
      { ...change, step: 10, reason: "recording began", became_trainable: [] },
      { ...change, step: 20, reason: "conv1 became trainable", became_trainable: ["net/conv1"] },
    ],
  } as unknown as Overview;

  it("stand before their step, on every axis", () => {
    const places = placesOf(changed, 100, choices({}));
    expect(changeMarks(places)).toMatchObject([{ x: 19.5, step: 20, label: "unfroze conv1" }]);
    expect(changeMarks(placesOf(changed, 100, choices({ axis: "relative" })))).toMatchObject([
      { x: 0.5 },
    ]);
    // A zoom's rows do not include the step: on an axis of time its place is unknown.
    const zoomed = {
      ...changed,
      rows: 1,
      step: column(30),
      wall_time: column(111),
      peak_bytes: column(7),
    };
    expect(changeMarks(placesOf(zoomed, 100, choices({ axis: "relative" })))).toMatchObject([
      { x: NaN },
    ]);
  });

  it("need room above the plot, and so does the lane of epochs", () => {
    const [none, marks, lane, both] = [
      headroom(false, false),
      headroom(true, false),
      headroom(false, true),
      headroom(true, true),
    ];
    expect(Math.min(marks, lane)).toBeGreaterThan(none);
    expect(both - none).toBe(marks - none + (lane - none));
  });
});

describe("steps that ran out of memory", () => {
  const failures = [
    { oom: 1, step: 31, reason: "8 MiB requested." },
    { oom: 4, step: 99, reason: "" },
  ];
  const failed = { ...OVERVIEW, failures } as unknown as Overview;
  const marks = (changed: Partial<Choices>) =>
    failureMarks(placesOf(failed, 100, choices(changed)));

  it("are marked where they failed, right after the last measured step too", () => {
    expect(marks({})[0]).toEqual({
      x: 30.5,
      step: 31,
      label: "out of memory",
      sentence: "Step 31 ran out of memory. 8 MiB requested.",
      oom: 1,
    });
    expect(marks({ axis: "relative" }).map(({ x }) => x)).toEqual([16, NaN]);
  });
});

const STEPS = Float64Array.from([10, 20, 30]);
const runOf = (first_step: number | null, last_step: number | null): RunInfo =>
  ({ run: "exp", first_step, last_step }) as RunInfo;

/** What a chart of three steps gets, and the store's calls. */
function used(
  choices: Partial<Choices> = {},
  cursor: number | null = null,
  shown: number | null = null,
  runs?: readonly RunInfo[],
  traced: readonly number[] = [],
) {
  const store = {
    choices: { value: { ...DEFAULTS, ...choices } },
    primary: { value: runOf(10, 30) },
    whole: { value: { value: { step: STEPS, snapshots: traced.map((step) => ({ step })) } } },
    shownStep: { value: shown === null ? null : { step: shown } },
    cursor: { value: cursor },
    choose: vi.fn(),
    chooseWithUndo: vi.fn(),
    fetched: { hold: vi.fn() },
  };
  let found: ReturnType<typeof useStepsChart> | null = null;
  const Probe = () => {
    found = useStepsChart(STEPS, STEPS, runs);
    return null;
  };
  act(() =>
    render(
      h(StoreContext.Provider, { value: store as unknown as Store }, h(Probe, {})),
      document.body,
    ),
  );
  if (!found) throw new Error("not rendered");
  return { store, chart: found as ReturnType<typeof useStepsChart> };
}

afterEach(() => render(null, document.body));

describe("a chart over steps", () => {
  it("has the rows of the cursor, of the selected step and of the shown one", () => {
    expect(used({ step: 20 }, 30).chart).toMatchObject({ cursor: 2, pin: 1, rest: 1 });
    expect(used({}, null, 10).chart).toMatchObject({ cursor: null, pin: null, rest: 0 });
    expect(used().chart).not.toHaveProperty("rest");
    // A step outside has no row, and the closest one is described.
    for (const [step, rest] of [
      [9, 0],
      [31, 2],
    ] as const) {
      expect(used({ step }).chart).toMatchObject({ pin: null, rest });
    }
    expect(used({ step: 10 }).chart.pin).toBe(0);
    expect(used({ step: 30 }).chart.pin).toBe(2);
  });

  it("has a handle that goes from one traced step to the next, or to every step, where a step can be selected", () => {
    const { store, chart } = used({ step: 20 }, null, null, undefined, [30, 10]);
    expect(chart.handle).toMatchObject({ step: 20, stops: [10, 30], ends: [10, 30] });
    chart.handle?.choose(30);
    expect(store.choose).toHaveBeenCalledWith({ step: 30 });
    expect(used({ step: 20 }).chart.handle?.stops).toEqual([10, 20, 30]);
    expect(used().chart).not.toHaveProperty("handle");
    expect(used({ step: 20, view: "activations" }).chart).not.toHaveProperty("handle");
  });

  it("ends where the steps of its runs end", () => {
    expect(used().chart.whole).toEqual([9.5, 30.5]);
    expect(used({}, null, null, [runOf(10, 30), runOf(0, 25)]).chart.whole).toEqual([-0.5, 30.5]);
    expect(used({}, null, null, [runOf(null, null), runOf(0, 25)]).chart.whole).toEqual([
      -0.5, 25.5,
    ]);
    expect(used({}, null, null, [runOf(null, null)]).chart.whole).toBeUndefined();
    expect(used({ axis: "relative" }).chart.whole).toBeUndefined();
  });

  it("moves the cursor, selects and zooms by steps", () => {
    const { store, chart } = used();
    chart.onCursor(1);
    expect(store.cursor.value).toBe(20);
    chart.onCursor(null);
    expect(store.cursor.value).toBeNull();
    chart.onPin(2);
    expect(store.chooseWithUndo).toHaveBeenCalledWith({ step: 30 });
    chart.onZoom(11.2, 29.9);
    expect(store.choose).toHaveBeenLastCalledWith({ zoom: [12, 29] });
    chart.onZoom(11.2, 11.8);
    expect(store.choose).toHaveBeenCalledTimes(1);
    chart.onReset();
    expect(store.choose).toHaveBeenLastCalledWith({ zoom: null });
  });
});
