import { describe, expect, it } from "vitest";

import {
  AS_RECORDED,
  askedText,
  assumptionsOf,
  categoriesOf,
  conditionHints,
  curveWith,
  headlineOf,
  ledgerTable,
  pointOf,
  pointText,
  recordedText,
  replayText,
  verdictOf,
  largestText,
  chosenOption,
  optionsTable,
  planNotes,
  planDots,
  planSentence,
  timeText,
  changedConditions,
  peaksOf,
  rangeText,
  type Conditions,
} from "../../src/model/what-if";
import { MIB, option, plan } from "../views/what-if/plan-cases";
import type { CurvePoint, Plan, WhatIf } from "../../src/schema";

const answerOf = (changed: Partial<WhatIf> = {}): WhatIf => ({
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
  capacity_bytes: 512 * MIB,
  peak_bytes: 165 * MIB,
  low_bytes: 158 * MIB,
  high_bytes: 172 * MIB,
  recorded_peak_bytes: null,
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
    { layer: "a", category: "weights", trainable: true, bytes: 40 * MIB, rounding_bytes: 0 },
    { layer: "b", category: "weights", trainable: false, bytes: 10 * MIB, rounding_bytes: 0 },
    { layer: "a", category: "activations", trainable: true, bytes: 100 * MIB, rounding_bytes: 0 },
    { layer: "b", category: "activations", trainable: null, bytes: 16 * MIB, rounding_bytes: 0 },
  ],
  measured: {
    step: 3,
    in_use_bytes: 150 * MIB,
    ledger: [
      { layer: "a", category: "weights", trainable: true, bytes: 40 * MIB, rounding_bytes: 0 },
      { layer: "a", category: "activations", trainable: true, bytes: 109 * MIB, rounding_bytes: 0 },
      { layer: null, category: "rounding", trainable: null, bytes: MIB, rounding_bytes: 0 },
    ],
  },
  ...changed,
});

const curve: CurvePoint[] = [
  {
    batch_size: 2,
    peak_bytes: 100 * MIB,
    low_bytes: 96 * MIB,
    high_bytes: 104 * MIB,
    fits: true,
    fails_at: null,
  },
  {
    batch_size: 8,
    peak_bytes: 300 * MIB,
    low_bytes: 290 * MIB,
    high_bytes: 310 * MIB,
    fits: true,
    fails_at: null,
  },
];

describe("the curve", () => {
  it("has the point of the answer in its place, once, if its peak is known", () => {
    const known = curveWith(curve, answerOf());
    expect(known.map(({ batch_size }) => batch_size)).toEqual([2, 4, 8]);
    expect(known[1]).toEqual({
      batch_size: 4,
      peak_bytes: 165 * MIB,
      low_bytes: 158 * MIB,
      high_bytes: 172 * MIB,
      fits: true,
      fails_at: null,
    });
    expect(curveWith(known, answerOf())).toEqual(known);
    expect(curveWith(curve, answerOf({ peak_bytes: null }))).toEqual(curve);
  });
});

