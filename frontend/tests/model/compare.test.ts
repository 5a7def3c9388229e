import { describe, expect, it } from "vitest";

import {
  deltaKey,
  deltaLabel,
  foldDeltas,
  groupDeltas,
  layerDeltas,
  matchCounts,
  differenceSentence,
  type GroupDelta,
} from "../../src/model/compare";
import type { LayerFigures } from "../../src/model/layers";
import { CATEGORIES, type Category } from "../../src/schema";

const nothing = Object.fromEntries(CATEGORIES.map((category) => [category, 0])) as Record<
  Category,
  number
>;

const layer = (
  path: string | null,
  bytes: Partial<Record<Category, number>>,
  parameters = 10,
): LayerFigures => ({
  path,
  type: path === null ? null : "Conv2D",
  trainable: true,
  parameters,
  output_shape: [-1, 8, 8, 4],
  output_dtype: "float32",
  output_bytes: null,
  recomputed: null,
  training: "trainable",
  persistent: 0,
  saved: 0,
  bytes: { ...nothing, ...bytes },
  total: Object.values(bytes).reduce((sum, size) => sum + size, 0),
});

describe("differences below 1 % of the larger side", () => {
  const delta = (category: Category, from: number, to: number) => ({
    group: { category, trainable: null },
    from,
    to,
    delta: to - from,
  });

  it("are summed, and the others keep their order", () => {
    const deltas = [
      delta("weights", 500, 500),
      delta("inputs", 10, 19),
      delta("activations", 400, 480),
      delta("workspace", 1, 0),
    ];
    const { shown, folded } = foldDeltas(deltas);
    expect(shown.map(({ group }) => group.category)).toEqual(["activations"]);
    expect(folded).toEqual({ count: 3, from: 511, to: 519, delta: 8 });
  });

  it("are shown at 1 %, and where there is one alone", () => {
    const whole = delta("weights", 1000, 0);
    expect(foldDeltas([whole, delta("inputs", 0, 10), delta("rounding", 0, 9)])).toMatchObject({
      shown: [whole, delta("inputs", 0, 10), delta("rounding", 0, 9)],
      folded: null,
    });
    expect(foldDeltas([])).toMatchObject({ shown: [], folded: null });
  });
});

describe("two steps", () => {
  it("differ by category, in the order of the stack, what one lacks being 0", () => {
    const part = (category: Category, trainable: boolean | null, bytes: number | null) => ({
      group: { category, trainable },
      bytes,
      share: null,
    });
    expect(
      groupDeltas(
        [part("activations", null, 10), part("weights", true, 5)],
        [part("weights", false, 7), part("activations", null, 4), part("inputs", null, null)],
      ).map(({ group, from, to, delta }) => [group.category, group.trainable, from, to, delta]),
    ).toEqual([
      ["weights", false, 0, 7, 7],
      ["weights", true, 5, 0, -5],
      ["inputs", null, 0, 0, 0],
      ["activations", null, 10, 4, -6],
    ]);
  });

  it("have the slots of earlier optimizers in a row of their own", () => {
    const slots = (bytes: number) => [
      { group: { category: "optimizer_state" as const, trainable: null }, bytes, share: null },
    ];
    const rows = groupDeltas(slots(55), slots(168), [0, 55]);
    expect(
      rows.map((one) => [deltaKey(one), deltaLabel(one), one.from, one.to, one.delta]),
    ).toEqual([
      ["optimizer_state:current", "optimizer, current", 55, 113, 58],
      ["optimizer_state:earlier", "optimizer, earlier", 0, 55, 55],
    ]);
    // AND of an inferred step no more than its whole optimizer state
    expect(groupDeltas(slots(40), slots(168), [55, 55]).map(({ from, to }) => [from, to])).toEqual([
      [0, 113],
      [40, 55],
    ]);
  });

  it("match their layers by path, then by type and shape; the rest is said", () => {
    const deltas = layerDeltas(
      [
        layer("a", { weights: 10 }),
        layer("old", { weights: 4 }, 99),
        layer("gone", { weights: 1 }, 1),
        layer(null, { inputs: 3 }),
      ],
      [
        layer("a", { weights: 10, activations: 50 }),
        layer("renamed", { weights: 6 }, 99),
        layer("new", { weights: 2 }, 2),
        layer(null, { inputs: 3 }),
      ],
    );
    expect(
      deltas.map(({ from, to, match, delta }) => [from?.path, to?.path, match, delta]),
    ).toEqual([
      ["a", "a", "path", 50],
      ["old", "renamed", "type and shape", 2],
      [undefined, "new", "only in B", 2],
      ["gone", undefined, "only in A", -1],
      [null, null, "path", 0],
    ]);
    expect(deltas[0]?.main).toEqual({ category: "activations", delta: 50 });
    expect(matchCounts(deltas)).toEqual({
      path: 1,
      "type and shape": 1,
      "only in A": 1,
      "only in B": 1,
    });
  });
});

describe("the difference as a sentence", () => {
  const MIB = 1 << 20;
  const delta = (
    category: Category,
    trainable: boolean | null,
    from: number,
    to: number,
  ): GroupDelta => ({
    group: { category, trainable },
    from: from * MIB,
    to: to * MIB,
    delta: (to - from) * MIB,
  });
  const sentence = (
    deltas: GroupDelta[],
    a: number | null,
    b: number | null,
    sameRun = true,
  ): string =>
    differenceSentence(deltas, a === null ? null : a * MIB, b === null ? null : b * MIB, sameRun);
  const unfrozen = [
    delta("weights", false, 56, 29),
    delta("weights", true, 1, 28),
    delta("optimizer_state", null, 1, 55),
  ];

  it("says which weights became trainable where their bytes are the same", () => {
    expect(sentence([...unfrozen, delta("activations", null, 3, 2)], 80, 133)).toBe(
      "B needs 53.0 MiB more than A. 27.0 MiB of weights became trainable.",
    );
    expect(sentence(unfrozen.slice(0, 2), 80, 80, false)).toBe(
      "A and B have the same peak, B with 27.0 MiB more trainable weights.",
    );
  });

  it("gives the net change of weights of which some became frozen", () => {
    expect(
      sentence([delta("weights", false, 0, 30), delta("weights", true, 40, 12)], 100, 102),
    ).toBe("B needs 2.0 MiB more than A. Weights +2.0 MiB. 28.0 MiB of weights became frozen.");
    expect(sentence([delta("weights", true, 40, 12), delta("inputs", null, 4, 5)], 100, 73)).toBe(
      "B needs 27.0 MiB less than A.",
    );
  });

  it("says where there is no difference, or none is known", () => {
    expect(sentence([delta("inputs", null, 4, 4)], 9, 9)).toBe(
      "A and B use the same memory. Choose another run or step above.",
    );
    expect(sentence([], null, 9)).toBe("The peak of A or B is unknown: it was not measured.");
  });
});
