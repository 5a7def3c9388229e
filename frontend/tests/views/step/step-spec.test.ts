import { describe, expect, it } from "vitest";

import type { Timeline } from "../../../src/model/timeline";
import { stepParts, tensorFills } from "../../../src/views/step/step-spec";
import { NO_FOCUS } from "../focus-cases";

describe("fills of tensors", () => {
  const timeline = {
    rows: 3,
    moments: 1,
    owners: [
      { layer: "a", category: "weights", trainable: true },
      { layer: "b", category: "activations", trainable: true },
    ],
    owner: Float64Array.of(0, 1, 0),
    start: Float64Array.of(0, 0, 0),
    end: Float64Array.of(1, 1, 1),
    bytes: Float64Array.of(3, 2, 1),
  } as unknown as Timeline;
  const fills = (by: "category" | "layer", focus = NO_FOCUS, layer: string | null = null) => {
    const { fills: all, styles } = tensorFills(timeline, stepParts(timeline, by).series, focus, layer, "light");
    return [...styles].map((style) => all[style]);
  };

  it("are those of their category or layer", () => {
    const [first, second, third] = fills("category");
    expect(first).toEqual(third);
    expect(first?.colour).not.toBe(second?.colour);
    const byLayer = fills("layer");
    expect(byLayer[0]).toEqual(byLayer[2]);
    expect(byLayer[0]?.colour).not.toBe(first?.colour);
  });

  it("are paler besides the selected layer, the selected category and the part under the pointer", () => {
    const muted = (...args: Parameters<typeof fills>): (boolean | undefined)[] => fills(...args).map((fill) => fill?.muted);
    expect(muted("category")).toEqual([false, false, false]);
    expect(muted("category", NO_FOCUS, "b")).toEqual([true, false, true]);
    expect(muted("layer", { hovered: null, category: "weights" })).toEqual([false, true, false]);
    expect(muted("category", { hovered: "activations", category: null })).toEqual([true, false, true]);
  });
});
