// @vitest-environment happy-dom
import { signal } from "@preact/signals";
import { beforeEach, describe, expect, it, vi, afterEach } from "vitest";

import type { Overview } from "../../src/model/overview";
import { DEFAULTS } from "../../src/state/address";
import { toggleRun } from "../../src/state/runs";
import { createStore, keepUp, type Store } from "../../src/state/store";
import { dark as isDark } from "../../src/theme/palette";
import { run, settled, sourceOf } from "./store-cases";
import type { TimelineRef } from "../../src/schema";

beforeEach(() => window.history.replaceState(null, "", "#"));

describe("the store", () => {
  it("fetches the overviews of the checked runs, once for each version", async () => {
    const { source, asked, state } = sourceOf([run("a", 1), run("b", 2)]);
    const store = createStore(source);
    await store.reload();
    await settled();
    expect(store.primary.value?.run).toBe("b");
    expect(asked.map(({ run: name, span }) => [name, span])).toEqual([["b", null]]);
    toggleRun(store, "a");
    await settled();
    expect(asked.slice(1).map(({ run: name, span }) => [name, span])).toEqual([["a", null]]);
    await store.poll();
    await settled();
    expect(asked).toHaveLength(2);
    state.runs = [run("a", 1), run("b", 2, { version: "2" })];
    await store.poll();
    await settled();
    expect(asked.slice(2).map(({ run: name }) => name)).toEqual(["b"]);
  });

  it("shows a zoom at its own resolution, and the whole until it has arrived", async () => {
    const { source, asked } = sourceOf([run("a", 1)]);
    const store = createStore(source);
    await store.reload();
    await settled();
    store.choose({ zoom: [10, 20] });
    expect(store.overview.value.value?.rows).toBe(100);
    await settled();
    expect(asked.at(-1)).toMatchObject({ run: "a", span: [10, 20] });
    expect(store.overview.value.value?.rows).toBe(7);
    expect(store.whole.value.value?.rows).toBe(100);
  });

  it("asks for nothing that the run does not have", async () => {
    const { source, asked } = sourceOf([
      run("a", 1, { devices: [], rank: 2000 }),
      run("b", 0, { phases: ["predict"] }),
    ]);
    const store = createStore(source);
    await store.reload();
    await settled();
    expect(store.primary.value?.run).toBe("b");
    expect(asked.map(({ run: name, phase }) => [name, phase])).toEqual([["b", "predict"]]);
  });

  it("asks for each run's own phase beside a run that only predicts", async () => {
    const { source, asked } = sourceOf([
      run("a", 2, { phases: ["predict"] }),
      run("b", 1),
      run("c", 0, { phases: ["validation"] }),
    ]);
    const store = createStore(source);
    store.choose({ runs: ["a", "b", "c"], primary: "a", other: "b", view: "compare" });
    await store.reload();
    await settled();
    expect(store.comparable.value).toBe(true);
    expect(asked.map(({ run: name, phase }) => [name, phase])).toEqual([
      ["a", "predict"],
      ["b", "train"],
    ]);
    store.choose({ view: "overview" });
    await settled();
    expect(asked.at(-1)).toMatchObject({ run: "c", phase: "validation" });
  });

  it("compares nothing with a run that has no step of a phase beside training", async () => {
    const { source, asked } = sourceOf([
      run("a", 2, { phases: ["train", "validation"] }),
      run("b", 1),
    ]);
    const store = createStore(source);
    store.choose({ primary: "a", other: "b", phase: "validation", view: "compare" });
    await store.reload();
    await settled();
    expect(store.comparable.value).toBe(false);
    expect(asked.map(({ run: name, phase }) => [name, phase])).toEqual([["a", "validation"]]);
  });

  it("keeps the first run that it chose when newer ones appear, and its runs when the server is gone", async () => {
    const { source, state } = sourceOf([run("a", 1)]);
    const store = createStore(source);
    await store.reload();
    state.runs = [run("a", 1), run("b", 2)];
    await store.poll();
    expect([store.primary.value?.run, store.selected.value.length]).toEqual(["a", 1]);
    state.fails = true;
    await store.poll();
    expect([store.answer.value.error, store.runs.value.length]).toEqual(["gone", 2]);
    state.fails = false;
    await store.poll();
    expect(store.answer.value.error).toBeNull();
  });

  it("lets Back undo one change at a time, a filter as a whole, and no choice that was taken back", async () => {
    const { source } = sourceOf([run("a", 1)]);
    const store = createStore(source);
    const left: string[] = [];
    const push = vi
      .spyOn(window.history, "pushState")
      .mockImplementation((_, __, url) => void left.push(String(url).replace(/.*#/, "")));
    store.choose({ step: 7 });
    store.choose({ filter: "a" });
    store.choose({ filter: "ab" });
    store.choose({ filter: "" });
    store.chooseWithUndo({ step: 9 })();
    // In place of the choice that was taken back.
    store.choose({ zoom: [1, 2] });
    store.chooseWithUndo({ moment: 3 })();
    store.choose({ zoom: null });
    store.choose({ view: "what-if" });
    store.choose({ step: 8 });
    store.choose({ conditions: { ...DEFAULTS.conditions, batch_size: "64" } });
    push.mockRestore();
    expect(left).toEqual([
      "view=overview",
      "step=7",
      "step=7&filter=ab",
      "step=7",
      "step=7&zoom=1-2",
      "step=7",
      "view=what-if&step=7",
      "view=what-if&step=8",
    ]);
    expect(window.location.hash).toBe("#view=what-if&step=8&batch_size=64");
    window.history.replaceState(null, "", "#view=what-if&step=8");
    store.follow();
    expect(store.choices.value.conditions).toEqual(DEFAULTS.conditions);
    expect(window.location.hash).toBe("#view=what-if&step=8");
  });

  it("can be left for the first address by Back", () => {
    const { source } = sourceOf([run("a", 1)]);
    const store = createStore(source);
    const push = vi.spyOn(window.history, "pushState");
    store.choose({ view: "layers" });
    expect(push.mock.calls.map(([, , url]) => String(url).replace(/.*#/, ""))).toEqual([
      "view=overview",
    ]);
    push.mockRestore();
    window.history.replaceState(null, "", "#view=overview");
    store.follow();
    expect(store.choices.value).toEqual(DEFAULTS);
  });

  it("can go forward to the default view as well", () => {
    const { source } = sourceOf([run("a", 1)]);
    const store = createStore(source);
    store.choose({ view: "layers" });
    store.choose({ view: "overview" });
    // An empty address would be taken for that of another tab of TensorBoard.
    expect(window.location.hash).toBe("#view=overview");
    window.history.replaceState(null, "", "#view=layers");
    store.follow();
    expect(store.choices.value.view).toBe("layers");
    window.history.replaceState(null, "", "#view=overview");
    store.follow();
    expect(store.choices.value.view).toBe("overview");
    expect(window.location.hash).toBe("#view=overview");
  });

  it("names the step in the address of a step's timeline, chosen or not", async () => {
    const { source } = sourceOf([run("a", 1)]);
    const column = (...values: number[]): Float64Array => Float64Array.from(values);
    const answer = {
      rows: 2,
      step: column(3, 9),
      peak_bytes: column(5, 4),
      traced: column(0, 1),
      snapshot: column(0, 0),
      snapshots: [
        {
          step: 9,
          phase: "train",
          mode: "graph",
          batch_size: 32,
          at_failure: false,
          first_step: 0,
        },
      ],
      sessions: [],
      failures: [],
    } as unknown as Overview;
    const store = createStore({
      ...source,
      overview: () => Promise.resolve(answer),
      snapshots: () => Promise.resolve([]),
    });
    await store.reload();
    await settled();
    expect(store.shownStep.value).toMatchObject({ step: 9, defaultStep: 9, isPeak: false });
    store.choose({ view: "step" });
    expect(window.location.hash).toBe("#view=step&step=9");
    // The default stays the default on the other views.
    store.choose({ view: "layers" });
    expect(window.location.hash).toBe("#view=layers");
    store.choose({ step: 3 });
    expect(store.shownStep.value).toMatchObject({ step: 3, snapshot: { step: 9 }, isPeak: true });
    store.choose({ view: "step" });
    expect(window.location.hash).toBe("#view=step&step=3");
  });

  it("writes choices to the address and follows it", async () => {
    const { source } = sourceOf([run("a", 1)]);
    const store = createStore(source);
    store.choose({ step: 7, view: "frozen" });
    expect(window.location.hash).toBe("#view=frozen&step=7");
    window.history.replaceState(null, "", "#view=layers");
    store.follow();
    expect([store.choices.value.view, store.choices.value.step]).toEqual(["layers", null]);
    window.history.replaceState(null, "", "#");
    store.follow();
    expect(store.choices.value.view).toBe("layers");
  });
});

describe("a moment inside a step", () => {
  const INSIDE = { moment: 3, span: [1, 9] as const, tensor: 5 };
  const NOTHING_INSIDE = { moment: null, span: null, tensor: null };

  /**
   * A store in the step view of one of two runs; step 3 has the highest traced peak until
   * `peak_bytes` says otherwise.
   */
  async function inStep() {
    const { source, state } = sourceOf([run("a", 1), run("b", 2)]);
    const traced = { peak_bytes: [5, 4], wall_times: [1, 2] };
    const column = (values: number[]): Float64Array => Float64Array.from(values);
    const overview = (_: AbortSignal, name: string): Promise<Overview> =>
      Promise.resolve({
        run: name,
        phase: "train",
        rows: 2,
        step: column([3, 9]),
        peak_bytes: column(traced.peak_bytes),
        traced: column([1, 1]),
        snapshot: column([0, 1]),
        snapshots: [3, 9].map((step) => ({
          step,
          phase: "train",
          mode: "graph",
          batch_size: 32,
          at_failure: false,
          first_step: step,
        })),
        sessions: [],
        failures: [],
      } as unknown as Overview);
    const timelines = (): Promise<TimelineRef[]> =>
      Promise.resolve(
        [3, 9].map(
          (step, index) =>
            ({
              step,
              phase: "train",
              device: "GPU:0",
              wall_time: traced.wall_times[index],
            }) as TimelineRef,
        ),
      );
    const store = createStore({
      ...source,
      overview,
      timelines,
      snapshots: () => Promise.resolve([]),
    });
    await store.reload();
    await settled();
    const arrive = async (version: string): Promise<void> => {
      state.runs = state.runs.map((one) => ({ ...one, version }));
      await store.poll();
      await settled();
    };
    await arrive("2");
    store.choose({ view: "step" });
    await settled();
    store.choose(INSIDE);
    expect([store.primary.value?.run, store.shownTimeline.value?.step]).toEqual(["b", 3]);
    return { store, traced, arrive };
  }

  it("is let go when a live run gets a higher traced peak", async () => {
    const { store, traced, arrive } = await inStep();
    await arrive("3");
    expect(store.choices.value).toMatchObject(INSIDE);
    traced.peak_bytes = [5, 6];
    await arrive("4");
    expect(store.shownTimeline.value?.step).toBe(9);
    expect(store.choices.value).toMatchObject({ view: "step", step: null, ...NOTHING_INSIDE });
  });

  it("is let go when a restarted training records the step again", async () => {
    const { store, traced, arrive } = await inStep();
    traced.wall_times = [7, 8];
    await arrive("3");
    expect(store.choices.value).toMatchObject(NOTHING_INSIDE);
  });

  it("is let go when a filter hides the run, but not while no run is left", async () => {
    const { store } = await inStep();
    store.choose({ filter: "c" });
    expect([store.shownTimeline.value, store.choices.value.moment]).toEqual([null, 3]);
    store.choose({ filter: "b" });
    expect(store.choices.value).toMatchObject(INSIDE);
    store.choose({ filter: "a" });
    await settled();
    expect(store.primary.value?.run).toBe("a");
    expect(store.choices.value).toMatchObject(NOTHING_INSIDE);
  });

  it("stays where it was chosen or brought by the address together with its step", async () => {
    const { store } = await inStep();
    store.choose({ step: 9, ...INSIDE });
    expect(store.shownTimeline.value?.step).toBe(9);
    expect(store.choices.value).toMatchObject(INSIDE);
    window.history.replaceState(null, "", "#view=step&run=a&step=3&moment=4&tensor=5");
    store.follow();
    await settled();
    expect([store.primary.value?.run, store.shownTimeline.value?.step]).toEqual(["a", 3]);
    expect(store.choices.value).toMatchObject({ moment: 4, span: null, tensor: 5 });
  });

  it("stays where the address brings it together with a filter", async () => {
    const { store } = await inStep();
    window.history.replaceState(null, "", "#view=layers&filter=a&moment=7");
    store.follow();
    await settled();
    store.choose({ view: "step" });
    await settled();
    expect([
      store.shownTimeline.value?.step,
      store.primary.value?.run,
      store.choices.value.moment,
    ]).toEqual([3, "a", 7]);
  });
});

/** The browser's dark mode, and the frame that TensorBoard shows the page in. */
describe("keeping the page up to date", () => {
  const dark = { matches: false, tell: (): void => undefined };
  const frame: { reload?: () => void } = {};

  function kept(live: boolean) {
    const store = {
      follow: vi.fn(),
      reload: vi.fn(),
      poll: vi.fn(() => Promise.resolve()),
      primary: signal<{ status: string } | null>(null),
      answer: signal<{ error: string | null }>({ error: null }),
    };
    keepUp(store as unknown as Store, live);
    return store;
  }

  beforeEach(() => {
    vi.useFakeTimers();
    vi.stubGlobal("matchMedia", () => ({
      get matches() {
        return dark.matches;
      },
      addEventListener: (_: string, report: () => void) => (dark.tell = report),
    }));
    vi.stubGlobal("frameElement", frame);
  });
  afterEach(() => {
    vi.useRealTimers();
    vi.unstubAllGlobals();
  });

  describe("a live page", () => {
    it("loads at once and polls every five seconds while it can be seen", () => {
      const store = kept(true);
      expect([store.reload.mock.calls.length, store.poll.mock.calls.length]).toEqual([1, 0]);
      vi.advanceTimersByTime(15_000);
      expect(store.poll).toHaveBeenCalledTimes(3);
      // TensorBoard hides a tab so.
      vi.stubGlobal("innerHeight", 0);
      vi.advanceTimersByTime(15_000);
      expect(store.poll).toHaveBeenCalledTimes(3);
      vi.stubGlobal("innerHeight", 700);
      vi.advanceTimersByTime(5_000);
      expect(store.poll).toHaveBeenCalledTimes(4);
    });

    it("polls soon while the shown run is being read, unless the server does not answer", async () => {
      const store = kept(true);
      await vi.advanceTimersByTimeAsync(1000);
      expect(store.poll).toHaveBeenCalledTimes(0);
      store.primary.value = { status: "reading" };
      await vi.advanceTimersByTimeAsync(1100);
      expect(store.poll).toHaveBeenCalledTimes(5);
      store.answer.value = { error: "The server does not answer." };
      await vi.advanceTimersByTimeAsync(1000);
      expect(store.poll).toHaveBeenCalledTimes(6);
      store.primary.value = { status: "ok" };
      store.answer.value = { error: null };
      await vi.advanceTimersByTimeAsync(1000);
      expect(store.poll).toHaveBeenCalledTimes(6);
    });

    it("reloads when TensorBoard does", () => {
      const store = kept(true);
      frame.reload?.();
      expect(store.reload).toHaveBeenCalledTimes(2);
    });
  });

  describe("any page", () => {
    it("follows dark mode and addresses that others write", () => {
      const store = kept(false);
      for (const matches of [true, false]) {
        dark.matches = matches;
        dark.tell();
        expect([isDark.value, document.documentElement.dataset.scheme]).toEqual([
          matches,
          matches ? "dark" : "light",
        ]);
      }
      window.dispatchEvent(new Event("hashchange"));
      expect(store.follow).toHaveBeenCalledTimes(1);
    });

    it("of saved data loads once", () => {
      delete frame.reload;
      const store = kept(false);
      vi.advanceTimersByTime(60_000);
      expect([store.reload.mock.calls.length, store.poll.mock.calls.length]).toEqual([1, 0]);
      expect(frame.reload).toBeUndefined();
    });
  });
});
