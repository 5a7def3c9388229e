// @vitest-environment happy-dom
import { h, render } from "preact";
import { expect, it, afterEach, vi } from "vitest";

import { Empty, Code } from "../../../src/views/shared/states";

it("an empty directory offers to import a job that failed without the recorder", () => {
  const host = document.createElement("div");
  render(h(Empty, {}), host);
  const commands = [...host.querySelectorAll("pre")].map(({ textContent }) => textContent?.trim());
  expect(commands).toContain("tb-memplugin import training.log --logdir runs");
  render(null, host);
});

const host = document.createElement("div");

afterEach(() => {
  render(null, host);
  host.remove();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

/** What the button says after a click, with a clipboard that does this. */
async function copied(
  writeText: (text: string) => Promise<void>,
): Promise<string | null | undefined> {
  vi.stubGlobal("navigator", { clipboard: { writeText } });
  document.body.append(host);
  render(h(Code, { title: "Training", children: "model.fit(x, y)" }), host);
  const button = host.querySelector("button");
  button?.click();
  await vi.waitFor(() => expect(button?.textContent).not.toBe("Copy"));
  return button?.textContent;
}

it("a click copies the code", async () => {
  const texts: string[] = [];
  expect(await copied(async (text) => void texts.push(text))).toBe("Copied");
  expect(texts).toEqual(["model.fit(x, y)"]);
});

it("without a clipboard the code is marked, for the keys that copy it", async () => {
  expect(await copied(() => Promise.reject(new Error("no clipboard")))).toBe("Press Ctrl+C");
  expect(window.getSelection()?.toString()).toBe("model.fit(x, y)");
});
