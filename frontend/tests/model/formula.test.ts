import { describe, expect, it } from "vitest";

import { exampleBytes, formula } from "../../src/model/formula";
import type { LayerRow } from "../../src/model/layers";

const unknown = { optimizer: null, batch_size: null };

describe("the formula behind a figure", () => {
  const row: LayerRow = {
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
    recomputed: null,
  };

  it("names elements, sizes and factors", () => {
    expect(exampleBytes(row)).toBe(1048576);
    expect(formula("weights", row, 7168, { ...unknown, optimizer: "Adam" })).toBe("1,792 parameters × 4 B = 7,168 B");
    expect(formula("optimizer_state", row, 14336, { ...unknown, optimizer: "Adam" })).toBe(
      "Adam keeps 2 × the trainable weights, 7,168 B = 14,336 B",
    );
    expect(formula("weight_gradients", row, 7168, unknown)).toBe("= 1 × the trainable weights, 7,168 B");
    expect(formula("activations", row, 16 * 1048576, unknown)).toBe(
      "= 16 × the output of one example, 64 × 64 × 64 × float32 = 1,048,576 B",
    );
    expect(formula("activation_gradients", row, 1500000, unknown)).toBe(
      "≈ 1.4 × the output of one example, 64 × 64 × 64 × float32 = 1,048,576 B",
    );
    expect(formula("activations", row, 32 * 1048576, { ...unknown, batch_size: 16 })).toBe(
      "= 2 × the output of a batch of 16, 16 × 64 × 64 × 64 × float32 = 16,777,216 B",
    );
  });

  it("says so where it is not known", () => {
    expect(formula("weights", null, 1, unknown)).toContain("not in the layer table");
    expect(formula("activations", { ...row, output_shape: [-1, -1] }, 1, unknown)).toContain("unknown");
    expect(formula("other_state", row, 1, unknown)).toBe("as traced");
    expect(formula("workspace", row, 1500000, unknown)).toBe("as traced");
    expect(formula("weight_gradients", { ...row, trainable_weight_bytes: 0 }, 1, unknown)).toBe("as traced");
    expect(formula("rounding", null, 512, unknown)).toBe("allocated − requested: 256-byte rounding and unsplit remainders");
  });
});
