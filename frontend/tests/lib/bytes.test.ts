import { readFileSync } from "node:fs";
import { describe, expect, it, test } from "vitest";

import {
  UNITS,
  formatBytes,
  formatDelta,
  formatExact,
  formatFigure,
  signedFigure,
  unitOf,
  codeSpans,
  formatDuration,
  formatMilliseconds,
  formatShare,
  plural,
  shareOf,
  unbroken,
  fileName,
  toCsv,
  toJson,
  wellFormed,
  type Unit,
} from "../../src/lib/bytes";

interface Golden {
  units: string[];
  cases: { bytes: number; unit: Unit | null; text: string }[];
  exact: { bytes: number; text: string }[];
}
const golden = JSON.parse(
  readFileSync(new URL("../../../tests/golden/bytes.json", import.meta.url), "utf8"),
) as Golden;

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
    const text = (bytes: number): string =>
      signedFigure(bytes, formatFigure(Math.abs(bytes), "MiB"));
    expect([1.5 * 2 ** 20, -3 * 2 ** 20, 16, -16, 0].map(text)).toEqual([
      "▲ +1.5",
      "▼ −3.0",
      "▲ <0.01",
      "▼ <0.01",
      "±0",
    ]);
  });
});

describe("text", () => {
  it.each([
    [0, "0 %"],
    [0.0004, "<0.1 %"],
    [0.0005, "0.1 %"],
    [0.0123, "1.2 %"],
    [0.43, "43 %"],
    [0.0996, "10 %"],
    [1, "100 %"],
  ])("share %s is %s", (share, text) => {
    expect(formatShare(share)).toBe(text);
  });

  it("a share of something unknown or of nothing is unknown", () => {
    expect([shareOf(1, 4), shareOf(0, 4)]).toEqual([0.25, 0]);
    expect([shareOf(null, 4), shareOf(1, null), shareOf(1, 0)]).toEqual([null, null, null]);
  });

  it.each([
    [0, "0 s"],
    [1.54, "1.5 s"],
    [59.7, "1 m 00 s"],
    [200, "3 m 20 s"],
    [7500, "2 h 05 m"],
    [273600, "3 d 4 h"],
    [-3, "-3 s"],
  ])("%s seconds are %s", (seconds, text) => {
    expect(formatDuration(seconds)).toBe(text);
  });

  it.each([
    [0, "0 ms"],
    [0.0004, "0.4 µs"],
    [0.85, "850 µs"],
    [12.345, "12.3 ms"],
    [999, "999 ms"],
    [1250, "1.25 s"],
  ])("%s milliseconds are %s", (milliseconds, text) => {
    expect(formatMilliseconds(milliseconds)).toBe(text);
  });

  it("counts and keeps figures together", () => {
    expect(plural(1, "step")).toBe("1 step");
    expect(plural(0, "layer")).toBe("0 layers");
    expect(unbroken("peak 1.5 GiB (43 %) at step 3")).toBe(
      "peak 1.5\u00a0GiB (43\u00a0%) at step 3",
    );
  });

  it.each([
    ["no code", [["no code", false]]],
    [
      "put `import a` above `b`",
      [
        ["put ", false],
        ["import a", true],
        [" above ", false],
        ["b", true],
      ],
    ],
    [
      "`<img src=x>` stays text",
      [
        ["<img src=x>", true],
        [" stays text", false],
      ],
    ],
    ["one ` alone", [["one ` alone", false]]],
    ["`` nothing inside", [["`` nothing inside", false]]],
    ["", []],
  ] as [string, [string, boolean][]][])("code spans of %j", (sentence, parts) => {
    expect(codeSpans(sentence).map(({ text, code }) => [text, code])).toEqual(parts);
  });
});

describe("files", () => {
  const table = {
    columns: ["layer", "bytes"],
    rows: [
      ["a,b", 1],
      ['say "x"', null],
      ["=cmd()", NaN],
      [null, 734003200],
    ],
  };

  it("are CSV whose texts no spreadsheet takes for formulas", () => {
    expect(toCsv(table)).toBe(
      'layer,bytes\r\n"a,b",1\r\n"say ""x""",\r\n\'=cmd(),\r\n,734003200\r\n',
    );
  });

  it("are JSON without NaN", () => {
    expect(JSON.parse(toJson(table))).toEqual([
      { layer: "a,b", bytes: 1 },
      { layer: 'say "x"', bytes: null },
      { layer: "=cmd()", bytes: null },
      { layer: null, bytes: 734003200 },
    ]);
  });

  it("have names that every file system takes", () => {
    expect(fileName("memory <img src=x>/../é compare", "csv")).toBe(
      "memory_img_src_x_.._é_compare.csv",
    );
    expect(fileName("...", "json")).toBe("memory.json");
  });
});

test("characters that XML does not allow are replaced, others stay", () => {
  expect(wellFormed("a\u0000b\u001b[31m\ufffe\ud800c")).toBe("a\ufffdb\ufffd[31m\ufffd\ufffdc");
  const text = '<text x="1">größe 層 😀\t\n</text>';
  expect(wellFormed(text)).toBe(text);
});