describe("the verdict", () => {
  it("has its first sentence as the headline", () => {
    expect(
      headlineOf(
        "Does not fit: 1.5 GiB needed, 1.0 GiB available. 96.0 MiB requested. At 2.0 GiB it fits",
      ),
    ).toEqual([
      "Does not fit: 1.5 GiB needed, 1.0 GiB available",
      "96.0 MiB requested. At 2.0 GiB it fits",
    ]);
    expect([headlineOf("Fits: 1.5 GiB of 2.0 GiB"), headlineOf("Unknown: no steps.")]).toEqual([
      ["Fits: 1.5 GiB of 2.0 GiB", ""],
      ["Unknown: no steps", ""],
    ]);
  });

  it("is one of three", () => {
    expect([true, false, null].map((fits) => verdictOf(answerOf({ fits })))).toEqual([
      "fits",
      "fails",
      "unknown",
    ]);
  });

  it("has what it assumes below it; an unknown answer has its reason as the headline", () => {
    const assumptions = ["Unknown: no steps.", "Second."];
    expect(assumptionsOf(answerOf({ peak_bytes: null, fits: null, assumptions }))).toEqual([
      "Second.",
    ]);
    expect(assumptionsOf(answerOf({ fits: null, assumptions }))).toEqual(assumptions);
  });

  it("of the last answer names what was asked", () => {
    expect(askedText(answerOf())).toBe("batch size 4, capacity 512 MiB");
    expect(askedText(answerOf({ batch_size: null, capacity_bytes: null }))).toBe(
      "batch size unknown, capacity unknown",
    );
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
    expect(
      recordedText(answerOf({ recorded: { batch_sizes: [], steps: [], peak_bytes: null } })),
    ).toBe("batch size unknown");
    const of = (changed: Partial<CurvePoint>): string =>
      pointText({ ...(curve[0] as CurvePoint), ...changed });
    const figures = "batch size 2: 100 MiB (96.0 MiB to 104 MiB)";
    const failed = {
      op: "net/conv1/Relu",
      layer: "net/conv1",
      requested_bytes: 61 * MIB,
      step: 0,
      free_bytes: 0,
      largest_free_bytes: 0,
    };
    expect([of({ fits: null }), of({ fits: true })]).toEqual([
      `${figures}, unknown whether it fits`,
      `${figures}, fits`,
    ]);
    expect(of({ fits: false })).toBe(`${figures}, does not fit`);
    expect(of({ fits: false, fails_at: failed })).toBe(
      `${figures}, does not fit: fails at 61.0 MiB for Relu in net/conv1`,
    );
    expect(of({ fits: false, fails_at: { ...failed, op: null } })).toContain("for net/conv1");
    expect(of({ fits: false, fails_at: { ...failed, op: null, layer: null } })).toContain(
      "for an unknown operation",
    );
    expect([pointOf(curve, 8), pointOf(curve, 5), pointOf(curve, null)]).toEqual([1, null, null]);
  });

  it("are by category, weights by trainability as well", () => {
    const found = categoriesOf(peaksOf(answerOf(), null)).map(({ group, bytes }) => [
      group.category,
      group.trainable,
      ...bytes.map((one) => one / MIB),
    ]);
    expect(found).toEqual([
      ["weights", false, 0, 10],
      ["weights", true, 40, 40],
      ["activations", null, 109, 116],
      ["rounding", null, 1, 0],
    ]);
  });

  it("are downloaded by layer, unknown ones empty", () => {
    const { columns, rows } = ledgerTable(peaksOf(answerOf(), null));
    expect(columns).toEqual([
      "layer",
      "category",
      "trainable",
      "measured_bytes",
      "predicted_bytes",
      "planned_bytes",
    ]);
    expect(rows).toContainEqual(["b", "weights", false, 0, 10 * MIB, null]);
    expect(rows).toContainEqual([null, "rounding", null, MIB, 0, null]);
    expect(rows).toHaveLength(5);
    expect(ledgerTable(peaksOf(answerOf({ measured: null }), null)).rows).toContainEqual([
      "b",
      "weights",
      false,
      null,
      10 * MIB,
      null,
    ]);
    expect(ledgerTable(peaksOf(answerOf(), plan)).rows).toContainEqual([
      "net/a",
      "activations",
      true,
      0,
      0,
      40 * MIB,
    ]);
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

describe("a plan", () => {
  it("is the first change that fits", () => {
    expect([verdictOf(plan), planSentence(plan)]).toEqual([
      "fits",
      "Fits into 80.0 MiB: recompute",
    ]);
    expect(chosenOption(plan)?.kind).toBe("recompute");
  });

  it("says that nothing is to be changed", () => {
    const recorded = {
      ...plan,
      budget_bytes: 200 * MIB,
      peak_bytes: 100 * MIB,
      high_bytes: 104 * MIB,
      segments: [],
      options: [{ ...option("none", 100), fits: true }],
    };
    expect(planSentence(recorded)).toBe("No change is needed to fit into 200 MiB");
  });

  it("names the smallest peak where nothing fits", () => {
    const smallest = {
      ...plan,
      fits: false,
      options: plan.options.map((one) => ({ ...one, fits: false })),
      sentences: ["The smallest peak is 56 MiB."],
    };
    expect([verdictOf(smallest), planSentence(smallest)]).toEqual([
      "fails",
      "None of the simulated changes fits into 80.0 MiB",
    ]);
    expect(chosenOption(smallest)?.kind).toBe("recompute");
    expect(planNotes(smallest)).toEqual(["The smallest peak is 56 MiB."]);
  });

  it("says why it is unknown, once", () => {
    const unknown = { ...plan, fits: null, options: [], sentences: ["Unknown: no step.", "More."] };
    expect([verdictOf(unknown), planSentence(unknown), planNotes(unknown)]).toEqual([
      "unknown",
      "Unknown: no step.",
      ["More."],
    ]);
  });

  it("is a point of its own among all changes, with those of unknown time last and those of unknown peak left out", () => {
    const reason = "Unknown: the recorded steps do not show enough of it.";
    const unknown = {
      ...option("freeze", 0),
      peak_bytes: null,
      low_bytes: null,
      high_bytes: null,
      reason,
    };
    const dots = planDots({
      ...plan,
      options: [
        ...plan.options.map((one) => ({ ...one, batch_size: 8 })),
        { ...option("accumulate", 70), accumulation: 4 },
        unknown,
      ],
    });
    expect(dots.map(({ label, time, isPlan, budget }) => [label, time, isPlan, budget])).toEqual([
      ["unchanged", 0, false, null],
      ["recompute", 0.2, true, null],
      ["", 0.4, false, `${54 * MIB}B`],
      ["accumulate × 4", null, false, null],
      ["batch size 8", null, false, null],
    ]);
    expect(dots[1]?.sentence).toBe(
      "recompute 2 segments with 6 layers: 60.0 MiB (56.0 MiB to 64.0 MiB), step time +20 %",
    );
    expect(dots[2]?.sentence).toBe(
      "recompute 3 segments: 50.0 MiB (46.0 MiB to 54.0 MiB), step time +40 %",
    );
    expect(planDots({ ...plan, fits: false }).some(({ isPlan }) => isPlan)).toBe(false);
  });

  it("is compared with the training unchanged but for its batch size, or as it is predicted", () => {
    const labels = (optimizer: string | null) =>
      peaksOf(
        answerOf({ measured: null, conditions: { ...answerOf().conditions, optimizer } }),
        plan,
      ).map(({ label }) => label);
    expect([labels(null), labels("sgd")]).toEqual([
      ["unchanged", "plan"],
      ["predicted", "plan"],
    ]);
  });

  it("stands beside the prediction where it changes something", () => {
    const peaks = peaksOf(answerOf(), plan);
    expect(peaks.map((peak) => [peak.name, (peak.peak_bytes ?? 0) / MIB, rangeText(peak)])).toEqual(
      [
        ["measured", 150, ""],
        ["predicted", 165, "158 MiB to 172 MiB"],
        ["plan", 60, "56.0 MiB to 64.0 MiB"],
      ],
    );
    const moments = peaks.map(({ moment }) => moment);
    expect(moments, "other views show other steps").toEqual(["step 3", undefined, undefined]);
    const weights = categoriesOf(peaks).find(({ group: { trainable } }) => trainable);
    expect(weights?.bytes.map((bytes) => bytes / MIB)).toEqual([40, 40, 20]);
    const names = (of: Plan | null): string[] =>
      peaksOf(answerOf({ measured: null }), of).map(({ name }) => name);
    expect(names({ ...plan, fits: false })).toEqual(["predicted", "smallest"]);
    expect(names({ ...plan, options: [{ ...option("none", 60), fits: true }] })).toEqual([
      "predicted",
    ]);
  });

  it("writes times", () => {
    expect([timeText(0.236), timeText(0), timeText(null)]).toEqual(["+24 %", "+0 %", "unknown"]);
    expect(optionsTable(plan).rows).toHaveLength(plan.options.length);
  });
});

describe("conditions", () => {
  it("are parameters where they differ from the recorded run", () => {
    expect(changedConditions(AS_RECORDED)).toEqual([]);
    const changed = { ...AS_RECORDED, batch_size: "64", optimizer: "sgd" };
    expect(changedConditions(changed)).toEqual([
      ["batch_size", "64"],
      ["optimizer", "sgd"],
    ]);
  });
});
