import { describe, expect, it } from "vitest";

import type { RunInfo } from "../model/run";
import { DEFAULTS, changedTo, decode, encode, type Choices } from "./address";
import { colourIndex, matcher, primaryRun, selectedRuns, shownDevice, shownPhase } from "./selection";

const run = (name: string, started: number, devices: string[] = ["CPU:0"]): RunInfo => ({
  run: name,
  version: "1",
  sessions: 1,
  workers: [""],
  steps: 3,
  first_step: 0,
  last_step: 2,
  started,
  phases: ["train", "validation"],
  devices: devices.map((device) => ({ device, capacity_bytes: null, peak_bytes: 1, peak_step: 0, snapshots: 0 })),
  most_loaded: devices.find((device) => device.startsWith("GPU")) ?? devices[0] ?? null,
  activation_layers: 0,
  ooms: 0,
  findings: [],
  notes: [],
  damage: [],
});

describe("address", () => {
  const chosen: Choices = {
    view: "frozen",
    runs: ["a,b", "c&d=é", "<img src=x>"],
    primary: "a,b",
    device: "GPU:0",
    phase: "validation",
    axis: "wall",
    step: 412,
    zoom: [3, 99],
    filter: "a|b+",
    layer: "vgg16/block5_conv1",
    category: "activation_gradients",
    stack: "layer",
    tensorColouring: "layer",
    placement: "by address",
    tensor: 512,
    timelineAxis: "event index",
    moment: 77,
    span: [3, 700],
    session: "20260921T131313Z-0a1b2c3d",
    oom: 2,
    other: "c&d=é",
    otherStep: 17,
    exact: true,
    all: true,
    search: "block[45]&x=1",
    grouping: "trainable",
    sort: "weight_gradients",
    deviceSort: "headroom_bytes",
    colouring: "age",
    mapZooms: [
      [140117155999808, 140117160194048],
      [140125745934336, 140125745934592],
    ],
    fitMib: 12.5,
    conditions: {
      batch_size: "64",
      capacity: "24 GiB",
      freeze: "block[45]&x=1",
      unfreeze: "a|b+",
      optimizer: "sgd",
      precision: "mixed_float16",
    },
  };

  it("comes back as it was", () => {
    expect(decode(encode(chosen))).toEqual(chosen);
    expect(decode(encode({ ...DEFAULTS, runs: [] }))).toEqual({ ...DEFAULTS, runs: [] });
    expect(decode(encode({ ...DEFAULTS, sort: null }))).toEqual({ ...DEFAULTS, sort: null });
  });

  it("holds every choice: none of the example is a default", () => {
    for (const name of Object.keys(DEFAULTS) as (keyof Choices)[]) {
      expect(chosen[name], name).not.toEqual(DEFAULTS[name]);
      expect(encode({ ...DEFAULTS, [name]: chosen[name] }), name).not.toBe("");
    }
  });

  it("is empty for the defaults and gives the defaults for nonsense", () => {
    expect(encode(DEFAULTS)).toBe("");
    expect(
      decode(
        "view=nothing&step=-4&zoom=9-3&x=%%%&phase=lunch&sort=x&group=y&colour=z&map=5-5&map=a-b&fit=-3&moment=1.5&span=4&stack=x&timeline=out",
      ),
    ).toEqual(DEFAULTS);
  });
});

describe("a moment inside a step", () => {
  const inside: Choices = { ...DEFAULTS, step: 7, moment: 3, span: [1, 9], layer: "a" };

  it("is let go with its step, and only then", () => {
    expect(changedTo(inside, { view: "layers" })).toEqual({ ...inside, view: "layers" });
    expect(changedTo(inside, { step: 7 })).toEqual(inside);
    expect(changedTo(inside, { step: 8 })).toEqual({ ...inside, step: 8, moment: null, span: null });
    expect(changedTo(inside, { session: "s" })).toEqual({ ...inside, session: "s", moment: null, span: null });
    expect(changedTo(inside, { device: "GPU:1", moment: 4 })).toEqual({ ...inside, device: "GPU:1", moment: 4, span: null });
  });
});

describe("selection", () => {
  const many = Array.from({ length: 20 }, (_, index) => run(`run${index}`, index));

  it("checks the newest few until the user chooses", () => {
    expect(selectedRuns(many, DEFAULTS).map(({ run: name }) => name)).toEqual(many.slice(13).map(({ run: name }) => name));
    expect(selectedRuns(many, { ...DEFAULTS, primary: "run2" })).toContain(many[2]);
    expect(selectedRuns(many, { ...DEFAULTS, runs: [] })).toEqual([]);
  });

  it("leaves out runs that the filter hides", () => {
    const names = (changed: Partial<Choices>) => selectedRuns(many, { ...DEFAULTS, ...changed }).map(({ run: name }) => name);
    expect(names({ filter: "run1[0-3]" })).toEqual(["run10", "run11", "run12", "run13"]);
    expect(names({ filter: "run1$", runs: ["run1", "run2"] })).toEqual(["run1"]);
    expect(names({ filter: "run1$", primary: "run2" })).toEqual(["run1"]);
    expect(names({ filter: "(", runs: ["run1", "run2"] })).toEqual(["run1", "run2"]);
  });

  it("stacks the chosen run, else the one it stacked before, else the newest with a device", () => {
    const runs = [run("old", 1), run("new", 2), run("only activations", 3, [])];
    expect(primaryRun(runs, DEFAULTS, null)?.run).toBe("new");
    expect(primaryRun(runs, DEFAULTS, "old")?.run).toBe("old");
    expect(primaryRun(runs, { ...DEFAULTS, primary: "new" }, "old")?.run).toBe("new");
    expect(primaryRun([], DEFAULTS, "old")).toBeNull();
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
    expect([...colourIndex(["a", "b", "z", ".", "unknown", "unknown2"], host)]).toEqual([
      ["a", 1],
      ["b", 2],
      ["z", 0],
      [".", 3],
      ["unknown", 4],
      ["unknown2", 5],
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
