import { describe, expect, it } from "vitest";

import { fileName, toCsv, toJson } from "../../src/lib/table";

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
    expect(toCsv(table)).toBe('layer,bytes\r\n"a,b",1\r\n"say ""x""",\r\n\'=cmd(),\r\n,734003200\r\n');
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
    expect(fileName("memory <img src=x>/../é compare", "csv")).toBe("memory_img_src_x_.._é_compare.csv");
    expect(fileName("...", "json")).toBe("memory.json");
  });
});
