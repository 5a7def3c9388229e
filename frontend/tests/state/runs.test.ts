// @vitest-environment happy-dom
import { beforeEach, describe, expect, it } from "vitest";

import { DEFAULTS, type Choices } from "../../src/state/address";
import {
  colourIndex,
  matcher,
  otherRun,
  primaryRun,
  selectedRuns,
  showRun,
  shownDevice,
  shownPhase,
  toggleRun,
} from "../../src/state/runs";
import { createStore } from "../../src/state/store";
import { run as recorded, sourceOf } from "./store-cases";
import type { RunInfo } from "../../src/schema";

beforeEach(() => window.history.replaceState(null, "", "#"));

const run = (name: string, started: number, devices: string[] = ["CPU:0"]): RunInfo =>
  recorded(name, started, {
    phases: ["train", "validation"],
    devices: devices.map((device) => ({
      device,
      capacity_bytes: null,
      peak_bytes: 1,
      peak_step: 0,
      snapshots: 0,
    })),
    most_loaded: devices.find((device) => device.startsWith("GPU")) ?? devices[0] ?? null,
  });

describe("selection", () => {
  const many = Array.from({ length: 20 }, (_, index) => run(`run${index}`, index));

  const selected = (choices: Choices): RunInfo[] =>
    selectedRuns(many, choices, primaryRun(many, choices, null));

  it("draws the shown run alone until the user checks others", () => {
    expect(selected(DEFAULTS)).toEqual([many[19]]);
    expect(selected({ ...DEFAULTS, primary: "run2" })).toEqual([many[2]]);
    expect(selected({ ...DEFAULTS, runs: ["run1"], primary: "run2" })).toEqual([many[1], many[2]]);
    expect(selected({ ...DEFAULTS, runs: [] })).toEqual([]);
  });

  it("leaves out runs that the filter hides", () => {
    const names = (changed: Partial<Choices>) =>
      selected({ ...DEFAULTS, ...changed }).map(({ run: name }) => name);
    expect(names({ filter: "run1[0-3]" })).toEqual(["run13"]);
    expect(names({ filter: "run1[0-3]", runs: ["run3", "run12", "run11"] })).toEqual([
      "run11",
      "run12",
    ]);
    expect(names({ filter: "run1$", runs: ["run1", "run2"] })).toEqual(["run1"]);
    expect(names({ filter: "run1$", primary: "run2" })).toEqual(["run1"]);
    expect(names({ filter: "(", runs: ["run1", "run2"] })).toEqual(["run1", "run2"]);
  });

  it("stacks the chosen run, else the one it stacked before, else the one to open first", () => {
    const runs = [run("old", 1), run("new", 2), { ...run("newest", 3), rank: 2000 }];
    expect(primaryRun(runs, DEFAULTS, null)?.run).toBe("new");
    expect(primaryRun(runs, { ...DEFAULTS, filter: "old|newest" }, null)?.run).toBe("old");
    expect(primaryRun(runs, DEFAULTS, "old")?.run).toBe("old");
    expect(primaryRun(runs, { ...DEFAULTS, primary: "new" }, "old")?.run).toBe("new");
    expect(primaryRun([], DEFAULTS, "old")).toBeNull();
  });

  it("shows no other run in place of one that a link names and that is not there", () => {
    const runs = [run("old", 1), run("new", 2)];
    expect(primaryRun(runs, { ...DEFAULTS, primary: "deleted" }, "old")).toBeNull();
    expect(otherRun(runs, runs, runs[0] ?? null, { ...DEFAULTS, other: "deleted" })).toBeNull();
  });

  it("prefers accelerators and training", () => {
    const both = run("both", 1, ["CPU:0", "GPU:0"]);
    expect(shownDevice(both, DEFAULTS)).toBe("GPU:0");
    expect(shownDevice(both, { ...DEFAULTS, device: "CPU:0" })).toBe("CPU:0");
    expect(shownDevice(both, { ...DEFAULTS, device: "TPU:9" })).toBe("GPU:0");
    expect(shownPhase(both, { ...DEFAULTS, phase: "predict" })).toBe("train");
    expect(shownPhase(both, { ...DEFAULTS, phase: "validation" })).toBe("validation");
  });

  it("takes colours by TensorBoard's order of runs", () => {
    const host = ["z", "a/memory", "b/memory/worker_1", "memory"];
    expect([
      ...colourIndex(
        ["a", "b", "z", ".", "unknown", "unknown2"].map((name) => ({ run: name })),
        host,
      ),
    ]).toEqual([
      [".", 3],
      ["a", 1],
      ["b", 2],
      ["unknown", 4],
      ["unknown2", 5],
      ["z", 0],
    ]);
    // Without TensorBoard, as in a report, they are those that TensorBoard would give.
    const colours = colourIndex([{ run: "run10" }, { run: "run9" }], []);
    expect([...colours]).toEqual([
      ["run9", 0],
      ["run10", 1],
    ]);
  });

  it("filters by regular expression and says when it is none", () => {
    expect(matcher("^A").test("abc")).toBe(true);
    expect(matcher("^A").test("cba")).toBe(false);
    expect(matcher("(").fault).toContain("regular expression");
    expect(matcher("(").test("anything")).toBe(true);
    // The same sentence stands at the search for layers.
    expect(matcher("(").fault).not.toContain("run");
  });
});

describe("the list of runs", () => {
  it("is checked and unchecked one by one", async () => {
    const { source } = sourceOf([recorded("a", 1), recorded("b", 2), recorded("c", 3)]);
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
    const { source } = sourceOf([recorded("a", 1), recorded("b", 2), recorded("c", 3)]);
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
    const { source } = sourceOf([recorded("a", 1), recorded("b", 2)]);
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
    const [a, b, c] = [
      recorded("a", 1),
      recorded("b", 2, { devices: [] }),
      recorded("c", 3),
    ] as const;
    expect(otherRun([a, b, c], [a, b, c], a, DEFAULTS)?.run).toBe("c");
    expect(otherRun([a, b, c], [a, b], a, DEFAULTS)?.run).toBe("a");
    expect(otherRun([a, b, c], [a], a, { ...DEFAULTS, other: "c" })?.run).toBe("c");
    expect(otherRun([], [], null, DEFAULTS)).toBeNull();
  });
});
