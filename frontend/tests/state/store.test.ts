// @vitest-environment happy-dom
import { beforeEach, describe, expect, it, vi } from "vitest";

import type { OverviewQuery, Source } from "../../src/api/source";
import type { Overview } from "../../src/model/overview";
import type { RunInfo } from "../../src/model/run";
import type { TimelineRef } from "../../src/model/timeline";
import { DEFAULTS } from "../../src/state/address";
import { otherRun, showRun, toggleRun } from "../../src/state/runs";
import { createStore } from "../../src/state/store";

const run = (name: string, started: number, changed: Partial<RunInfo> = {}): RunInfo => ({
  run: name,
  version: "1",
  sessions: 1,
  workers: [""],
  steps: 100,
  first_step: 0,
  last_step: 99,
  started,
  phases: ["train"],
  devices: [{ device: "GPU:0", capacity_bytes: null, peak_bytes: 1, peak_step: 0, snapshots: 0 }],
  most_loaded: "GPU:0",
  activation_layers: 0,
  ooms: 0,
  status: "ok",
  rank: 1000 - started,
  findings: [],
  notes: [],
  damage: [],
  ...changed,
});

const settled = async (): Promise<void> => {
  for (let turn = 0; turn < 5; turn += 1) await new Promise((resume) => setTimeout(resume, 0));
};

/** Columns of an overview whose values are all unknown. */
const UNKNOWN = { step: [], peak_bytes: [], traced: [], snapshot: [], snapshots: [], sessions: [], failures: [] };

/** A source that answers with what it was asked; `asked` are the overviews, `fails` makes the list of runs fail. */
function sourceOf(runs: readonly RunInfo[]) {
  const asked: OverviewQuery[] = [];
  const state = { runs, fails: false };
  const overview = (query: OverviewQuery): Promise<Overview> => {
    asked.push(query);
    return Promise.resolve({ ...UNKNOWN, run: query.run, rows: query.span === null ? 100 : 7 } as unknown as Overview);
  };
  const source = {
    runs: vi.fn(() => (state.fails ? Promise.reject(new Error("gone")) : Promise.resolve({ plugin_version: "1", runs: [...state.runs] }))),
    hostRuns: () => Promise.resolve([]),
    overview,
    pool: () => new Promise(() => undefined),
    ledgerTotals: () => new Promise(() => undefined),
  } as unknown as Source;
  return { source, asked, state };
}

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
    const { source, asked } = sourceOf([run("a", 1, { devices: [], rank: 2000 }), run("b", 0, { phases: ["predict"] })]);
    const store = createStore(source);
    await store.reload();
    await settled();
    expect(store.primary.value?.run).toBe("b");
    expect(asked.map(({ run: name, phase }) => [name, phase])).toEqual([["b", "predict"]]);
  });

  it("asks for each run's own phase beside a run that only predicts", async () => {
    const { source, asked } = sourceOf([run("a", 2, { phases: ["predict"] }), run("b", 1), run("c", 0, { phases: ["validation"] })]);
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
    const { source, asked } = sourceOf([run("a", 2, { phases: ["train", "validation"] }), run("b", 1)]);
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
    const push = vi.spyOn(window.history, "pushState").mockImplementation((_, __, url) => void left.push(String(url).replace(/.*#/, "")));
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
    expect(push.mock.calls.map(([, , url]) => String(url).replace(/.*#/, ""))).toEqual(["view=overview"]);
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
      snapshots: [{ step: 9, phase: "train", mode: "graph", batch_size: 32, at_failure: false, first_step: 0 }],
      sessions: [],
      failures: [],
    } as unknown as Overview;
    const store = createStore({ ...source, overview: () => Promise.resolve(answer), snapshots: () => Promise.resolve([]) });
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

  /** A store in the step view of one of two runs; step 3 has the highest traced peak until `peak_bytes` says otherwise. */
  async function inStep() {
    const { source, state } = sourceOf([run("a", 1), run("b", 2)]);
    const traced = { peak_bytes: [5, 4], wall_times: [1, 2] };
    const column = (values: number[]): Float64Array => Float64Array.from(values);
    const overview = ({ run: name }: OverviewQuery): Promise<Overview> =>
      Promise.resolve({
        run: name,
        phase: "train",
        rows: 2,
        step: column([3, 9]),
        peak_bytes: column(traced.peak_bytes),
        traced: column([1, 1]),
        snapshot: column([0, 1]),
        snapshots: [3, 9].map((step) => ({ step, phase: "train", mode: "graph", batch_size: 32, at_failure: false, first_step: step })),
        sessions: [],
        failures: [],
      } as unknown as Overview);
    const timelines = (): Promise<TimelineRef[]> =>
      Promise.resolve(
        [3, 9].map((step, index) => ({ step, phase: "train", device: "GPU:0", wall_time: traced.wall_times[index] }) as TimelineRef),
      );
    const store = createStore({ ...source, overview, timelines, snapshots: () => Promise.resolve([]) });
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
    expect([store.shownTimeline.value?.step, store.primary.value?.run, store.choices.value.moment]).toEqual([3, "a", 7]);
  });
});

describe("the list of runs", () => {
  it("is checked and unchecked one by one", async () => {
    const { source } = sourceOf([run("a", 1), run("b", 2), run("c", 3)]);
    const store = createStore(source);
    await store.reload();
    toggleRun(store, "a");
    expect(store.choices.value.runs).toEqual(["c", "a"]);
    toggleRun(store, "a");
    expect(store.choices.value.runs).toEqual(["c"]);
    toggleRun(store, "b");
    toggleRun(store, "a");
    store.choose({ primary: "c" });
    toggleRun(store, "c");
    expect([store.choices.value.runs, store.choices.value.primary]).toEqual([["a", "b"], null]);
  });

  it("keeps runs checked that the filter hides", async () => {
    const { source } = sourceOf([run("a", 1), run("b", 2), run("c", 3)]);
    const store = createStore(source);
    await store.reload();
    store.choose({ runs: ["a", "b"], filter: "b|c" });
    expect(store.selected.value.map(({ run: name }) => name)).toEqual(["b"]);
    toggleRun(store, "c");
    expect(new Set(store.choices.value.runs)).toEqual(new Set(["a", "b", "c"]));
    toggleRun(store, "b");
    expect(store.selected.value.map(({ run: name }) => name)).toEqual(["c"]);
    store.choose({ filter: "" });
    expect(store.selected.value.map(({ run: name }) => name)).toEqual(["a", "c"]);
  });

  it("selects a run without the step, zoom and attempt of the last one", async () => {
    const { source } = sourceOf([run("a", 1), run("b", 2)]);
    const store = createStore(source);
    await store.reload();
    store.choose({ runs: ["b"], step: 5, zoom: [1, 9], session: "s", oom: 2, layer: "kept" });
    showRun(store, "a");
    expect(store.choices.value).toMatchObject({
      primary: "a",
      runs: ["b", "a"],
      step: null,
      zoom: null,
      session: null,
      oom: 0,
      layer: "kept",
    });
  });

  it("offers another checked run for comparison, otherwise the same run", () => {
    const [a, b, c] = [run("a", 1), run("b", 2, { devices: [] }), run("c", 3)] as const;
    expect(otherRun([a, b, c], [a, b, c], a, DEFAULTS)?.run).toBe("c");
    expect(otherRun([a, b, c], [a, b], a, DEFAULTS)?.run).toBe("a");
    expect(otherRun([a, b, c], [a], a, { ...DEFAULTS, other: "c" })?.run).toBe("c");
    expect(otherRun([], [], null, DEFAULTS)).toBeNull();
  });
});
