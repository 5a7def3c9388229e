import { describe, expect, it } from "vitest";

import { BlockPainter } from "../../../src/charts/timeline-block-paint";
import type { Timeline } from "../../../src/model/timeline";
import { stepLook, stepParts, stepSpec, tensorFills } from "../../../src/views/step/step-spec";
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
    const { fills: all, styles } = tensorFills(
      timeline,
      stepParts(timeline, by).series,
      focus,
      layer,
    );
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
    const muted = (...args: Parameters<typeof fills>): (boolean | undefined)[] =>
      fills(...args).map((fill) => fill?.muted);
    expect(muted("category")).toEqual([false, false, false]);
    expect(muted("category", NO_FOCUS, "b")).toEqual([true, false, true]);
    expect(muted("layer", { hovered: null, category: "weights" })).toEqual([false, true, false]);
    expect(muted("category", { hovered: "activations", category: null })).toEqual([
      true,
      false,
      true,
    ]);
  });
});

describe("a failed step", () => {
  const timeline = {
    rows: 1,
    moments: 2,
    peak: 1,
    in_use_bytes: 90,
    time_ns: [0, 2e6],
    duration_ns: 1e10,
    bands: [],
    compiled: [],
    owners: [{ layer: "a", category: "weights", trainable: true }],
    owner: Float64Array.of(0),
    start: Float64Array.of(0),
    end: Float64Array.of(2),
    bytes: Float64Array.of(90),
  } as unknown as Timeline;
  const choices = { stack: "category", timelineAxis: "time", layer: null } as const;
  const failed = { low: 90, high: 130, label: "40 B requested", capacity: 100 };
  const spec = (failure: typeof failed | null) => {
    const look = stepLook(
      timeline,
      stepParts(timeline, "category"),
      choices,
      NO_FOCUS,
      null,
      failure,
    );
    const range = [0, look.layout.edges.at(-1) ?? 0] as const;
    const painting = {
      choices,
      painter: new BlockPainter(),
      selected: [],
      selection: null,
      moving: false,
    } as const;
    return stepSpec(timeline, look, range, painting);
  };

  it("ends with its last event, below the request", () => {
    expect(spec(null).range[1]).toBe(1e4);
    expect(spec(null).yMax).toBeLessThan(110);
    expect(spec(failed).range[1]).toBeCloseTo(2 * 1.03);
    expect(spec(failed).yMax).toBeGreaterThan(130);
    // The request, its label and the capacity.
    expect(spec(failed).painters.length).toBe(spec(null).painters.length + 3);
  });
});
