// @vitest-environment happy-dom
import { h, render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, describe, expect, it, vi } from "vitest";

import type { RunInfo } from "../../../src/model/run";
import { DEFAULTS, type Choices } from "../../../src/state/address";
import type { Store } from "../../../src/state/store";
import { StoreContext } from "../../../src/views/shared/context";
import { useStepsChart } from "../../../src/views/shared/steps-chart";

const STEPS = Float64Array.from([10, 20, 30]);
const runOf = (first_step: number | null, last_step: number | null): RunInfo => ({ run: "exp", first_step, last_step }) as RunInfo;

/** What a chart of three steps gets, and the store's calls. */
function used(choices: Partial<Choices> = {}, cursor: number | null = null, shown: number | null = null, runs?: readonly RunInfo[]) {
  const store = {
    choices: { value: { ...DEFAULTS, ...choices } },
    primary: { value: runOf(10, 30) },
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
  act(() => render(h(StoreContext.Provider, { value: store as unknown as Store }, h(Probe, {})), document.body));
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

  it("ends where the steps of its runs end", () => {
    expect(used().chart.whole).toEqual([9.5, 30.5]);
    expect(used({}, null, null, [runOf(10, 30), runOf(0, 25)]).chart.whole).toEqual([-0.5, 30.5]);
    expect(used({}, null, null, [runOf(null, null), runOf(0, 25)]).chart.whole).toEqual([-0.5, 25.5]);
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
