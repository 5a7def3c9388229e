import { describe, expect, it } from "vitest";

import { AS_RECORDED } from "../../src/model/conditions";
import { fixBudget, fixConditions, fixWord, type Fix, verdictSentence, whenSentence, type Oom } from "../../src/model/oom";

const MIB = 2 ** 20;

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
  peak_bytes: null,
  code: null,
};

describe("a fix as conditions of What if", () => {
  const of = (fix: Partial<Fix>, batch_size: number | null = 32) => fixConditions({ ...FIX, ...fix }, { batch_size });

  it("keeps the failed batch size unless that is what changes", () => {
    expect(of({ batch_size: 16 })).toEqual({ ...AS_RECORDED, batch_size: "16" });
    expect(of({ kind: "limit", capacity_bytes: 700 * MIB })).toEqual({ ...AS_RECORDED, batch_size: "32", capacity: "700MiB" });
    expect(of({ kind: "limit", capacity_bytes: 700 * MIB + 1 })?.capacity).toBe(`${700 * MIB + 1}B`);
    expect(of({ kind: "freezing", freeze: "a,b" })).toEqual({ ...AS_RECORDED, batch_size: "32", freeze: "a,b" });
    expect(of({ kind: "precision", enough: null }, null)).toEqual({ ...AS_RECORDED, precision: "mixed_float16" });
  });

  it("is none where What if has no such condition", () => {
    expect([
      of({ kind: "one_piece" }),
      of({ kind: "accumulation" }),
      of({ kind: "limit", enough: false }),
      of({ kind: "freezing" }),
    ]).toEqual([null, null, null, null]);
  });
});

describe("a fix as a budget of Fit", () => {
  const of = (fix: Partial<Fix>) => fixBudget({ ...FIX, ...fix });

  it("is that of the recomputed segments, or the capacity for accumulated gradients", () => {
    expect([of({ kind: "recompute", budget_bytes: 700 * MIB }), of({ kind: "accumulation" }), of({ kind: "batch" })]).toEqual([
      "700MiB",
      "",
      null,
    ]);
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
    expect(sentence({})).toBe("Free memory is fragmented: 96.0 MiB requested, 120 MiB free, largest free chunk 40.0 MiB.");
    expect(sentence({ verdict: "capacity", free_bytes: 75 * MIB })).toBe("Not enough free memory: 96.0 MiB requested, 75.0 MiB free.");
  });

  it("leaves out figures that are unknown", () => {
    expect(sentence({ requested_bytes: null })).toBe("Free memory is fragmented: 120 MiB free, largest free chunk 40.0 MiB.");
    expect(sentence({ largest_free_bytes: null })).toBe("Free memory is fragmented: 96.0 MiB requested, 120 MiB free.");
    expect(sentence({ verdict: "capacity", requested_bytes: null, free_bytes: null })).toBe("Not enough free memory.");
    expect(sentence({ verdict: null })).toBe("Verdict unknown: 96.0 MiB requested, 120 MiB free.");
    expect(sentence({ verdict: "capacity", free_bytes: 0 })).toBe("Not enough free memory: 96.0 MiB requested, 0 B free.");
  });
});

describe("the failed step", () => {
  it.each<[Partial<Oom>, string]>([
    [{}, "Step 12 ran out of memory on GPU:0"],
    [{ step: 0, phase: "validation" }, "Step 0 (validation) ran out of memory on GPU:0"],
    [{ phase: null }, "Step 12 ran out of memory on GPU:0"],
    [{ during: "between_steps", phase: null }, "Memory ran out on GPU:0 between steps, after step 12"],
    [{ during: "between_steps", step: null, phase: null }, "Memory ran out on GPU:0 before the first step"],
    [{ during: "building", step: null, phase: null }, "Building the model ran out of memory on GPU:0"],
    [{ step: null }, "An allocation on GPU:0 failed"],
    [{ status: "failing" }, "Step 12 ended while waiting for memory on GPU:0"],
    [{ status: "failing", step: null }, "An allocation on GPU:0 was still waiting for memory"],
  ])("%o", (changed, sentence) => {
    expect(whenSentence({ ...OOM, ...changed })).toBe(sentence);
  });
});
