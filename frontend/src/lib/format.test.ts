import { describe, expect, it } from "vitest";

import { formatDuration, formatMilliseconds, formatShare, plural, unbroken } from "./format";
import { limiter } from "./limit";
import { lowerBound, nearestIndex } from "./search";

describe("text", () => {
  it.each([
    [0, "0 %"],
    [0.0004, "<0.1 %"],
    [0.0123, "1.2 %"],
    [0.43, "43 %"],
    [0.0996, "10 %"],
    [1, "100 %"],
  ])("share %s is %s", (share, text) => {
    expect(formatShare(share)).toBe(text);
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
});

describe("search", () => {
  it("finds the nearest, the earlier of two", () => {
    expect(nearestIndex([], 3)).toBe(-1);
    expect(nearestIndex([1, 4, 8], 2.5)).toBe(0);
    expect(nearestIndex([1, 4, 8], 7)).toBe(2);
    expect(nearestIndex([1, 4, 8], 99)).toBe(2);
    expect(lowerBound([1, 4, 4, 8], 4)).toBe(1);
  });
});

describe("limiter", () => {
  it("runs no more at once than it may, and all in the end", async () => {
    const limit = limiter(2);
    let running = 0;
    let most = 0;
    const results = await Promise.all(
      Array.from({ length: 7 }, (_, index) =>
        limit(async () => {
          running += 1;
          most = Math.max(most, running);
          await Promise.resolve();
          running -= 1;
          return index;
        }),
      ),
    );
    expect(results).toEqual([0, 1, 2, 3, 4, 5, 6]);
    expect(most).toBe(2);
  });
});
