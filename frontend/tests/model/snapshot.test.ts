import { describe, expect, it } from "vitest";

import type { LedgerRow } from "../../src/model/snapshot";
import { owners } from "../../src/model/snapshot";

const row = (layer: string | null, category: LedgerRow["category"], trainable: boolean | null, bytes: number): LedgerRow => ({
  layer,
  category,
  trainable,
  bytes,
  rounding_bytes: 0,
});

describe("owners", () => {
  it("are layers by their sum, memory without a layer included", () => {
    const ledger = [row("a", "weights", true, 5), row(null, "inputs", null, 7), row("a", "activations", true, 3)];
    expect(owners(ledger)).toEqual([
      { layer: "a", bytes: 8 },
      { layer: null, bytes: 7 },
    ]);
  });
});
