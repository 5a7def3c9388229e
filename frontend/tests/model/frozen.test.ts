import { describe, expect, it } from "vitest";

import { costSentences, splitBySide, type SidePart } from "../../src/model/frozen";
import type { Overview } from "../../src/model/overview";
import type { LedgerTotals } from "../../src/model/snapshot";
import type { Group, LayerChange } from "../../src/schema";

const GROUPS: Group[] = [
  { category: "weights", trainable: false },
  { category: "weights", trainable: true },
  { category: "weights", trainable: null },
];

function split(groups: Group[], bytes: number[], ledger: number[]): [string, number][] {
  const columns = (values: number[]): Float64Array[] =>
    values.map((value) => Float64Array.of(value));
  const overview: Partial<Overview> = {
    rows: 1,
    groups,
    bytes: columns(bytes),
    snapshot: Float64Array.of(0),
  };
  const snapshots = [{ step: 7, mode: "graph" }] as unknown as Overview["snapshots"];
  const totals: Partial<LedgerTotals> = {
    rows: 1,
    groups: GROUPS,
    step: Float64Array.of(7),
    bytes: columns(ledger),
  };
  const parts = splitBySide({ ...overview, snapshots } as Overview, totals as LedgerTotals);
  return parts.map(({ side, bytes: [value] }) => [side, value ?? NaN]);
}

describe("splitBySide", () => {
  it("leaves weights that are only known to be weights out of both sides", () => {
    expect(split(GROUPS, [30, 20, 10], [30, 20, 10])).toEqual([
      ["frozen", 30],
      ["trainable", 20],
      ["other", 10],
    ]);
  });

  it("stacks frozen layers below trainable ones, in each persistent memory below transient memory", () => {
    const groups: Group[] = [
      ...GROUPS,
      { category: "held_tensors", trainable: null },
      { category: "activations", trainable: null },
    ];
    const overview = {
      rows: 1,
      groups,
      bytes: [1, 2, 3, 4, 5].map((value) => Float64Array.of(value)),
      snapshot: Float64Array.of(0),
    };
    const totals = {
      rows: 1,
      groups: [
        { category: "activations", trainable: false },
        { category: "activations", trainable: true },
      ],
      step: Float64Array.of(7),
      bytes: [Float64Array.of(40), Float64Array.of(60)],
    };
    const parts = splitBySide(
      { ...overview, step: [7], changes: [], snapshots: [{ step: 7 }] } as unknown as Overview,
      totals as unknown as LedgerTotals,
    );
    expect(
      parts.map(({ side, category, bytes: [value] }) => `${side} ${category} ${value ?? "?"}`),
    ).toEqual([
      "frozen weights 1",
      "frozen activations 2",
      "trainable weights 2",
      "trainable activations 3",
      "other weights 3",
      "other held_tensors 4",
    ]);
  });

  it("splits a category that the overview does not split as the ledger does", () => {
    expect(split([{ category: "weights", trainable: null }], [120], [30, 20, 10])).toEqual([
      ["frozen", 60],
      ["trainable", 40],
      ["other", 20],
    ]);
  });
});

describe("splitBySide without a ledger", () => {
  it("knows only that optimizer state and weight gradients are trainable", () => {
    const categories = ["optimizer_state", "weight_gradients", "activations"] as const;
    const overview: Partial<Overview> = {
      rows: 2,
      groups: categories.map((category) => ({ category, trainable: null })),
      bytes: [Float64Array.of(4, 5), Float64Array.of(6, NaN), Float64Array.of(7, 8)],
      snapshot: Float64Array.of(NaN, NaN),
      snapshots: [],
      step: Float64Array.of(1, 2),
      changes: [],
    };
    expect(
      splitBySide(overview as Overview, null).map(({ side, category, bytes }) => [
        side,
        category,
        [...bytes],
      ]),
    ).toEqual([
      ["trainable", "optimizer_state", [4, 5]],
      ["trainable", "weight_gradients", [6, 0]],
      ["other", "activations", [7, 8]],
    ]);
    // AND optimizer bytes not tied to a layer are on neither side
    const changes = [{ step: 2, optimizer_bytes: 5, other_optimizer_bytes: 2 }] as LayerChange[];
    const parts = splitBySide({ ...overview, changes } as Overview, null).filter(
      ({ category }) => category === "optimizer_state",
    );
    expect(parts.map(({ side, bytes }) => [side, bytes[1]])).toEqual([
      ["trainable", 3],
      ["other", 2],
    ]);
  });

  it("loses no byte to rounding of shares", () => {
    // A third each: 33 + 33 of 100, and the rest is what remains.
    expect(split([{ category: "weights", trainable: null }], [100], [1, 1, 1])).toEqual([
      ["frozen", 33],
      ["trainable", 33],
      ["other", 34],
    ]);
  });
});

