import { describe, expect, it } from "vitest";

import { comparison, effectSentence, effectTitle, effects, initialTable, isFreezing } from "../../src/model/changes";
import type { LayerChange } from "../../src/model/overview";
import { MIB, unknown, change, OVERVIEW } from "./overview-cases";

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
