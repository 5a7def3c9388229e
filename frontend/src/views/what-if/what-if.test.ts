import { describe, expect, it } from "vitest";

import { categoriesOf, largestText, type CurvePoint, type WhatIf } from "../../model/what-if";
import { barsLayout } from "./bars-layout";
import { curveSpec, largestMark, measuredPoint, wholeRange } from "./curve-spec";

const MIB = 2 ** 20;

const point = (batchSize: number, mib: number): CurvePoint => ({
  batch_size: batchSize,
  peak_bytes: mib * MIB,
  low_bytes: (mib - 4) * MIB,
  high_bytes: (mib + 4) * MIB,
});

const answer: WhatIf = {
  run: "a",
  device: "CPU:0",
  batch_size: 8,
  capacity_bytes: 400 * MIB,
  peak_bytes: 200 * MIB,
  low_bytes: 190 * MIB,
  high_bytes: 210 * MIB,
  fits: true,
  fails_at: null,
  largest_batch_size: 16,
  method: "replay",
  reproduced: { addresses: 1, of: 1 },
  assumptions: [],
  recorded: { batch_sizes: [4], steps: [1], peak_bytes: 110 * MIB },
  ledger: [
    { layer: "a", category: "activations", trainable: true, bytes: 180 * MIB },
    { layer: "a", category: "weights", trainable: true, bytes: 22 * MIB },
  ],
  curve: [point(2, 60), point(4, 110), point(8, 200), point(16, 390), point(20, 480)],
  measured: { step: 1, in_use_bytes: 110 * MIB, ledger: [{ layer: "a", category: "activations", trainable: true, bytes: 110 * MIB }] },
};

describe("the stacked bars", () => {
  it("stack the categories of both ledgers in the same order", () => {
    const { bars } = barsLayout(answer, categoriesOf(answer));
    expect(bars.map(({ name, bytes, note }) => [name, (bytes ?? 0) / MIB, note])).toEqual([
      ["measured", 110, "step 1"],
      ["predicted", 200, ""],
    ]);
    expect(bars.map(({ segments }) => segments.map(({ key, low, high }) => [key, low / MIB, high / MIB]))).toEqual([
      [["activations", 0, 110]],
      [
        ["weights:trainable", 0, 22],
        ["activations", 22, 202],
      ],
    ]);
  });

  it("leave room for the range, and for the capacity where it is near", () => {
    expect(barsLayout(answer, categoriesOf(answer))).toMatchObject({ capacityInside: true, top: 400 * 1.06 * MIB });
    const roomy = { ...answer, capacity_bytes: 4000 * MIB };
    const { capacityInside, top } = barsLayout(roomy, categoriesOf(roomy));
    expect(capacityInside).toBe(false);
    expect(top).toBeGreaterThan(210 * MIB);
    expect(top).toBeLessThan(260 * MIB);
  });

  it("show the prediction alone where nothing was measured", () => {
    const alone = { ...answer, measured: null };
    expect(barsLayout(alone, categoriesOf(alone)).bars.map(({ name }) => name)).toEqual(["predicted"]);
  });
});

describe("the curve", () => {
  it("has a place for every batch size, from 0", () => {
    const spec = curveSpec(answer, wholeRange(answer), "light");
    expect([...spec.x]).toEqual([2, 4, 8, 16, 20]);
    expect(spec.range).toEqual([0, 20 * 1.02]);
    expect(spec.yMax).toBeCloseTo(484 * 1.08 * MIB, 0);
  });

  it("fits its height to the zoom", () => {
    expect(curveSpec(answer, [1, 5], "dark").yMax).toBeCloseTo(Math.max(204 * 1.08, 400 * 1.06) * MIB, 0);
  });

  it("marks the measured point, where it is in sight, and the largest batch size", () => {
    expect(measuredPoint(answer)).toEqual({ x: 4, y: 110 * MIB });
    expect(curveSpec(answer, wholeRange(answer), "light").lanes).toHaveLength(1);
    expect(curveSpec(answer, [6, 20], "light").lanes).toHaveLength(0);
    expect(measuredPoint({ ...answer, recorded: { batch_sizes: [], steps: [], peak_bytes: 1 } })).toBeNull();
    expect(largestMark(answer)).toMatchObject([{ x: 16, label: "largest: 16" }]);
    expect(largestMark(answer)[0]?.sentence).toContain("in 400 MiB");
    expect(largestMark({ ...answer, largest_batch_size: null })).toEqual([]);
  });

  it("has no mark and no line where no batch size passes or none is known to", () => {
    const painters = (largest: number | null) =>
      curveSpec({ ...answer, largest_batch_size: largest }, wholeRange(answer), "light").painters.length;
    expect(largestMark({ ...answer, largest_batch_size: 0 })).toEqual([]);
    expect(painters(0)).toBe(painters(16) - 1);
    expect(painters(null)).toBe(painters(0));
  });
});

describe("the largest batch size", () => {
  it.each([
    [1200, "1,200"],
    [1, "1"],
    [0, "none"],
    [null, "unknown"],
  ])("%s is shown as %s", (largest, text) => {
    expect(largestText({ ...answer, largest_batch_size: largest })).toBe(text);
  });
});