describe("the cost of frozen and trainable layers", () => {
  const MIB = 2 ** 20;
  const part = (side: SidePart["side"], category: SidePart["category"], mib: number): SidePart => ({
    side,
    category,
    bytes: Float64Array.of(mib * MIB),
  });
  const change = (
    step: number,
    frozen: number,
    trainable: number,
    optimizer: number,
  ): LayerChange => ({
    step,
    reason: "",
    frozen_weight_bytes: frozen * MIB,
    trainable_weight_bytes: trainable * MIB,
    statistics_bytes: 0,
    unfreezing_weight_bytes: frozen * MIB,
    optimizer_bytes: optimizer * MIB,
    other_optimizer_bytes: 0,
    frozen_layers: frozen > 0 ? 1 : 0,
    trainable_layers: 0,
    became_trainable: [],
    became_frozen: [],
    peak_before_bytes: null,
    peak_before_step: null,
    peak_after_bytes: null,
    peak_after_step: null,
    stayed_slots_bytes: 0,
  });
  const costs = (changes: LayerChange[], parts: SidePart[]): string[] =>
    costSentences({ step: Float64Array.of(9), changes } as unknown as Overview, parts, 0);

  it("names bytes and reasons, largest first", () => {
    const parts = [
      part("frozen", "weights", 10),
      part("frozen", "activations", 30),
      part("trainable", "rounding", 1),
      part("other", "inputs", 5),
    ];
    expect(costs([], parts)).toEqual([
      "At step 9, frozen layers use 40.0 MiB: 30.0 MiB of activations, saved for the backward pass to trainable weights; 10.0 MiB of weights, which every forward pass reads.",
      "At step 9, trainable layers use 1.0 MiB: 1.0 MiB of rounding.",
    ]);
  });

  it("extrapolates optimizer state from the weights trained at that step", () => {
    const rest =
      "up to 20.0 MiB of weight gradients, and the activations saved for the longer backward pass.";
    expect(costs([change(0, 20, 10, 15), change(10, 0, 30, 45)], [])).toEqual([
      `Unfreezing all weights would add 30.0 MiB of optimizer state (1.5 × the weights, as for those trained now), ${rest}`,
    ]);
    expect(costs([change(0, 20, 0, 0)], [])).toEqual([
      "Unfreezing all weights would add up to 20.0 MiB of weight gradients, their optimizer state, and the activations saved for the longer backward pass.",
    ]);
    expect(costs([change(0, 0, 10, 20)], [])).toEqual([]);
    // Statistics of a trainable batch normalization freeze no layer.
    expect(
      costs([{ ...change(0, 0, 10, 20), statistics_bytes: MIB }], [part("frozen", "weights", 1)]),
    ).toEqual([]);
  });

  it("says of a run without training steps that nothing has gradients, and extrapolates nothing", () => {
    const overview = {
      step: Float64Array.of(9),
      changes: [change(0, 20, 10, 15)],
    } as unknown as Overview;
    expect(costSentences(overview, [part("frozen", "weights", 20)], 0, false)).toEqual([
      "At step 9, frozen layers use 20.0 MiB: 20.0 MiB of weights, which every forward pass reads.",
      "This run has no training steps, so no weight has gradients, frozen or trainable.",
    ]);
  });
});
