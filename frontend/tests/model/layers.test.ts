import { formatExact } from "../../src/lib/bytes";
import { describe, expect, it } from "vitest";

import {
  aboveTotal,
  countText,
  groupLayers,
  groupOf,
  layerFigures,
  outputFacts,
  shapeText,
  exampleBytes,
  formula,
  type LayerFigures,
} from "../../src/model/layers";
import type { Layer, LayersAnswer, LedgerRow } from "../../src/schema";

const layer = (
  path: string,
  type: string,
  trainable: boolean,
  weight_bytes: number,
  output_bytes: number | null = null,
): LayersAnswer["layers"][0] => ({
  path,
  type,
  trainable,
  parameters: weight_bytes / 4,
  weight_bytes,
  trainable_weight_bytes: trainable ? weight_bytes : 0,
  optimizer_bytes: trainable ? 2 * weight_bytes : 0,
  output_shape: [-1, 8, -1],
  output_dtype: "float32",
  output_bytes,
  unit: null,
  recomputed: null,
});

const row = (path: string | null, category: LedgerRow["category"], bytes: number): LedgerRow => ({
  layer: path,
  category,
  trainable: null,
  bytes,
  rounding_bytes: 0,
});

const table: LayersAnswer = {
  run: "r",
  step: 0,
  reason: "recording began",
  optimizer: "Adam",
  other_optimizer_bytes: 12,
  other_state_bytes: 0,
  layers: [
    layer("net/block1_conv1", "Conv2D", false, 400),
    layer("net/block1_conv2", "Conv2D", true, 800, 4096),
    layer("head", "Dense", true, 40, 9000),
  ],
};

const ledger = [
  row("net/block1_conv2", "activations", 5000),
  row("net/block1_conv1", "weights", 512),
  row("net/block1_conv2", "weights", 1024),
  row("gone", "workspace", 256),
  row(null, "unattributed", 99),
];

describe("layerFigures", () => {
  it("sums to the ledger, owners that the table lacks and bytes of no layer included", () => {
    const figures = layerFigures(table, ledger);
    expect(figures.map(({ path, total }) => [path, total])).toEqual([
      ["net/block1_conv1", 512],
      ["net/block1_conv2", 6024],
      ["head", 0],
      ["gone", 256],
      [null, 99],
    ]);
  });

  it("knows weights and optimizer state without a ledger", () => {
    expect(layerFigures(table, null).map(({ total }) => total)).toEqual([400, 2400, 120, 12]);
    expect(layerFigures(null, ledger)).toHaveLength(4);
  });

  it("writes shapes with the batch's name", () => {
    expect(shapeText(layerFigures(table, null)[0] as Parameters<typeof shapeText>[0])).toBe(
      "(batch, 8, ?) float32",
    );
  });
});

describe("outputFacts", () => {
  const [open, known] = layerFigures(table, ledger) as [LayerFigures, LayerFigures];

  it("state the output's shape and the source", () => {
    expect(known.output_bytes).toBe(4096);
    expect(outputFacts(known)).toEqual([
      "output of one batch, (batch, 8, ?) float32",
      "from the layer table (Keras)",
    ]);
  });

  it("say why there are none", () => {
    const why = (layer: LayerFigures): string | undefined => outputFacts(layer)[0];
    expect(why(open)).toBe("Output size unknown: a dimension is unknown, (batch, 8, ?) float32.");
    expect(why({ ...open, output_shape: null })).toBe(
      "Output size unknown: Keras reports no output shape.",
    );
    const [owner] = layerFigures(null, ledger) as [LayerFigures];
    expect(owner.output_bytes).toBeNull();
    expect(outputFacts(owner)).toEqual([
      "Output size unknown: the layer is not in the layer table.",
    ]);
  });
});

