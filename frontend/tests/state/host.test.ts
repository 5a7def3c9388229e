// @vitest-environment happy-dom
import { afterEach, expect, it, vi } from "vitest";

import { isVisible, readAddress, writeAddress } from "../../src/state/store";

afterEach(() => vi.unstubAllGlobals());

it("a page in a frame without height is not visible", () => {
  vi.stubGlobal("innerHeight", 1);
  expect(isVisible()).toBe(true);
  vi.stubGlobal("innerHeight", 0);
  expect(isVisible()).toBe(false);
});

it("the address is kept in TensorBoard's own, and in the document's where there is none", () => {
  const kept = new Map<string, string>();
  const tf_storage = {
    getString: (key: string) => kept.get(key) ?? "",
    setString: (key: string, text: string) => void kept.set(key, text),
  };
  vi.stubGlobal("parent", { tensorboard: { tf_storage } });
  writeAddress("view=layers");
  expect([...kept.values(), readAddress(), window.location.hash]).toEqual([
    "view=layers",
    "view=layers",
    "",
  ]);
  vi.stubGlobal("parent", window);
  writeAddress("view=step");
  expect([...kept.values(), readAddress(), window.location.hash]).toEqual([
    "view=layers",
    "view=step",
    "#view=step",
  ]);
  window.history.replaceState(null, "", window.location.pathname);
});
