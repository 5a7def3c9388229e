// @vitest-environment happy-dom
import { afterEach, beforeEach, expect, it, vi } from "vitest";

import { stackLayout } from "../../src/charts/layout";
import { stackPainter, betweenPainter } from "../../src/charts/paint";

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

const FILLS = ["#111111", "#222222"].map((colour) => ({
  colour,
  pattern: "plain" as const,
  muted: false,
}));
const LAYOUT = stackLayout(Float64Array.of(0, 1, 2, 3), [
  Float64Array.of(1, 2, 3),
  Float64Array.of(4, 4, 4),
]);

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

class Path {
  readonly shapes: [number, number][][] = [];
  moveTo(x: number, y: number): void {
    this.shapes.push([[x, y]]);
  }
  lineTo(x: number, y: number): void {
    this.shapes.at(-1)?.push([x, y]);
  }
  closePath(): void {}
  rect(): void {}
}
beforeEach(() => vi.stubGlobal("Path2D", Path));
afterEach(() => vi.unstubAllGlobals());

const SCALE = {
  x: (value: number) => value,
  y: (value: number) => value,
  left: 0,
  top: 0,
  width: 10,
  height: 10,
  ratio: 1,
};
const FILL = { colour: "#111111", pattern: "plain" as const, muted: false };

function shapes(low: number[], high: number[]): [number, number][][] {
  const edges = Float64Array.from({ length: low.length + 1 }, (_, row) => row);
  let drawn = new Path();
  const context = { fillStyle: "", fill: (path: Path) => (drawn = path) };
  betweenPainter(
    edges,
    Float64Array.from(low),
    Float64Array.from(high),
    FILL,
    "#fff",
    1,
  )(context as never, SCALE);
  return drawn.shapes;
}

/** Twice the area inside a closed shape. */
const area = (shape: readonly [number, number][]): number =>
  Math.abs(
    shape.reduce((sum, [x, y], index) => {
      const [nextX, nextY] = shape[(index + 1) % shape.length] as [number, number];
      return sum + x * nextY - nextX * y;
    }, 0),
  ) / 2;

it("draws rows that touch as one shape with the area of all", () => {
  const found = shapes([1, 1, 2], [3, 4, 4]);
  expect(found).toHaveLength(1);
  expect(area(found[0] ?? [])).toBe(2 + 3 + 2);
});

it("leaves out rows that are unknown or empty", () => {
  const found = shapes([0, NaN, 0, 5, 0], [1, 1, NaN, 5, 2]);
  expect(found.map(area)).toEqual([1, 2]);
  expect(found.map(([first]) => first)).toEqual([
    [0, 0],
    [4, 0],
  ]);
  expect(shapes([1], [1])).toEqual([]);
});
