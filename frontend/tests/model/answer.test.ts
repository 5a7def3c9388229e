import { describe, expect, it } from "vitest";

import {
  answerTip,
  changeBetween,
  fixConditions,
  fixWord,
  verdictSentence,
  whenSentence,
  frozenFindings,
  growthFindings,
} from "../../src/model/answer";
import { AS_RECORDED } from "../../src/model/what-if";
import { MIB, column, unknown, OVERVIEW } from "./overview-cases";
import type { Answer, Finding as Found, Fix, Oom, RunInfo } from "../../src/schema";

const EVIDENCE = {
  step: null,
  phase: null,
  other_step: null,
  category: null,
  layer: null,
  zoom: null,
  oom: null,
};
const FITS: Answer = {
  name: "fits",
  device: "GPU:0",
  question: "Fits?",
  sentence: "1.0 of 2.0 GiB at peak, 1.0 GiB headroom",
  status: "ok",
  source: "measured",
  evidence: { ...EVIDENCE, view: "overview", step: 7 },
  figures: { peak_bytes: 2 ** 30, capacity_bytes: 2 ** 31, headroom_bytes: 2 ** 30 },
  details: [],
};

describe("an answer's tooltip", () => {
  it("lists its figures, and how it is known", () => {
    expect(answerTip(FITS).split("\n")).toEqual([
      "measured peak: 1.0 GiB",
      "capacity: 2.0 GiB",
      "headroom: 1.0 GiB",
      "measured, step 7",
    ]);
  });

  it("gives a rate in whole bytes and steps as they are", () => {
    const figures = { steps: 240, bytes_per_step: 65_536.4, since_step: 40 };
    const growing: Answer = {
      ...FITS,
      name: "growing",
      source: "inferred",
      evidence: { ...EVIDENCE, view: "overview" },
      figures,
    };
    expect(answerTip(growing).split("\n")).toEqual([
      "steps: 240",
      "rate: 64.0 KiB per step",
      "since step: 40",
      "inferred",
    ]);
  });

  it("names the figures of host memory, with their units", () => {
    const figures = {
      host_bytes_per_step: 524_288.2,
      since_step: 40,
      from_host_bytes: 2 ** 30,
      to_host_bytes: 2 ** 31,
    };
    expect(
      answerTip({ ...FITS, name: "growing", figures })
        .split("\n")
        .slice(0, -1),
    ).toEqual([
      "host RSS beyond CPU:0: 512 KiB per step",
      "since step: 40",
      "host RSS before: 1.0 GiB",
      "host RSS at the end: 2.0 GiB",
    ]);
  });

  it("begins with what the sentence leaves out, and gives changes of categories their sign", () => {
    const figures = {
      activations_delta_bytes: 1024,
      workspace_delta_bytes: -2048,
      earlier_optimizers_bytes: 4096,
    };
    const lines = answerTip({
      ...FITS,
      name: "changed",
      figures,
      details: ["Compiled again."],
    }).split("\n");
    expect(lines.slice(0, -1)).toEqual([
      "Compiled again.",
      "activations: +1.0 KiB",
      "workspace: -2.0 KiB",
      "earlier optimizers and models: 4.0 KiB",
    ]);
  });

  it("is empty if nothing is known", () => {
    expect(answerTip({ ...FITS, source: "unknown", figures: {} })).toBe("");
  });
});

describe("the change between two steps", () => {
  const changed: Answer = {
    ...FITS,
    name: "changed",
    evidence: { ...EVIDENCE, view: "compare", step: 71, other_step: 73 },
  };

  it("is the answer that compares these steps, in this order", () => {
    expect(changeBetween([FITS, changed], 71, 73)).toBe(changed);
    for (const [step, other] of [
      [73, 71],
      [71, 80],
      [null, 73],
    ] as const) {
      expect(changeBetween([changed], step, other)).toBeNull();
    }
  });

  it("is unknown without an answer or without two compared steps", () => {
    expect(changeBetween(null, 71, 73)).toBeNull();
    expect(
      changeBetween([{ ...changed, evidence: { ...EVIDENCE, view: "overview" } }], null, null),
    ).toBeNull();
  });
});

