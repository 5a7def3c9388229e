import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import type { Painter, Scale } from "../../src/charts/paint";
import {
  capacitiesPainter,
  outlinedPainter,
  platePainter,
  ruleAcross,
  trendPainter,
} from "../../src/charts/rules";

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
      if (name === "fillText")
        return (text: string) =>
          seen.texts.push(grounds > seen.texts.length ? text : `bare ${text}`);
      if (name === "stroke")
        return ({ points }: FakePath) => (points === 2 ? (seen.across += 1) : (seen.stepped += 1));
      return () => undefined;
    },
    set: () => true,
  }) as unknown as CanvasRenderingContext2D;
  const scale: Scale = { x: (x) => x, y: (y) => y, left: 0, top: 0, width: 3, height, ratio: 1 };
  for (const paint of painters) paint(context, scale);
  return seen;
}

const drawn = (values: Float64Array, inside: boolean): Seen =>
  seenOf(capacitiesPainter(edges, values, inside, { capacity: "red", background: "white" }), 10);

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
    expect(drawn(column(8, NaN, 8), true)).toEqual({
      across: 1,
      stepped: 0,
      texts: ["capacity 8 B"],
    });
    expect(drawn(column(NaN, NaN, NaN), true)).toEqual({ across: 0, stepped: 0, texts: [] });
  });

  it("is a step where it changes, so that nothing measured lies above it", () => {
    expect(drawn(column(9, 9, 6), true)).toEqual({
      across: 0,
      stepped: 1,
      texts: ["capacity 6 B"],
    });
    expect(drawn(column(9, 9, 6), false)).toEqual({
      across: 0,
      stepped: 0,
      texts: ["↑ capacity 6 B"],
    });
  });
});

describe("a label in its area", () => {
  it("is left out if the area is lower than the label", () => {
    // One byte is one pixel, upwards.
    const texts = (room: number): string[] =>
      seenOf([platePainter(0, -room, "frozen layers", "black", "white")], 100).texts;
    expect(texts(22)).toEqual(["bare frozen layers"]);
    expect(texts(21)).toEqual([]);
  });
});

interface Rect {
  left: number;
  right: number;
  top: number;
  bottom: number;
}

const SEGMENTS = Symbol("segments");

/** A path that keeps the ends of its segments. */
class Segments {
  [SEGMENTS]: [number, number, number, number][] = [];
  private at: [number, number] = [0, 0];
  moveTo(x: number, y: number): void {
    this.at = [x, y];
  }
  lineTo(x: number, y: number): void {
    this[SEGMENTS].push([...this.at, x, y]);
    this.at = [x, y];
  }
  rect(x: number, y: number, width: number, height: number): void {
    const corners: [number, number][] = [
      [x, y],
      [x + width, y],
      [x + width, y + height],
      [x, y + height],
      [x, y],
    ];
    this.at = [x, y];
    for (const [toX, toY] of corners.slice(1)) this.lineTo(toX, toY);
  }
}

/** Labels that a line drawn after them, or without a plate of theirs above it, goes through. */
function struckOut(
  painters: readonly Painter[],
  size: { width: number; height: number },
  x: Scale["x"],
  y: Scale["y"],
) {
  const [labels, lines]: [
    { text: string; box: Rect; order: number; plated: boolean }[],
    { line: [number, number, number, number]; order: number }[],
  ] = [[], []];
  const state: Record<string, unknown> = {};
  let [order, plate]: [number, Rect | null] = [0, null];
  const rectOf = (left: number, top: number, width: number, height: number): Rect => ({
    left,
    right: left + width,
    top,
    bottom: top + height,
  });
  const actions: Record<string, (...all: never[]) => unknown> = {
    measureText: (text: string) => ({ width: 6 * text.length }),
    fillRect: (left: number, top: number, width: number, height: number) =>
      (plate = rectOf(left, top, width, height)),
    roundRect: (left: number, top: number, width: number, height: number) =>
      (plate = rectOf(left, top, width, height)),
    stroke: (path: Segments) =>
      path[SEGMENTS].forEach((line) => lines.push({ line, order: (order += 1) })),
    fillText: (text: string, place: number, at: number) => {
      const width = 6 * text.length;
      const left = state["textAlign"] === "right" ? place - width : place;
      const top = state["textBaseline"] === "top" ? at : at - 5.5;
      const box = rectOf(left, top, width, 11);
      const plated =
        plate !== null &&
        plate.left <= box.left &&
        plate.right >= box.right &&
        plate.top <= box.top &&
        plate.bottom >= box.bottom;
      labels.push({ text, box, order: (order += 1), plated });
      plate = null;
    },
  };
  const context = new Proxy(state, {
    get: (_, name) => actions[name as string] ?? (() => undefined),
  }) as unknown as CanvasRenderingContext2D;
  for (const paint of painters) paint(context, { x, y, left: 0, top: 0, ...size, ratio: 1 });
  const crosses = (
    [x0, y0, x1, y1]: readonly [number, number, number, number],
    box: Rect,
  ): boolean =>
    Array.from({ length: 401 }, (_, at) => at / 400).some((share) => {
      const [px, py] = [x0 + share * (x1 - x0), y0 + share * (y1 - y0)];
      return px > box.left && px < box.right && py > box.top && py < box.bottom;
    });
  const struck = labels.filter(({ box, order: at, plated }) =>
    lines.some(({ line, order: when }) => (when > at || !plated) && crosses(line, box)),
  );
  return { labels, struck: struck.map(({ text }) => text) };
}

describe("a label", () => {
  beforeEach(() => vi.stubGlobal("Path2D", Segments));
  const inks = { capacity: "red", background: "white" };
  const size = { width: 600, height: 400 };
  const x = (step: number): number => 6 * step;
  const y = (bytes: number): number => 400 - 4 * bytes;
  const capacity = (value: number, inside: boolean, end: "left" | "right" = "left"): Painter[] =>
    capacitiesPainter(column(0, 50, 100), column(value, value), inside, inks, end);
  const request = (from: number, part: "outline" | "label"): Painter =>
    outlinedPainter(
      { from, to: from + 1, low: 70, high: 110, label: "96 MiB requested" },
      inks,
      part,
    );

  it("of the capacity or of a failed request is struck through by no line and lies on no other, wherever the step is", () => {
    for (let step = 0; step < 100; step += 1) {
      const end = step < 50 ? "right" : "left";
      const painters = [
        ruleAcross(step, "red", []),
        request(step, "outline"),
        ...capacity(90, true, end),
        request(step, "label"),
      ];
      const { labels, struck } = struckOut(painters, size, x, y);
      expect(labels.map(({ text }) => text)).toEqual(["capacity 90 B", "96 MiB requested"]);
      expect(struck, `step ${step}`).toEqual([]);
      const [one, other] = labels.map(({ box }) => box) as [Rect, Rect];
      expect(
        one.left < other.right &&
          other.left < one.right &&
          one.top < other.bottom &&
          other.top < one.bottom,
        `step ${step}`,
      ).toBe(false);
      expect(other.right).toBeLessThanOrEqual(size.width);
    }
  });

  it("of a trend is struck through neither by its line nor by the capacity, however steep the line is", () => {
    for (const full of [21, 40, 70, 99]) {
      for (const peak of [20, 60, 85]) {
        const painters = [
          trendPainter([20, peak], [full, 90], "full by step 99", inks),
          ...capacity(90, true),
        ];
        expect(struckOut(painters, size, x, y).struck, `from ${peak}, full at ${full}`).toEqual([]);
      }
    }
  });
});
