import { describe, expect, it } from "vitest";

import { AS_RECORDED, type Conditions } from "../../src/model/conditions";
import {
  askedText,
  assumptionsOf,
  categoriesOf,
  conditionHints,
  ledgerTable,
  pointOf,
  pointText,
  recordedText,
  replayText,
  verdictOf,
  type CurvePoint,
  type WhatIf,
  largestText,
} from "../../src/model/what-if";

const MIB = 2 ** 20;

const answerOf = (changed: Partial<WhatIf> = {}): WhatIf => ({
  run: "a",
  device: "CPU:0",
  batch_size: 4,
  capacity_bytes: 512 * MIB,
  peak_bytes: 165 * MIB,
  low_bytes: 158 * MIB,
  high_bytes: 172 * MIB,
  fits: true,
  sentence: "Fits: 165 MiB of 512 MiB",
  fails_at: null,
  enough_capacity_bytes: null,
  largest_batch_size: 12,
  method: "replay",
  reproduced: { addresses: 14518, of: 14518 },
  assumptions: [],
  recorded: { batch_sizes: [8, 4], steps: [0, 1, 3], peak_bytes: 164 * MIB },
  ledger: [
    { layer: "a", category: "weights", trainable: true, bytes: 40 * MIB },
    { layer: "b", category: "weights", trainable: false, bytes: 10 * MIB },
    { layer: "a", category: "activations", trainable: true, bytes: 100 * MIB },
    { layer: "b", category: "activations", trainable: null, bytes: 16 * MIB },
  ],
  curve: [
    { batch_size: 2, peak_bytes: 100 * MIB, low_bytes: 96 * MIB, high_bytes: 104 * MIB, fits: true, fails_at: null },
    { batch_size: 4, peak_bytes: 165 * MIB, low_bytes: 158 * MIB, high_bytes: 172 * MIB, fits: true, fails_at: null },
  ],
  measured: {
    step: 3,
    in_use_bytes: 150 * MIB,
    ledger: [
      { layer: "a", category: "weights", trainable: true, bytes: 40 * MIB },
      { layer: "a", category: "activations", trainable: true, bytes: 109 * MIB },
      { layer: null, category: "rounding", trainable: null, bytes: MIB },
    ],
  },
  ...changed,
});

describe("the verdict", () => {
  it("is one of three", () => {
    expect([true, false, null].map((fits) => verdictOf(answerOf({ fits })))).toEqual(["fits", "fails", "unknown"]);
  });

  it("has what it assumes below it; an unknown answer has its reason as the headline", () => {
    const assumptions = ["Unknown: no steps.", "Second."];
    expect(assumptionsOf(answerOf({ peak_bytes: null, fits: null, assumptions }))).toEqual(["Second."]);
    expect(assumptionsOf(answerOf({ fits: null, assumptions }))).toEqual(assumptions);
  });

  it("of the last answer names what was asked", () => {
    expect(askedText(answerOf())).toBe("batch size 4, capacity 512 MiB");
    expect(askedText(answerOf({ batch_size: null, capacity_bytes: null }))).toBe("batch size unknown, capacity unknown");
  });
});

describe("empty conditions", () => {
  const hints = (changed: Partial<WhatIf>, typed: Partial<Conditions> = {}) =>
    conditionHints(answerOf(changed), { ...AS_RECORDED, ...typed });

  it("stand for the recorded batch and capacity, or for the batch that failed", () => {
    expect(hints({})).toEqual({ batchSize: "4", capacity: "512 MiB" });
    expect(hints({ batch_size: 96 }).batchSize).toBe("96, as failed");
  });

  it("have the general hints while there is no answer, or while they are typed", () => {
    const general = { batchSize: "as recorded", capacity: "such as 24GiB" };
    expect(conditionHints(null, AS_RECORDED)).toEqual(general);
    expect(hints({ batch_size: null, capacity_bytes: null })).toEqual(general);
    expect(hints({}, { batch_size: "64", capacity: "8GiB" })).toEqual(general);
  });
});

describe("its figures", () => {
  it("are texts", () => {
    expect(replayText(answerOf())).toBe("14,518 of 14,518 addresses");
    expect(recordedText(answerOf())).toBe("batch size 8, 4, median peak 164 MiB");
    expect(recordedText(answerOf({ recorded: { batch_sizes: [], steps: [], peak_bytes: null } }))).toBe("batch size unknown");
    const of = (changed: Partial<CurvePoint>): string => pointText({ ...(answerOf().curve[0] as CurvePoint), ...changed });
    const figures = "batch size 2: 100 MiB (96.0 MiB to 104 MiB)";
    const failed = { op: "net/conv1/Relu", layer: "net/conv1", requested_bytes: 61 * MIB, free_bytes: 0, largest_free_bytes: 0 };
    expect([of({ fits: null }), of({ fits: true })]).toEqual([`${figures}, unknown whether it fits`, `${figures}, fits`]);
    expect(of({ fits: false })).toBe(`${figures}, does not fit`);
    expect(of({ fits: false, fails_at: failed })).toBe(`${figures}, does not fit: fails at 61.0 MiB for Relu in net/conv1`);
    expect(of({ fits: false, fails_at: { ...failed, op: null } })).toContain("for net/conv1");
    expect(of({ fits: false, fails_at: { ...failed, op: null, layer: null } })).toContain("for an unknown operation");
    expect([pointOf(answerOf().curve, 4), pointOf(answerOf().curve, 5), pointOf(answerOf().curve, null)]).toEqual([1, null, null]);
  });

  it("are by category, weights by trainability as well", () => {
    const found = categoriesOf(answerOf()).map(({ group, from, to }) => [group.category, group.trainable, from / MIB, to / MIB]);
    expect(found).toEqual([
      ["weights", false, 0, 10],
      ["weights", true, 40, 40],
      ["activations", null, 109, 116],
      ["rounding", null, 1, 0],
    ]);
  });

  it("are downloaded by layer, unknown ones empty", () => {
    const { columns, rows } = ledgerTable(answerOf());
    expect(columns).toEqual(["layer", "category", "trainable", "measured_bytes", "predicted_bytes"]);
    expect(rows).toContainEqual(["b", "weights", false, 0, 10 * MIB]);
    expect(rows).toContainEqual([null, "rounding", null, MIB, 0]);
    expect(rows).toHaveLength(5);
    expect(ledgerTable(answerOf({ measured: null })).rows).toContainEqual(["b", "weights", false, null, 10 * MIB]);
  });
});

describe("the largest batch size", () => {
  it.each([
    [1200, "1,200"],
    [1, "1"],
    [0, "none"],
    [null, "unknown"],
  ])("%s is shown as %s", (largest, text) => {
    expect(largestText(answerOf({ largest_batch_size: largest }))).toBe(text);
  });
});