const OOM: Oom = {
  status: "failed",
  step: 12,
  phase: "train",
  during: "step",
  device: "GPU:0",
  wall_time: 0,
  requested_bytes: 96 * MIB,
  free_bytes: 120 * MIB,
  largest_free_bytes: 40 * MIB,
  in_use_bytes: 900 * MIB,
  pool_bytes: 1020 * MIB,
  capacity_bytes: 1020 * MIB,
  verdict: "fragmentation",
  reason: "",
  op: null,
  layer: null,
  line: null,
  batch_size: 32,
  shape: null,
  chunks: null,
  ledger: [],
  not_available: [],
  request_ledger: [],
  largest_tensors: [],
  request: null,
};

const FIX: Fix = {
  kind: "batch",
  change: "",
  sentence: "",
  enough: true,
  batch_size: null,
  capacity_bytes: null,
  freeze: null,
  budget_bytes: null,
  low_bytes: null,
  high_bytes: null,
  peak_bytes: null,
  code: null,
};

describe("a fix as conditions of What if", () => {
  const of = (fix: Partial<Fix>, batch_size: number | null = 32) =>
    fixConditions({ ...FIX, ...fix }, { batch_size });

  it("keeps the failed batch size unless that is what changes", () => {
    expect(of({ batch_size: 16 })).toEqual({ ...AS_RECORDED, batch_size: "16" });
    expect(of({ kind: "limit", capacity_bytes: 700 * MIB })).toEqual({
      ...AS_RECORDED,
      batch_size: "32",
      capacity: "700MiB",
    });
    expect(of({ kind: "limit", capacity_bytes: 700 * MIB + 1 })?.capacity).toBe(
      `${700 * MIB + 1}B`,
    );
    expect(of({ kind: "freezing", freeze: "a,b" })).toEqual({
      ...AS_RECORDED,
      batch_size: "32",
      freeze: "a,b",
    });
    expect(of({ kind: "precision", enough: null }, null)).toEqual({
      ...AS_RECORDED,
      precision: "mixed_float16",
    });
  });

  it("is none where What if has no such condition", () => {
    expect([
      of({ kind: "unfragmented" }),
      of({ kind: "limit", enough: false }),
      of({ kind: "freezing" }),
    ]).toEqual([null, null, null]);
  });

  it("has the budget of recomputed segments, and that of the capacity for accumulated gradients", () => {
    expect(of({ kind: "recompute", budget_bytes: 700 * MIB })).toEqual({
      ...AS_RECORDED,
      budget: "700MiB",
    });
    expect(of({ kind: "accumulation" })).toEqual(AS_RECORDED);
  });
});

describe("the word of a fix", () => {
  it("is an estimate unless its simulation passed or failed", () => {
    const word = (enough: boolean | null): string => fixWord({ ...FIX, enough });
    expect([word(true), word(false), word(null)]).toEqual(["fits", "fails", "estimate"]);
  });
});

describe("the verdict", () => {
  const sentence = (changed: Partial<Oom>): string => verdictSentence({ ...OOM, ...changed });

  it("states the request and what was free", () => {
    expect(sentence({})).toBe(
      "Free memory is fragmented: 96.0 MiB requested, 120 MiB free, largest free chunk 40.0 MiB.",
    );
    expect(sentence({ verdict: "capacity", free_bytes: 75 * MIB })).toBe(
      "Not enough free memory: 96.0 MiB requested, 75.0 MiB free.",
    );
  });

  it("leaves out figures that are unknown", () => {
    expect(sentence({ requested_bytes: null })).toBe(
      "Free memory is fragmented: 120 MiB free, largest free chunk 40.0 MiB.",
    );
    expect(sentence({ largest_free_bytes: null })).toBe(
      "Free memory is fragmented: 96.0 MiB requested, 120 MiB free.",
    );
    expect(sentence({ verdict: "capacity", requested_bytes: null, free_bytes: null })).toBe(
      "Not enough free memory.",
    );
    expect(sentence({ verdict: null })).toBe("Verdict unknown: 96.0 MiB requested, 120 MiB free.");
    expect(sentence({ verdict: "capacity", free_bytes: 0 })).toBe(
      "Not enough free memory: 96.0 MiB requested, 0 B free.",
    );
  });
});

