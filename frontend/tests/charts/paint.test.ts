// @vitest-environment happy-dom
import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { stackPainter } from "../../src/charts/paint";
import { stackLayout } from "../../src/charts/stack-layout";

class Path {
  moveTo(): void {}
  lineTo(): void {}
  closePath(): void {}
  rect(): void {}
}
beforeEach(() => vi.stubGlobal("Path2D", Path));
afterEach(() => vi.unstubAllGlobals());

/** A context that notes its fills, clips and strokes in order. */
function noting() {
  const calls: string[] = [];
  const context = {
    fillStyle: "",
    strokeStyle: "",
    globalAlpha: 1,
    save: () => undefined,
    restore: () => undefined,
    setLineDash: () => undefined,
    fill: () => calls.push("fill"),
    stroke: () => calls.push(`stroke ${context.strokeStyle}`),
    clip: () => calls.push("clip"),
  };
  return { calls, context: context as unknown as CanvasRenderingContext2D };
}

const SCALE = { x: (value: number) => value, y: (value: number) => value, left: 0, top: 0, width: 10, height: 10, ratio: 2 };
const FILLS = ["#111111", "#222222"].map((colour) => ({ colour, pattern: "plain" as const, muted: false }));
const LAYOUT = stackLayout(Float64Array.of(0, 1, 2), [Float64Array.of(1, 2, 3), Float64Array.of(4, 4, 4)]);

it("separates bands by edges where they are inferred, below what was measured", () => {
  const { calls, context } = noting();
  stackPainter(LAYOUT, FILLS, [[1, 2]], "#fff")(context, SCALE);
  expect(calls).toEqual(["fill", "fill", "stroke #fff", "stroke #fff", "clip", "fill", "fill"]);
});

it("draws no edges where everything was measured", () => {
  const { calls, context } = noting();
  stackPainter(LAYOUT, FILLS, "all", "#fff")(context, SCALE);
  expect(calls).toEqual(["fill", "fill"]);
});
