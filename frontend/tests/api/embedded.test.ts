import { gzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";

import { embeddedSource } from "../../src/api/embedded";
import { AS_RECORDED } from "../../src/model/what-if";
import { plan } from "../views/what-if/plan-cases";

type Given = Record<string, string>;

const never = new AbortController().signal;

const answer = (route: string, parameters: Given, body: unknown, status = 200) => ({
  route,
  parameters,
  status,
  data: gzipSync(typeof body === "string" ? body : JSON.stringify(body)).toString("base64"),
});

const table = (step: number) => ({
  run: "a",
  step,
  reason: "",
  optimizer: null,
  other_optimizer_bytes: 0,
  other_state_bytes: 0,
  layers: [],
});

const reportOf = (answers: unknown[], refusals: unknown[] = []): string =>
  JSON.stringify({ format: 1, absent: ["no maps"], answers, refusals });

describe("a saved report", () => {
  it("answers with what lies in it", async () => {
    const source = embeddedSource(
      reportOf([answer("runs", {}, { plugin_version: "1", runs: [] })]),
    );
    expect(await source.runs(never)).toEqual({ plugin_version: "1", runs: [] });
    expect(await source.hostRuns(never)).toEqual([]);
    expect(source.absent).toEqual(["no maps"]);
  });

  it("takes for a step the layer table that holds at it, as the server does", async () => {
    const steps = [20, 0, 7].map((step) =>
      answer("layers", { run: "a", step: String(step) }, table(step)),
    );
    const source = embeddedSource(reportOf([...steps, answer("layers", { run: "a" }, table(20))]));
    const found = await Promise.all(
      [0, 6, 7, 19, 20, 999].map((step) => source.layers(never, "a", null, step)),
    );
    expect(found.map(({ step }) => step)).toEqual([0, 0, 7, 7, 20, 20]);
    expect((await source.layers(never, "a", null, null)).step).toBe(20);
    const later = embeddedSource(reportOf([answer("layers", { run: "a", step: "5" }, table(5))]));
    expect((await later.layers(never, "a", null, 1)).step).toBe(5);
  });

  it("gives the four answers of a device, and those of a run without one", async () => {
    const evidence = {
      view: "oom",
      step: 12,
      phase: "train",
      other_step: null,
      category: null,
      layer: null,
      zoom: null,
      oom: 0,
    };
    const fits = {
      name: "fits",
      device: "CPU:0",
      question: "Fits?",
      sentence: "OOM at step 12",
      status: "failed",
      source: "measured",
      evidence,
      details: [],
    };
    const unknown = { ...fits, status: "unknown", source: "unknown", figures: {} };
    const source = embeddedSource(
      reportOf([
        answer(
          "answers",
          { run: "a", device: "CPU:0", phase: "train" },
          { run: "a", phase: "train", answers: [{ ...fits, figures: { requested_bytes: 96 } }] },
        ),
        answer(
          "answers",
          { run: "b", phase: "train" },
          { run: "a", phase: "train", answers: [unknown] },
        ),
        answer(
          "answers",
          { run: "c", phase: "train" },
          { run: "a", phase: "train", answers: [{ ...unknown, figures: { peak_bytes: "7" } }] },
        ),
      ]),
    );
    expect((await source.answers(never, "a", "CPU:0", "train")).answers).toEqual([
      { ...fits, figures: { requested_bytes: 96 } },
    ]);
    expect((await source.answers(never, "b", null, "train")).answers).toEqual([unknown]);
    await expect(source.answers(never, "c", null, "train")).rejects.toThrow(
      "answers.answers[0].figures.peak_bytes should be a number",
    );
    await expect(source.answers(never, "a", "CPU:0", "validation")).rejects.toThrow(
      "Not in this report",
    );
  });

  it("answers what-if questions for the recorded conditions only", async () => {
    const recorded = {
      run: "a",
      device: "CPU:0",
      conditions: {
        batch_size: null,
        capacity_bytes: null,
        freeze: null,
        unfreeze: null,
        optimizer: null,
        precision: null,
      },
      batch_size: 4,
      capacity_bytes: null,
      peak_bytes: null,
      low_bytes: null,
      high_bytes: null,
      fits: null,
      recorded_peak_bytes: null,
      sentence: "Unknown.",
      fails_at: null,
      enough_capacity_bytes: null,
      largest_batch_size: null,
      method: "unknown",
      reproduced: { addresses: 0, of: 0 },
      assumptions: ["Unknown."],
      recorded: { batch_sizes: [], steps: [], peak_bytes: null },
      ledger: [],
      measured: null,
    };
    const source = embeddedSource(
      reportOf([answer("what_if", { run: "a", device: "CPU:0" }, recorded)]),
    );
    expect(source.recordedOnly).toBe(true);
    expect(await source.whatIf(never, "a", "CPU:0", { ...AS_RECORDED, batch_size: "64" })).toEqual(
      recorded,
    );
    await expect(source.whatIf(never, "b", "CPU:0", AS_RECORDED)).rejects.toThrow(
      "Not in this report",
    );
  });

  it("has the plan for the capacity only", async () => {
    const source = embeddedSource(reportOf([answer("plan", { run: "a", device: "CPU:0" }, plan)]));
    expect(await source.plan(never, "a", "CPU:0", "8GiB", "")).toEqual(plan);
    await expect(source.plan(never, "b", "CPU:0", "", "")).rejects.toThrow("Not in this report");
  });

  it("says why something is not in it", async () => {
    const refusal = {
      route: "layers",
      parameters: { run: "a", step: "7" },
      why: "Not in this report, because of its size.",
    };
    const source = embeddedSource(
      reportOf(
        [
          answer("layers", { run: "a", step: "0" }, table(0)),
          answer("layers", { run: "b" }, "run b has no layer table", 404),
        ],
        [refusal],
      ),
    );
    expect((await source.layers(never, "a", null, 6)).step).toBe(0);
    await expect(source.layers(never, "a", null, 8)).rejects.toThrow("because of its size");
    await expect(source.layers(never, "b", null, 3)).rejects.toThrow("run b has no layer table");
    await expect(source.map(never, "a", { oom: 0 })).rejects.toThrow("Not in this report");
  });

  it("keeps answers of different devices, sessions and failures apart", async () => {
    const memory = (device: string, step: number) => ({
      run: "a",
      device,
      step,
      phase: "train",
      at_failure: false,
      in_use_bytes: step,
      segments: [],
      notes: [],
    });
    const answers = [
      answer("device_memory", { run: "a", device: "GPU:0" }, memory("GPU:0", 9)),
      answer("device_memory", { run: "a", device: "GPU:0", step: "4" }, memory("GPU:0", 4)),
      answer("device_memory", { run: "a", device: "GPU:1", step: "6" }, memory("GPU:1", 6)),
    ];
    const source = embeddedSource(reportOf(answers));
    const shown = await Promise.all(
      [4, 5, 3].map((step) => source.deviceMemory(never, "a", "GPU:0", step)),
    );
    expect(shown.map(({ step }) => step)).toEqual([4, 4, 4]);
    expect((await source.deviceMemory(never, "a", "GPU:0", null)).step).toBe(9);
    expect((await source.deviceMemory(never, "a", "GPU:1", 99)).step).toBe(6);
    await expect(source.deviceMemory(never, "b", "GPU:0", 4)).rejects.toThrow("Not in this report");
  });

  it("adds up one layer from its snapshots, of the asked device and phase only", async () => {
    const snapshot = (device: string, phase: string, step: number, bytes: number) =>
      answer(
        "snapshot",
        { run: "a", device, phase, step: String(step) },
        {
          ...{
            run: "a",
            step,
            phase,
            device,
            mode: "graph",
            at_failure: false,
            wall_time: step,
            in_use_bytes: 100 * step,
            not_available: [],
          },
          ...{ saved_for_backward: [], held_tensors: [], largest_tensors: [], replay: null },
          ledger: [
            { layer: "net/a", category: "weights", trainable: true, bytes },
            { layer: "net/b", category: "weights", trainable: true, bytes: 1000 },
            { layer: "net/a", category: "activations", trainable: true, bytes: 1 },
          ],
        },
      );
    const source = embeddedSource(
      reportOf([
        snapshot("GPU:0", "train", 8, 50),
        snapshot("GPU:0", "train", 3, 20),
        snapshot("GPU:1", "train", 4, 7),
        snapshot("GPU:0", "predict", 5, 9),
      ]),
    );
    const totals = await source.ledgerTotals(never, "a", {
      device: "GPU:0",
      phase: "train",
      layer: "net/a",
      session: null,
    });
    expect([[...totals.step], [...totals.in_use_bytes]]).toEqual([
      [3, 8],
      [300, 800],
    ]);
    expect(totals.groups.map(({ category }) => category)).toEqual(["weights", "activations"]);
    expect(totals.bytes.map((bytes) => [...bytes])).toEqual([
      [20, 50],
      [1, 1],
    ]);
  });

  it("refuses what is no report", () => {
    expect(() => embeddedSource("{}")).toThrow();
    expect(() =>
      embeddedSource(JSON.stringify({ format: 2, absent: [], answers: [], refusals: [] })),
    ).toThrow("format 2");
  });
});
