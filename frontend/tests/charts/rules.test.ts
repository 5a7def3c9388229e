import { describe, expect, it } from "vitest";

import type { Scale } from "../../src/charts/paint";
import { capacitiesPainter } from "../../src/charts/rules";

const column = (...values: number[]): Float64Array => Float64Array.from(values);
const edges = column(0, 1, 2, 3);

/** What the painters draw: lines across the plot, stepped lines, texts. */
function drawn(values: Float64Array, inside: boolean): { across: number; stepped: number; texts: string[] } {
  const seen = { across: 0, stepped: 0, texts: [] as string[] };
  let grounds = 0;
  const context = new Proxy({} as Record<string, unknown>, {
    get: (_, name) => {
      // A label that lies on a ground of its own is readable on every fill.
      if (name === "measureText") return () => ({ width: 40 });
      if (name === "fillRect") return () => (grounds += 1);
      if (name === "fillText") return (text: string) => seen.texts.push(grounds > seen.texts.length ? text : `bare ${text}`);
      // A stepped line is a path of its own.
      if (name === "stroke") return (path?: unknown) => (path === undefined ? (seen.across += 1) : (seen.stepped += 1));
      return () => undefined;
    },
    set: () => true,
  }) as unknown as CanvasRenderingContext2D;
  const scale: Scale = { x: (x) => x, y: (y) => y, left: 0, top: 0, width: 3, height: 10, ratio: 1 };
  for (const paint of capacitiesPainter(edges, values, (value) => `limit ${value}`, inside, { capacity: "red", background: "white" }))
    paint(context, scale);
  return seen;
}

class FakePath {
  moveTo(): void {}
  lineTo(): void {}
}

describe("the capacity", () => {
  it("is one line where it never changes, and nothing where it is unknown", () => {
    expect(drawn(column(8, NaN, 8), true)).toEqual({ across: 1, stepped: 0, texts: ["limit 8"] });
    expect(drawn(column(NaN, NaN, NaN), true)).toEqual({ across: 0, stepped: 0, texts: [] });
  });

  it("is a step where it changes, so that nothing measured lies above it", () => {
    Object.assign(globalThis, { Path2D: FakePath });
    expect(drawn(column(9, 9, 6), true)).toEqual({ across: 0, stepped: 1, texts: ["limit 6"] });
    expect(drawn(column(9, 9, 6), false)).toEqual({ across: 0, stepped: 0, texts: ["↑ limit 6"] });
  });
});
