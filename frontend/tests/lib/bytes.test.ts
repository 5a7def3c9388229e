import { readFileSync } from "node:fs";

import { describe, expect, it } from "vitest";

import { UNITS, formatBytes, formatDelta, formatExact, formatFigure, signedFigure, unitOf, type Unit } from "../../src/lib/bytes";

interface Golden {
  units: string[];
  cases: { bytes: number; unit: Unit | null; text: string }[];
  exact: { bytes: number; text: string }[];
}
const golden = JSON.parse(readFileSync(new URL("../../../tests/golden/bytes.json", import.meta.url), "utf8")) as Golden;

describe("formatBytes", () => {
  it.each(golden.cases)("$bytes in $unit is $text", ({ bytes, unit, text }) => {
    expect(formatBytes(bytes, unit)).toBe(text);
  });

  it("knows the golden file's units", () => {
    expect([...UNITS]).toEqual(golden.units);
  });

  it("never needs a unit above its figure", () => {
    for (let power = 0; power < 53; power += 0.37) {
      const text = formatBytes(Math.floor(2 ** power));
      expect(Number.parseFloat(text)).toBeLessThan(1024);
    }
  });
});

describe("formatExact", () => {
  it.each(golden.exact)("$bytes is $text", ({ bytes, text }) => {
    expect(formatExact(bytes)).toBe(text);
  });
});

describe("columns and deltas", () => {
  it("forces one unit", () => {
    expect(unitOf(15247133900)).toBe("GiB");
    expect(formatFigure(734003200, "GiB")).toBe("0.68");
    expect(formatFigure(-1, "GiB")).toBe(">-0.01");
  });
  it("keeps the sign of a delta", () => {
    expect(formatDelta(1536)).toBe("+1.5 KiB");
    expect(formatDelta(-1536)).toBe("−1.5 KiB");
    expect(formatDelta(0)).toBe("±0 B");
  });
  it("marks the direction of a difference in a column", () => {
    const text = (bytes: number): string => signedFigure(bytes, formatFigure(Math.abs(bytes), "MiB"));
    expect([1.5 * 2 ** 20, -3 * 2 ** 20, 16, -16, 0].map(text)).toEqual(["▲ +1.5", "▼ −3.0", "▲ <0.01", "▼ <0.01", "±0"]);
  });
});
