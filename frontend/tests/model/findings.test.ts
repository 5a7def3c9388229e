import { describe, expect, it } from "vitest";

import { frozenFindings, growthFindings } from "../../src/model/findings";
import type { RunInfo } from "../../src/model/run";
import { MIB, column, unknown, OVERVIEW } from "./overview-cases";

describe("findings", () => {
  it("name the cost of frozen weights", () => {
    const atTraced = { ...OVERVIEW, peak_bytes: column(NaN, 64 * MIB, 0, 0) };
    expect(frozenFindings(atTraced).map(({ sentence }) => sentence)).toEqual([
      "Frozen weights take 16.0 MiB (25 % of the peak at step 20); they need no gradients and no optimizer state.",
    ]);
    expect(frozenFindings({ ...OVERVIEW, peak_bytes: unknown })).toEqual([]);
  });

  const RUN: RunInfo = {
    run: "r",
    status: "ok",
    rank: 0,
    version: "1",
    sessions: 1,
    workers: [],
    steps: 1,
    first_step: 0,
    last_step: 0,
    started: null,
    phases: ["train"],
    devices: ["GPU:0", "GPU:1"].map((device) => ({ device, capacity_bytes: null, peak_bytes: null, peak_step: null, snapshots: 0 })),
    most_loaded: null,
    activation_layers: 0,
    ooms: 2,
    findings: ["GPU:0: grows by 1 MiB since step 40, to 9 MiB at step 90.", "GPU:1: grows since step 3.", "all devices grow at step 7."],
    notes: [],
    damage: [],
  };

  it("on host memory are those of the worker that has the shown device", () => {
    const grows = (worker: string): string => `${worker}: host RSS grows by 1 MiB every 100 steps.`;
    const run = { ...RUN, findings: [grows("worker_0"), grows("worker_1")] };
    expect(growthFindings(run, "worker_1/GPU:0").map(({ sentence, view }) => [sentence, view])).toEqual([
      [grows("worker_1"), "fragmentation"],
    ]);
  });

  it("of the server are those of the shown device, with the steps that they name", () => {
    expect(growthFindings(RUN, "GPU:0").map(({ kind, step, zoom }) => [kind, step, zoom])).toEqual([
      ["growth", 90, [40, 90]],
      ["growth", 7, null],
    ]);
    expect(growthFindings({ ...RUN, findings: [] }, "GPU:0")).toEqual([]);
    expect(growthFindings(RUN, "GPU:1").map(({ sentence }) => sentence)).toEqual([
      "GPU:1: grows since step 3.",
      "all devices grow at step 7.",
    ]);
  });

  it("on host memory are those of the device's worker, and lead to its chart", () => {
    const sentence = (worker: string): string => `${worker}ost RSS grows by 1 MiB every 100 steps since step 40, to 9 MiB at step 90.`;
    const run = { ...RUN, findings: [sentence("worker_0: h"), sentence("worker_1: h")] };
    expect(growthFindings(run, "worker_1/GPU:0")).toEqual([
      { kind: "growth", step: 90, view: "fragmentation", zoom: [40, 90], sentence: sentence("worker_1: h") },
    ]);
    expect(growthFindings({ ...RUN, findings: [sentence("H")] }, "GPU:0").map(({ view }) => view)).toEqual(["fragmentation"]);
    expect(growthFindings(RUN, "GPU:0").map(({ view }) => view)).toEqual(["overview", "overview"]);
  });
});
