import { expect, it, describe } from "vitest";

import {
  culpritOf,
  keptOrder,
  peakOf,
  runFacts,
  sortedRuns,
  whyNoDevice,
  distinctNames,
  namesOf,
} from "../../src/model/run";
import { MIB } from "./overview-cases";
import type { RunInfo } from "../../src/schema";

it("the facts of a run are its steps, the peaks that were measured, and what is wrong", () => {
  const device = (name: string, peak_bytes: number | null) => ({
    device: name,
    peak_bytes,
    capacity_bytes: null,
    peak_step: null,
    snapshots: 0,
  });
  const run = {
    run: "a",
    steps: 20,
    sessions: 1,
    devices: [device("GPU:0", 3 * MIB), device("CPU:0", null)],
    activation_layers: 0,
    damage: ["steps 3 to 5 are missing"],
    notes: [],
  } as unknown as RunInfo;
  expect(runFacts(run)).toEqual([
    "a",
    "20 steps",
    "GPU:0 peak 3.0 MiB",
    "steps 3 to 5 are missing",
  ]);
  expect(runFacts({ ...run, sessions: 2, activation_layers: 1, damage: [], devices: [] })).toEqual([
    "a",
    "20 steps",
    "2 sessions",
    "activations of 1 layer",
  ]);
});

it("runs are sorted by what is wrong, by name, or by the peak of the device that is shown", () => {
  const device = (name: string, peak_bytes: number | null) => ({ device: name, peak_bytes });
  const run = (name: string, rank: number, gpu: number | null): RunInfo =>
    ({
      run: name,
      rank,
      most_loaded: "GPU:0",
      devices: [device("CPU:0", 99), device("GPU:0", gpu)],
    }) as unknown as RunInfo;
  const runs = [run("a", 2, 5), run("b", 0, null), run("c", 1, 7)];
  expect(runs.map(peakOf)).toEqual([5, null, 7]);
  const names = (sort: Parameters<typeof sortedRuns>[1]): string =>
    sortedRuns(runs, sort)
      .map((one) => one.run)
      .join("");
  expect([names("status"), names("name"), names("peak")]).toEqual(["bca", "abc", "cab"]);
  expect([names("-status"), names("-name"), names("-peak")]).toEqual(["acb", "cba", "bac"]);
});

it("rows keep their order, and one that is new goes behind the one that it follows", () => {
  expect(keptOrder([], ["b", "a"])).toEqual(["b", "a"]);
  // The order that the figures would now give is another one.
  expect(keptOrder(["b", "a", "c"], ["a", "new", "c", "b"])).toEqual(["b", "a", "new", "c"]);
  expect(keptOrder(["b", "gone"], ["first", "b", "last"])).toEqual(["first", "b", "last"]);
});

it("the culprit of a failed run is its largest layer and the layer's share", () => {
  const largest_at_failure = { name: "block1_attention", share: 0.5512 };
  expect(culpritOf({ largest_at_failure } as RunInfo)).toBe("block1_attention 55 %");
  expect(culpritOf({ largest_at_failure: null } as RunInfo)).toBeNull();
});

it("why nothing was recorded of a device is said where nothing was", () => {
  const reason = "Not recording CPU:0: TensorFlow's plain CPU allocator keeps no statistics.";
  const notes = ["memory samples stopped at step 3", reason];
  expect(whyNoDevice({ devices: [], notes })).toEqual([reason]);
  expect(whyNoDevice({ devices: [{} as RunInfo["devices"][number]], notes })).toEqual([]);
});

describe("distinctNames", () => {
  it("are as short as can be", () => {
    expect(distinctNames(["a/x/w", "a/y/w", "b/z"])).toEqual(["x/w", "y/w", "z"]);
    expect(distinctNames(["a/w", "b/a/w"])).toEqual(["a/w", "b/a/w"]);
    expect(distinctNames([])).toEqual([]);
    expect(namesOf(["a/x/w", "a/y/w"])).toEqual(
      new Map([
        ["a/x/w", "x/w"],
        ["a/y/w", "y/w"],
      ]),
    );
  });
});
