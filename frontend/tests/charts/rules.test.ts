import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import type { Painter, Scale } from "../../src/charts/paint";
import { capacitiesPainter, platePainter } from "../../src/charts/rules";

const column = (...values: number[]): Float64Array => Float64Array.from(values);
const edges = column(0, 1, 2, 3);

interface Seen {
  across: number;
  stepped: number;
  texts: string[];
}

/** What painters draw: lines across the plot, stepped lines, texts. */
function seenOf(painters: readonly Painter[], height: number): Seen {
  const seen: Seen = { across: 0, stepped: 0, texts: [] };
  let grounds = 0;
  const context = new Proxy({} as Record<string, unknown>, {
    get: (_, name) => {
      // A label that lies on a ground of its own is readable on every fill.
      if (name === "measureText") return () => ({ width: 40 });
      if (name === "fillRect") return () => (grounds += 1);
      if (name === "fillText") return (text: string) => seen.texts.push(grounds > seen.texts.length ? text : `bare ${text}`);
      if (name === "stroke") return ({ points }: FakePath) => (points === 2 ? (seen.across += 1) : (seen.stepped += 1));
      return () => undefined;
    },
    set: () => true,
  }) as unknown as CanvasRenderingContext2D;
  const scale: Scale = { x: (x) => x, y: (y) => y, left: 0, top: 0, width: 3, height, ratio: 1 };
  for (const paint of painters) paint(context, scale);
  return seen;
}

const drawn = (values: Float64Array, inside: boolean): Seen =>
  seenOf(
    capacitiesPainter(edges, values, (value) => `limit ${value}`, inside, { capacity: "red", background: "white" }),
    10,
  );

class FakePath {
  points = 0;
  moveTo(): void {
    this.points += 1;
  }
  lineTo(): void {
    this.points += 1;
  }
}
beforeEach(() => vi.stubGlobal("Path2D", FakePath));
afterEach(() => vi.unstubAllGlobals());

describe("the capacity", () => {
  it("is one line where it never changes, and nothing where it is unknown", () => {
    expect(drawn(column(8, NaN, 8), true)).toEqual({ across: 1, stepped: 0, texts: ["limit 8"] });
    expect(drawn(column(NaN, NaN, NaN), true)).toEqual({ across: 0, stepped: 0, texts: [] });
  });

  it("is a step where it changes, so that nothing measured lies above it", () => {
    expect(drawn(column(9, 9, 6), true)).toEqual({ across: 0, stepped: 1, texts: ["limit 6"] });
    expect(drawn(column(9, 9, 6), false)).toEqual({ across: 0, stepped: 0, texts: ["↑ limit 6"] });
  });
});

describe("a label in its area", () => {
  it("is left out if the area is lower than the label", () => {
    // One byte is one pixel, upwards.
    const texts = (room: number): string[] => seenOf([platePainter(0, -room, "frozen layers", "black", "white")], 100).texts;
    expect(texts(22)).toEqual(["bare frozen layers"]);
    expect(texts(21)).toEqual([]);
  });
});
