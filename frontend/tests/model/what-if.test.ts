import { describe, expect, it } from "vitest";

import {
  assumptionsOf,
  categoriesOf,
  ledgerTable,
  isAboveLargest,
  pointOf,
  pointText,
  recordedText,
  replayText,
  verdictOf,
  verdictSentence,
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
  fails_at: null,
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
    { batch_size: 2, peak_bytes: 100 * MIB, low_bytes: 96 * MIB, high_bytes: 104 * MIB },
    { batch_size: 4, peak_bytes: 165 * MIB, low_bytes: 158 * MIB, high_bytes: 172 * MIB },
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
  it("says that it fits, in how much", () => {
    expect(verdictOf(answerOf())).toBe("fits");
    expect(verdictSentence(answerOf())).toBe("Fits: 165 MiB of 512 MiB");
  });

  it("says what fails", () => {
    const failed = { op: "Relu", layer: "net/conv1", requested_bytes: 16 * MIB };
    const says = (one: Partial<typeof failed> | { op: null } | { layer: null }): string =>
      verdictSentence(answerOf({ fits: false, fails_at: { ...failed, ...one } }));
    expect(verdictOf(answerOf({ fits: false }))).toBe("fails");
    expect(says({})).toBe("Does not fit: fails at a request of 16.0 MiB by Relu, layer net/conv1");
    expect(says({ op: null })).toBe("Does not fit: fails at a request of 16.0 MiB by layer net/conv1");
    expect(says({ layer: null })).toBe("Does not fit: fails at a request of 16.0 MiB by Relu");
    expect(verdictSentence(answerOf({ fits: false, capacity_bytes: 64 * MIB }))).toBe("Does not fit: 165 MiB needed, 64.0 MiB available");
  });

  it("says why it is unknown, once", () => {
    const none = answerOf({ peak_bytes: null, fits: null, assumptions: ["Unknown: no steps.", "Second."] });
    expect([verdictOf(none), verdictSentence(none), assumptionsOf(none)]).toEqual(["unknown", "Unknown: no steps.", ["Second."]]);
    const close = answerOf({ fits: null, capacity_bytes: 164 * MIB, assumptions: ["An assumption."] });
    expect(verdictSentence(close)).toBe("Unknown: 164 MiB may not be enough; predicted peak 158 MiB to 172 MiB");
    expect(assumptionsOf(close)).toEqual(["An assumption."]);
  });
});

describe("its figures", () => {
  it("are texts", () => {
    expect(replayText(answerOf())).toBe("14,518 of 14,518 addresses");
    expect(recordedText(answerOf())).toBe("batch size 8, 4, median peak 164 MiB");
    expect(recordedText(answerOf({ recorded: { batch_sizes: [], steps: [], peak_bytes: null } }))).toBe("batch size unknown");
    const said = (largest: number | null) => pointText(answerOf({ largest_batch_size: largest }), answerOf().curve[0] as CurvePoint);
    expect([said(2), said(null)]).toEqual(Array(2).fill("batch size 2: 100 MiB (96.0 MiB to 104 MiB)"));
    expect(said(1)).toBe("batch size 2: 100 MiB (96.0 MiB to 104 MiB), does not pass");
    const above = (largest: number | null) => [4, 8, 9].map((size) => isAboveLargest(answerOf({ largest_batch_size: largest }), size));
    expect([above(8), above(0), above(null)]).toEqual([
      [false, false, true],
      [true, true, true],
      [false, false, false],
    ]);
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
