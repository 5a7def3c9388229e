import { describe, expect, it } from "vitest";

import {
  budgetOf,
  chosenOption,
  optionsTable,
  planDeltas,
  planNotes,
  planPoint,
  planSentence,
  planVerdict,
  pointSentence,
  timeText,
} from "../../src/model/plan";
import { MIB, option, plan } from "../views/fit/plan-cases";

describe("a plan", () => {
  it("is the first change that fits", () => {
    expect([planVerdict(plan), planSentence(plan)]).toEqual(["fits", "Fits into 80.0 MiB: recompute 2 segments with 6 layers"]);
    expect(chosenOption(plan)?.kind).toBe("recompute");
    expect(planPoint(plan)).toBe(1);
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
    expect(planSentence(recorded)).toBe("Fits as recorded: 100 MiB of 200 MiB");
    expect(planPoint(recorded)).toBe(2);
  });

  it("names the smallest peak where nothing fits", () => {
    const smallest = {
      ...plan,
      fits: false,
      options: plan.options.map((one) => ({ ...one, fits: false })),
      sentences: ["The smallest peak is 56 MiB."],
    };
    expect([planVerdict(smallest), planSentence(smallest)]).toEqual(["fails", "None of the simulated changes fits into 80.0 MiB"]);
    expect(chosenOption(smallest)?.kind).toBe("recompute");
    expect(planNotes(smallest)).toEqual(["The smallest peak is 56 MiB."]);
  });

  it("says why it is unknown, once", () => {
    const unknown = { ...plan, fits: null, options: [], sentences: ["Unknown: no step.", "More."] };
    expect([planVerdict(unknown), planSentence(unknown), planNotes(unknown)]).toEqual(["unknown", "Unknown: no step.", ["More."]]);
  });

  it("is not on the curve if it does not recompute alone", () => {
    const other = {
      ...plan,
      options: [option("none", 100), { ...option("accumulate", 60), fits: true }],
      peak_bytes: 60 * MIB,
      high_bytes: 64 * MIB,
    };
    expect(planPoint(other)).toBeNull();
  });

  it("has the sums of both ledgers by category", () => {
    const deltas = planDeltas(plan).map(({ group: { category }, from, to }) => [category, from / MIB, to / MIB]);
    expect(deltas).toEqual([
      ["weights", 20, 20],
      ["activations", 80, 40],
    ]);
  });

  it("writes times, points and budgets", () => {
    expect([timeText(0.236), timeText(0), timeText(null)]).toEqual(["+24 %", "+0 %", "unknown"]);
    expect(plan.curve.map(pointSentence)).toEqual([
      "3 segments: 50.0 MiB (46.0 MiB to 54.0 MiB), time of a step +40 %",
      "2 segments: 60.0 MiB (56.0 MiB to 64.0 MiB), time of a step +20 %",
      "as recorded: 100 MiB (96.0 MiB to 104 MiB), time of a step +0 %",
    ]);
    expect(plan.curve.map(budgetOf)).toEqual([54, 64, 104].map((mib) => `${mib * MIB}B`));
    expect(optionsTable(plan).rows).toHaveLength(plan.options.length);
  });
});
