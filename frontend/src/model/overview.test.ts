import { describe, expect, it } from "vitest";

import { comparison, effectSentence, effectTitle, effects, isFreezing } from "./changes";
import { findings, growthFindings } from "./findings";
import {
  at,
  breakdown,
  peakRow,
  provenance,
  provenanceSentence,
  rowOfStep,
  rowSentence,
  type LayerChange,
  type Overview,
} from "./overview";
import type { RunInfo } from "./run";

const MIB = 2 ** 20;
const column = (...values: number[]): Float64Array => Float64Array.from(values);
const unknown = column(NaN, NaN, NaN, NaN);

const change = (step: number, changed: Partial<LayerChange>): LayerChange => ({
  step,
  reason: "recording began",
  frozen_weight_bytes: 30 * MIB,
  trainable_weight_bytes: 10 * MIB,
  optimizer_bytes: 20 * MIB,
  other_optimizer_bytes: 0,
  frozen_layers: 3,
  trainable_layers: 1,
  became_trainable: [],
  became_frozen: [],
  peak_before_bytes: null,
  peak_before_step: null,
  peak_after_bytes: null,
  peak_after_step: null,
  ...changed,
});

/** Steps 10 to 40; step 20 was traced; the peak of 80 MiB at step 30 is inferred. */
const OVERVIEW: Overview = {
  run: "r",
  device: "GPU:0",
  phase: "train",
  rows: 4,
  total_rows: 4,
  groups: [
    { category: "weights", trainable: false },
    { category: "activations", trainable: null },
    { category: "unattributed", trainable: null },
  ],
  snapshots: [{ step: 20, phase: "train", mode: "xla" }],
  changes: [change(10, {})],
  epochs: [],
  validations: [],
  failures: [],
  sessions: [],
  step: column(10, 20, 30, 40),
  epoch: unknown,
  wall_time: column(0, 1, 2, 3),
  in_use_bytes: unknown,
  peak_bytes: column(NaN, 64 * MIB, 80 * MIB, 80 * MIB),
  capacity_bytes: unknown,
  host_resident_bytes: unknown,
  driver_process_bytes: unknown,
  driver_used_bytes: unknown,
  driver_total_bytes: unknown,
  snapshot: column(NaN, 0, 0, 0),
  traced: column(0, 1, 0, 0),
  bytes: [column(NaN, 16 * MIB, 20 * MIB, 20 * MIB), column(NaN, 40 * MIB, 0, 0), column(NaN, 8 * MIB, 60 * MIB, 60 * MIB)],
};

describe("rows of an overview", () => {
  it("have a value or null", () => {
    expect([at(column(0, NaN), 0), at(column(0, NaN), 1), at(column(0), 5), at(column(0), -1)]).toEqual([0, null, null, null]);
  });

  it("include the earliest highest peak and the row of a step", () => {
    expect(peakRow(OVERVIEW)).toBe(2);
    expect([rowOfStep(OVERVIEW, 24), rowOfStep(OVERVIEW, 26), rowOfStep(OVERVIEW, 999)]).toEqual([1, 2, 3]);
  });

  it("have a breakdown with shares of the peak", () => {
    expect(breakdown(OVERVIEW, 1).map(({ bytes, share }) => [bytes, share])).toEqual([
      [16 * MIB, 0.25],
      [40 * MIB, 0.625],
      [8 * MIB, 0.125],
    ]);
    expect(breakdown(OVERVIEW, 0).map(({ bytes, share }) => [bytes, share])).toEqual(Array(3).fill([null, null]));
  });

  it("state the source of their breakdown", () => {
    const sentences = [0, 1, 2].map((row) => provenanceSentence(provenance(OVERVIEW, row)));
    expect(sentences).toEqual([
      "Peak measured; no step traced yet, so only weights and optimizer state are known (layer table).",
      "Measured: this step was traced (XLA).",
      "Peak measured; breakdown inferred from the trace of step 20.",
    ]);
  });

  it("are read aloud, largest category first", () => {
    expect(rowSentence(OVERVIEW, 1)).toBe("step 20: peak 64.0 MiB; activations 40.0 MiB; weights, frozen 16.0 MiB; unattributed 8.0 MiB");
    expect(rowSentence(OVERVIEW, 0)).toBe("step 10: peak unknown");
  });
});

