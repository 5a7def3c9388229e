import { expect, test } from "vitest";

import { wellFormed } from "../../src/lib/xml";

test("characters that XML does not allow are replaced, others stay", () => {
  expect(wellFormed("a\u0000b\u001b[31m\ufffe\ud800c")).toBe("a\ufffdb\ufffd[31m\ufffd\ufffdc");
  const text = '<text x="1">größe 層 😀\t\n</text>';
  expect(wellFormed(text)).toBe(text);
});
