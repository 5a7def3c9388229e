// @vitest-environment happy-dom
import { afterEach, expect, it, vi } from "vitest";

import { isVisible } from "../../src/state/host";

afterEach(() => vi.unstubAllGlobals());

it("a page in a frame without height is not visible", () => {
  vi.stubGlobal("innerHeight", 1);
  expect(isVisible()).toBe(true);
  vi.stubGlobal("innerHeight", 0);
  expect(isVisible()).toBe(false);
});
