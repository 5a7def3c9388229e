import { describe, expect, it } from "vitest";

import { CATEGORIES } from "../../src/model/categories";
import { CATEGORY_COLOURS, INKS, fillOf, runColour, runDash, sequence, type Scheme } from "../../src/theme/palette";

type Triple = [number, number, number];

const parse = (hex: string): Triple => [1, 3, 5].map((start) => Number.parseInt(hex.slice(start, start + 2), 16) / 255) as Triple;
const linear = (rgb: Triple): Triple => rgb.map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)) as Triple;
const times = (matrix: number[][], v: Triple): Triple =>
  matrix.map((row) => row.reduce((sum, factor, index) => sum + factor * (v[index] as number), 0)) as Triple;

// Machado, Oliveira, Fernandes (2009), severity 1, on linear RGB.
const SIGHT: Record<string, number[][]> = {
  normal: [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  protanopia: [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  deuteranopia: [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  tritanopia: [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
  ],
};

function lab(hex: string, matrix: number[][]): Triple {
  const seen = times(matrix, linear(parse(hex))).map((c) => Math.min(Math.max(c, 0), 1)) as Triple;
  const [x, y, z] = times(
    [
      [0.4124, 0.3576, 0.1805],
      [0.2126, 0.7152, 0.0722],
      [0.0193, 0.1192, 0.9505],
    ],
    seen,
  );
  const f = (t: number): number => (t > 216 / 24389 ? Math.cbrt(t) : (24389 / 27 / 116) * t + 16 / 116);
  const [fx, fy, fz] = [f(x / 0.95047), f(y), f(z / 1.08883)];
  return [116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)];
}

const difference = (a: string, b: string, matrix: number[][]): number => {
  const [p, q] = [lab(a, matrix), lab(b, matrix)];
  return Math.hypot(p[0] - q[0], p[1] - q[1], p[2] - q[2]);
};

const luminance = (hex: string): number => {
  const [r, g, b] = linear(parse(hex));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (a: string, b: string): number => {
  const [high, low] = [Math.max(luminance(a), luminance(b)), Math.min(luminance(a), luminance(b))];
  return (high + 0.05) / (low + 0.05);
};

describe.each<Scheme>(["light", "dark"])("%s", (scheme) => {
  const colours = CATEGORY_COLOURS[scheme];

  it.each(Object.keys(SIGHT))("neighbours in the stack differ with %s sight", (sight) => {
    for (let index = 1; index < CATEGORIES.length; index += 1) {
      const [below, above] = [CATEGORIES[index - 1], CATEGORIES[index]] as const;
      if (!below || !above) throw new Error("no neighbours");
      const delta = difference(colours[below], colours[above], SIGHT[sight] as number[][]);
      expect(delta, `${below} and ${above}`).toBeGreaterThan(18);
    }
  });

  it.each(Object.keys(SIGHT))("any two categories differ with %s sight", (sight) => {
    for (const a of CATEGORIES) {
      for (const b of CATEGORIES) {
        if (a >= b) continue;
        // Unattributed is hatched as well, so its colour carries less.
        const least = a === "unattributed" || b === "unattributed" ? 5 : 9;
        expect(difference(colours[a], colours[b], SIGHT[sight] as number[][]), `${a} and ${b}`).toBeGreaterThan(least);
      }
    }
  });

  it("rounding is dotted and unattributed hatched, frozen or not", () => {
    expect(fillOf("rounding", false, scheme).pattern).toBe("dotted");
    expect(fillOf("unattributed", null, scheme).pattern).toBe("hatched");
    expect(fillOf("held_tensors", null, scheme).pattern).toBe("plain");
  });

  it("marks stand out from the background", () => {
    const minimum = Math.min(...CATEGORIES.map((category) => contrast(colours[category], INKS[scheme].background)));
    expect(minimum).toBeGreaterThanOrEqual(3);
  });

  it("shades in sequence get lighter, every other one, and none is black or white", () => {
    const lightness = sequence(12, scheme).map((colour) => Number(/ (\d+)%\)$/.exec(colour)?.[1]));
    for (const [index, value] of lightness.entries()) if (index >= 2) expect(value).toBeGreaterThan(lightness[index - 2] ?? NaN);
    expect(Math.min(...lightness)).toBeGreaterThan(20);
    expect(Math.max(...lightness)).toBeLessThan(90);
    expect(sequence(1, scheme)).toEqual([sequence(12, scheme)[0]]);
  });

  it("text is readable on both surfaces", () => {
    const { text, faint, accent, capacity, background, panel } = INKS[scheme];
    for (const ink of [text, faint, accent, capacity]) {
      for (const surface of [background, panel]) expect(contrast(ink, surface), `${ink} on ${surface}`).toBeGreaterThanOrEqual(4.5);
    }
  });
});

describe("run colours", () => {
  it("are those of the Time Series tab and wrap with dashes", () => {
    expect(runColour(0, "light")).toBe("#425066");
    expect(runColour(0, "dark")).toBe("#8e98a3");
    expect(runColour(8, "light")).toBe(runColour(1, "light"));
    expect(runDash(1)).toEqual([]);
    expect(runDash(8)).toEqual([6, 3]);
  });
});
