import { expect, it } from "vitest";

import { labelLines, shortened } from "../../src/charts/label-lines";

it("breaks labels at spaces and at the separators of names", () => {
  expect(labelLines("workspace", 12, 3)).toEqual(["workspace"]);
  expect(labelLines("weights, frozen or trainable", 13, 3)).toEqual(["weights,", "frozen or", "trainable"]);
  expect(labelLines("A: 2026/vgg_run", 9, 3)).toEqual(["A: 2026/", "vgg_run"]);
});

it("never exceeds its room", () => {
  for (const label of [
    "unattributed",
    "activation gradients",
    "A: a_run_with/a-very.long name that does not fit anywhere",
    "x".repeat(60),
  ]) {
    for (const letters of [6, 9, 13]) {
      const lines = labelLines(label, letters, 3);
      expect(lines.length).toBeLessThanOrEqual(3);
      expect(lines.every((line) => line.length <= letters)).toBe(true);
    }
  }
  expect(shortened("abcdef", 4)).toBe("abc…");
});
