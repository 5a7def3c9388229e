import { describe, expect, it } from "vitest";

import { codeSpans, formatDuration, formatMilliseconds, formatShare, plural, shareOf, unbroken } from "../../src/lib/format";

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
    expect(unbroken("peak 1.5 GiB (43 %) at step 3")).toBe("peak 1.5\u00a0GiB (43\u00a0%) at step 3");
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