describe("the failed step", () => {
  it.each<[Partial<Oom>, string]>([
    [{}, "Step 12 ran out of memory on GPU:0"],
    [{ step: 0, phase: "validation" }, "Step 0 (validation) ran out of memory on GPU:0"],
    [{ phase: null }, "Step 12 ran out of memory on GPU:0"],
    [
      { during: "between_steps", phase: null },
      "Memory ran out on GPU:0 between steps, after step 12",
    ],
    [
      { during: "between_steps", step: null, phase: null },
      "Memory ran out on GPU:0 before the first step",
    ],
    [
      { during: "building", step: null, phase: null },
      "Building the model ran out of memory on GPU:0",
    ],
    [{ step: null }, "An allocation on GPU:0 failed"],
    [{ status: "failing" }, "Step 12 ended while waiting for memory on GPU:0"],
    [{ status: "failing", step: null }, "An allocation on GPU:0 was still waiting for memory"],
  ])("%o", (changed, sentence) => {
    expect(whenSentence({ ...OOM, ...changed })).toBe(sentence);
  });
});

describe("findings", () => {
  it("name the cost of frozen weights", () => {
    const atTraced = { ...OVERVIEW, peak_bytes: column(NaN, 64 * MIB, 0, 0) };
    expect(frozenFindings(atTraced).map(({ sentence }) => sentence)).toEqual([
      "Frozen weights take 16.0 MiB (25 % of the peak at step 20).",
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
    ended: null,
    recorded_until: null,
    phases: ["train"],
    devices: ["GPU:0", "GPU:1"].map((device) => ({
      device,
      capacity_bytes: null,
      peak_bytes: null,
      peak_step: null,
      snapshots: 0,
    })),
    most_loaded: null,
    activation_layers: 0,
    frozen: true,
    ooms: 2,
    findings: [],
    notes: [],
    largest_at_failure: null,
    damage: [],
  };

  const found = (device: string | null, changed: Partial<Found> = {}): Found => ({
    kind: device === null ? "host_growth" : "growth",
    worker: "",
    device,
    since_step: 40,
    step: 90,
    bytes: 9 * MIB,
    share: null,
    minor: false,
    sentence: "It grows.",
    ...changed,
  });

  it("of the server are those of the shown device, with their steps, and lead to their view", () => {
    const findings = [
      found("GPU:0"),
      found("GPU:1"),
      found("GPU:0", { kind: "unused", since_step: null, minor: true }),
      found(null),
    ];
    expect(growthFindings({ ...RUN, findings }, "GPU:0")).toEqual([
      { kind: "growth", step: 90, view: "overview", zoom: [40, 90], sentence: "It grows." },
      { kind: "minor", step: 90, view: "overview", zoom: null, sentence: "It grows." },
      { kind: "growth", step: 90, view: "fragmentation", zoom: [40, 90], sentence: "It grows." },
    ]);
    expect(growthFindings(RUN, "GPU:0")).toEqual([]);
  });

  it("on a worker are shown for its devices only", () => {
    const [one, other] = ["worker_1", "worker_10"].map((worker) => found(null, { worker }));
    const run = { ...RUN, findings: [one, other] as Found[] };
    expect(growthFindings(run, "worker_1/GPU:0")).toHaveLength(1);
    expect(growthFindings(run, "worker_2/GPU:0")).toEqual([]);
  });
});