describe("the bytes at the moment shown", () => {
  const saved = [
    { layer: "head", bytes: 700 },
    { layer: null, bytes: 9999 },
  ];
  const figures = layerFigures(table, [...ledger, row("head", "optimizer_state", 80)], saved);

  it("rank layers, whatever is persistent or saved", () => {
    expect(figures.map(({ path, persistent, saved: kept }) => [path, persistent, kept])).toEqual([
      ["net/block1_conv1", 512, 0],
      ["net/block1_conv2", 1024, 0],
      ["head", 80, 700],
      ["gone", 0, 0],
      [null, 0, 9999],
    ]);
    const sorted = groupLayers(figures, "none", "total")[0]?.layers.map(({ path }) => path);
    expect(sorted).toEqual(["net/block1_conv2", "net/block1_conv1", "gone", null, "head"]);
  });

  it("says why it is above the total at the peak, of layers and of groups", () => {
    const [block, , head] = figures as [LayerFigures, LayerFigures, LayerFigures];
    expect([head.persistent + head.saved, head.total]).toEqual([780, 80]);
    expect(aboveTotal(head)).toBe(
      "More than the 80 B at the peak: by then, activations saved by the forward pass were freed.",
    );
    expect(aboveTotal(groupOf("heads", [head]))).toBe(aboveTotal(head));
    expect(aboveTotal(block)).toBe("");
  });

  it("is weights and optimizer state without a ledger", () => {
    expect(layerFigures(table, null).map(({ total }) => total)).toEqual([400, 2400, 120, 12]);
  });
});

describe("counts of layers", () => {
  const pool = { ...layer("net/pool", "MaxPooling2D", false, 0) };
  const figures = layerFigures({ ...table, layers: [...table.layers, pool] }, ledger);

  it("leave layers without weights out of the trainable and the frozen ones", () => {
    expect(figures.map(({ training }) => training)).toEqual([
      "frozen",
      "trainable",
      "trainable",
      "no weights",
      null,
      null,
    ]);
    const [frozen, trainable] = groupLayers(figures, "trainable", null);
    expect(frozen && countText(frozen, "trainable")).toEqual({
      text: "1 with weights",
      more: "2 layers: 1 with weights, 1 without",
    });
    expect(trainable && countText(trainable, "trainable")).toEqual({
      text: "2 layers",
      more: "2 layers",
    });
    expect(frozen && countText(frozen, "block").text).toBe("2 layers");
  });

  it("and sums of all rows are those of the ledger", () => {
    const totals = groupOf("total", figures);
    expect([totals.total, totals.bytes.weights, totals.parameters]).toEqual([
      512 + 6024 + 256 + 99,
      1536,
      310,
    ]);
    expect(countText(totals, "none").text).toBe("5 layers");
  });
});

describe("groupLayers", () => {
  const figures = layerFigures(table, ledger);

  it("keeps the model's order or sorts", () => {
    expect(groupLayers(figures, "none", null)[0]?.layers.map(({ path }) => path)).toEqual(
      figures.map(({ path }) => path),
    );
    expect(groupLayers(figures, "none", "total")[0]?.layers[0]?.path).toBe("net/block1_conv2");
    expect(groupLayers(figures, "none", "path")[0]?.layers.map(({ path }) => path)).toEqual([
      "gone",
      "head",
      "net/block1_conv1",
      "net/block1_conv2",
      null,
    ]);
  });

  it("sorts by size of output, those not known last in the model's order", () => {
    expect(groupLayers(figures, "none", "output_bytes")[0]?.layers.map(({ path }) => path)).toEqual(
      ["head", "net/block1_conv2", "net/block1_conv1", "gone", null],
    );
  });

  it("puts the group with the largest output first", () => {
    const groups = groupLayers(figures, "block", "output_bytes");
    expect(groups.map(({ title }) => title)).toEqual([
      "head",
      "net/block1",
      "gone",
      "not tied to a layer",
    ]);
    expect(groups[1]?.layers.map(({ output_bytes }) => output_bytes)).toEqual([4096, null]);
  });

  it.each(["block", "type", "trainable", "none"] as const)("by %s loses nothing", (grouping) => {
    const groups = groupLayers(figures, grouping, "total");
    expect(groups.reduce((sum, { total }) => sum + total, 0)).toBe(512 + 6024 + 256 + 99);
    for (const group of groups)
      expect(group.total).toBe(group.layers.reduce((sum, { total }) => sum + total, 0));
  });

  it("names its groups", () => {
    expect(groupLayers(figures, "block", null).map(({ title }) => title)).toEqual([
      "net/block1",
      "head",
      "gone",
      "not tied to a layer",
    ]);
    expect(groupLayers(figures, "trainable", null).map(({ title }) => title)).toEqual([
      "frozen",
      "trainable",
      "unknown",
      "not tied to a layer",
    ]);
  });
});

