import { describe, expect, it } from "vitest";

import type { Category } from "../../src/model/categories";
import type { GroupDelta } from "../../src/model/compare";
import { differenceSentence } from "../../src/model/compare-words";

describe("the difference as a sentence", () => {
  const MIB = 1 << 20;
  const delta = (category: Category, trainable: boolean | null, from: number, to: number): GroupDelta => ({
    group: { category, trainable },
    from: from * MIB,
    to: to * MIB,
    delta: (to - from) * MIB,
  });
  const sentence = (deltas: GroupDelta[], a: number | null, b: number | null, sameRun = true): string =>
    differenceSentence(deltas, a === null ? null : a * MIB, b === null ? null : b * MIB, { sameRun, pictured: false });
  const unfrozen = [delta("weights", false, 56, 29), delta("weights", true, 1, 28), delta("optimizer_state", null, 1, 55)];

  it("says that weights are equal where only their training changed", () => {
    expect(sentence([...unfrozen, delta("activations", null, 3, 2)], 80, 133)).toBe(
      "B needs 53.0 MiB more than A: optimizer state +54.0 MiB, activations −1.0 MiB. Equal weights, 27.0 MiB became trainable.",
    );
    expect(sentence(unfrozen.slice(0, 2), 80, 80, false)).toBe("A and B have the same peak. Equal weights, 27.0 MiB more trainable in B.");
  });

  it("names no change beside a picture of them", () => {
    expect(differenceSentence(unfrozen.slice(2), 80 * MIB, 133 * MIB, { sameRun: true, pictured: true })).toBe(
      "B needs 53.0 MiB more than A.",
    );
  });

  it("gives the net change of weights of which some became frozen", () => {
    expect(sentence([delta("weights", false, 0, 30), delta("weights", true, 40, 12)], 100, 102)).toBe(
      "B needs 2.0 MiB more than A. Weights +2.0 MiB, 28.0 MiB became frozen.",
    );
    expect(sentence([delta("weights", true, 40, 12), delta("inputs", null, 4, 5)], 100, 73)).toBe(
      "B needs 27.0 MiB less than A: weights −28.0 MiB, inputs +1.0 MiB.",
    );
  });

  it("says where there is no difference, or none is known", () => {
    expect(sentence([delta("inputs", null, 4, 4)], 9, 9)).toBe("A and B use the same memory. Choose another run or step above.");
    expect(sentence([], null, 9)).toBe("The peak of A or B is unknown: it was not measured.");
  });
});
