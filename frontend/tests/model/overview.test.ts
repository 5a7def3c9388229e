import { describe, expect, it } from "vitest";

import {
  at,
  breakdown,
  peakRow,
  provenance,
  provenanceSentence,
  rowOfStep,
  rowSentence,
  comparison,
  effectSentence,
  effectTitle,
  effects,
  initialTable,
  isFreezing,
} from "../../src/model/overview";
import { MIB, column, OVERVIEW, unknown, change } from "./overview-cases";
import type { LayerChange } from "../../src/schema";

describe("rows of an overview", () => {
  it("have a value or null", () => {
    expect([
      at(column(0, NaN), 0),
      at(column(0, NaN), 1),
      at(column(0), 5),
      at(column(0), -1),
    ]).toEqual([0, null, null, null]);
  });

  it("include the earliest highest peak and the row of a step", () => {
    expect(peakRow(OVERVIEW)).toBe(2);
    expect([rowOfStep(OVERVIEW, 24), rowOfStep(OVERVIEW, 26), rowOfStep(OVERVIEW, 999)]).toEqual([
      1, 2, 3,
    ]);
  });

  it("have a breakdown with shares of the peak", () => {
    expect(breakdown(OVERVIEW, 1).map(({ bytes, share }) => [bytes, share])).toEqual([
      [16 * MIB, 0.25],
      [40 * MIB, 0.625],
      [8 * MIB, 0.125],
    ]);
    expect(breakdown(OVERVIEW, 0).map(({ bytes, share }) => [bytes, share])).toEqual(
      Array(3).fill([null, null]),
    );
  });

  it("state the source of their breakdown", () => {
    const sentences = [0, 1, 2].map((row) => provenanceSentence(provenance(OVERVIEW, row)));
    expect(sentences).toEqual([
      "Peak measured; no step traced yet, so only weights and optimizer state are known (layer table).",
      "Measured: this step was traced (XLA).",
      "Peak measured; breakdown inferred from the trace of step 20, long-lived categories also from the bytes in use at step end.",
    ]);
  });

  it("are read aloud, largest category first", () => {
    expect(rowSentence(OVERVIEW, 1)).toBe(
      "step 20: peak 64.0 MiB; activations 40.0 MiB; weights, frozen 16.0 MiB; unattributed 8.0 MiB",
    );
    expect(rowSentence(OVERVIEW, 0)).toBe("step 10: peak unknown");
  });
});

describe("changes of the layer table", () => {
  const unfrozen = change(30, {
    reason: "net/block1 and 2 more became trainable.",
    frozen_weight_bytes: 6 * MIB,
    trainable_weight_bytes: 34 * MIB,
    statistics_bytes: 0,
    unfreezing_weight_bytes: 6 * MIB,
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

  it("say what stays of the earlier optimizer beside what the new one adds", () => {
    const [stays] = effects({
      ...OVERVIEW,
      changes: [change(10, {}), { ...unfrozen, stayed_slots_bytes: 20 * MIB }],
    });
    expect(stays && effectSentence(stays)).toContain(
      "optimizer state +48.0 MiB, and 20.0 MiB of the earlier optimizer stayed;",
    );
  });

  it("count the layers that changed", () => {
    const title = (changed: Partial<LayerChange>): string =>
      effectTitle({ ...effect, changes: [change(1, changed)] } as typeof effect & object);
    expect(effect && effectTitle(effect)).toBe("unfroze 3");
    expect(title({ became_trainable: ["net/block1"] })).toBe("unfroze block1");
    expect(title({ became_trainable: ["a"], became_frozen: ["b", "c", "d", "e"] })).toBe(
      "unfroze a, froze 4",
    );
    expect(title({ reason: "optimizer Adam was built" })).toBe("optimizer Adam was built");
  });

  it("keep the peaks of the first of neighbouring tables, as the server groups them", () => {
    const peaks = { peak_before_bytes: 70 * MIB, peak_after_bytes: 95 * MIB };
    const built = change(31, {
      reason: "optimizer SGD was built",
      trainable_weight_bytes: 34 * MIB,
      optimizer_bytes: 0,
      ...peaks,
    });
    const next = change(40, {
      reason: "optimizer SGD was built",
      trainable_weight_bytes: 34 * MIB,
      optimizer_bytes: 0,
    });
    const [first, second, third] = effects({
      ...overview,
      changes: [change(10, {}), unfrozen, built, next],
    });
    expect([first?.peak_before, first?.peak_after, third]).toEqual([70 * MIB, 95 * MIB, undefined]);
    expect(
      second && [isFreezing(second), second.trainable_weight_delta, second.peak_after],
    ).toEqual([false, 0, null]);
  });

  it("begin with the table after the first step, which builds the optimizer", () => {
    const built = change(11, { reason: "optimizer Adam was built", optimizer_bytes: 20 * MIB });
    const changes = [change(10, { optimizer_bytes: 0 }), built, unfrozen];
    expect(initialTable({ changes })).toBe(built);
    // Each table is part of the start or of one effect.
    expect(effects({ ...overview, changes }).flatMap((one) => one.changes)).toEqual([unfrozen]);
    expect(initialTable({ changes: [unfrozen] })).toBe(unfrozen);
    expect(initialTable({ changes: [] })).toBeNull();
  });

  it("have no effect where none was measured", () => {
    const same = change(30, { reason: "renamed." });
    const [one] = effects({ ...OVERVIEW, changes: [change(10, {}), same], peak_bytes: unknown });
    expect(one && effectSentence(one)).toBe("Step 30: renamed. No effect on memory was measured.");
    expect(effects(OVERVIEW)).toEqual([]);
  });
});