describe("findings", () => {
  it("name the largest known categories of the peak and the cost of frozen weights", () => {
    const atTraced = { ...OVERVIEW, peak_bytes: column(NaN, 64 * MIB, 0, 0) };
    expect(findings(atTraced, false).map(({ sentence }) => sentence)).toEqual([
      "The peak of 64.0 MiB at step 20 consists mainly of activations 40.0 MiB (63 %) and weights, frozen 16.0 MiB (25 %).",
      "Frozen weights take 16.0 MiB (25 % of the peak at step 20); they need no gradients and no optimizer state.",
    ]);
    expect(findings({ ...OVERVIEW, peak_bytes: unknown }, false)).toEqual([]);
  });

  it("name no largest categories if more than those is unattributed, or if the run ran out of memory", () => {
    const frozen = "Frozen weights take 20.0 MiB (25 % of the peak at step 30); they need no gradients and no optimizer state.";
    expect(findings(OVERVIEW, false).map(({ sentence }) => sentence)).toEqual([frozen]);
    const attributed = { ...OVERVIEW, bytes: [column(0, 0, 20, 0), column(0, 0, 30, 0), column(0, 0, 30, 0)] };
    expect(findings(attributed, false).map(({ kind }) => kind)).toEqual(["peak", "frozen"]);
    expect(findings(attributed, true).map(({ kind }) => kind)).toEqual(["frozen"]);
    // Without training steps, other weights need no gradients either.
    expect(findings(attributed, false, false).map(({ kind }) => kind)).toEqual(["peak"]);
  });

  const RUN: RunInfo = {
    run: "r",
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

describe("changes of the layer table", () => {
  const unfrozen = change(30, {
    reason: "net/block1 and 2 more became trainable.",
    frozen_weight_bytes: 6 * MIB,
    trainable_weight_bytes: 34 * MIB,
    optimizer_bytes: 68 * MIB,
    became_trainable: ["net/block1", "net/block2", "net/block3"],
    peak_before_bytes: 70 * MIB,
    peak_before_step: 10,
    peak_after_bytes: 95 * MIB,
    peak_after_step: 40,
  });
  const overview = { ...OVERVIEW, changes: [change(10, {}), unfrozen] };
  const [effect] = effects(overview);

  it("are measured before and after", () => {
    expect(effect).toMatchObject({
      step: 30,
      trainable_weight_delta: 24 * MIB,
      optimizer_delta: 48 * MIB,
      peak_before: 70 * MIB,
      peak_after: 95 * MIB,
    });
    expect(effect && comparison(effect, "r")).toEqual({
      view: "compare",
      primary: "r",
      step: 10,
      other: "r",
      otherStep: 40,
    });
    expect(effect && comparison({ ...effect, step_before: null }, "r")).toBeNull();
    expect(effect && isFreezing(effect)).toBe(true);
    expect(effect && effectSentence(effect)).toBe(
      "Step 30: net/block1 and 2 more became trainable. 24.0 MiB of weights became trainable; optimizer state +48.0 MiB; " +
        "measured peak 70.0 MiB → 95.0 MiB (+25.0 MiB).",
    );
  });

  it("count the layers that changed", () => {
    const title = (changed: Partial<LayerChange>): string =>
      effectTitle({ ...effect, changes: [change(1, changed)] } as typeof effect & object);
    expect(effect && effectTitle(effect)).toBe("unfroze 3 layers");
    expect(title({ became_trainable: ["net/block1"] })).toBe("unfroze block1");
    expect(title({ became_trainable: ["a"], became_frozen: ["b", "c", "d", "e"] })).toBe("unfroze a, froze 4 layers");
    expect(title({ reason: "optimizer Adam was built" })).toBe("optimizer Adam was built");
  });

  it("keep the peaks of the first of neighbouring tables, as the server groups them", () => {
    const peaks = { peak_before_bytes: 70 * MIB, peak_after_bytes: 95 * MIB };
    const built = change(31, { reason: "optimizer SGD was built", trainable_weight_bytes: 34 * MIB, optimizer_bytes: 0, ...peaks });
    const next = change(40, { reason: "optimizer SGD was built", trainable_weight_bytes: 34 * MIB, optimizer_bytes: 0 });
    const [first, second, third] = effects({ ...overview, changes: [change(10, {}), unfrozen, built, next] });
    expect([first?.peak_before, first?.peak_after, third]).toEqual([70 * MIB, 95 * MIB, undefined]);
    expect(second && [isFreezing(second), second.trainable_weight_delta, second.peak_after]).toEqual([false, 0, null]);
  });

  it("have no effect where none was measured", () => {
    const same = change(30, { reason: "renamed." });
    const [one] = effects({ ...OVERVIEW, changes: [change(10, {}), same], peak_bytes: unknown });
    expect(one && effectSentence(one)).toBe("Step 30: renamed. No effect on memory was measured.");
    expect(effects(OVERVIEW)).toEqual([]);
  });
});