const unknown = { optimizer: null, batch_size: null };

describe("the formula behind a figure", () => {
  const row: Layer = {
    path: "conv",
    type: "Conv2D",
    trainable: true,
    parameters: 1792,
    weight_bytes: 7168,
    trainable_weight_bytes: 7168,
    optimizer_bytes: 14336,
    output_shape: [-1, 64, 64, 64],
    output_dtype: "float32",
    output_bytes: null,
    unit: null,
    recomputed: null,
  };

  it("has few digits in a tooltip, and all on the layer's page", () => {
    expect(formula("weights", row, 7168, unknown)).toBe("1,792 parameters × 4 B = 7.0 KiB");
    expect(formula("weights", row, 7168, unknown, formatExact)).toBe(
      "1,792 parameters × 4 B = 7,168 B",
    );
  });

  it("names elements, sizes and factors", () => {
    expect(exampleBytes(row)).toBe(1048576);
    expect(formula("weights", row, 7168, { ...unknown, optimizer: "Adam" })).toBe(
      "1,792 parameters × 4 B = 7.0 KiB",
    );
    expect(formula("optimizer_state", row, 14336, { ...unknown, optimizer: "Adam" })).toBe(
      "Adam keeps 2 × the trainable weights: 2 × 7.0 KiB = 14.0 KiB",
    );
    expect(formula("weight_gradients", row, 7168, unknown)).toBe("the trainable weights: 7.0 KiB");
    expect(formula("activations", row, 32 * 1048576, { ...unknown, batch_size: 16 })).toBe(
      "2 × the output of a batch of 16: 2 × 16 × 64 × 64 × 64 × 4 B = 32.0 MiB",
    );
    expect(formula("activations", row, 16 * 1048576, { ...unknown, batch_size: 16 })).toBe(
      "the output of a batch of 16: 16 × 64 × 64 × 64 × 4 B = 16.0 MiB",
    );
  });

  it("is none where the figure does not follow from shapes", () => {
    const of16 = { ...unknown, batch_size: 16 };
    expect(formula("weights", null, 7168, unknown)).toBeNull();
    expect(formula("weights", row, 7000, unknown)).toBeNull();
    expect(formula("optimizer_state", row, 7168, unknown)).toBeNull();
    expect(formula("weight_gradients", row, 3584, unknown)).toBeNull();
    expect(
      formula("weight_gradients", { ...row, trainable_weight_bytes: 0 }, 1, unknown),
    ).toBeNull();
    expect(formula("activations", row, 16 * 1048576, unknown)).toBeNull();
    expect(formula("activation_gradients", row, 1500000, of16)).toBeNull();
    // As many outputs as this are no output.
    expect(formula("activations", row, 80 * 16 * 1048576, of16)).toBeNull();
    expect(formula("activations", { ...row, output_shape: [-1, -1] }, 1, of16)).toBeNull();
    for (const category of ["other_state", "workspace", "rounding"] as const)
      expect(formula(category, row, 512, of16)).toBeNull();
  });
});
