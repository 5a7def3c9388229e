// @vitest-environment happy-dom
import { h, render } from "preact";
import { expect, it } from "vitest";

import { Empty } from "../../../src/views/shared/states";

it("an empty directory offers to import a job that failed without the recorder", () => {
  const host = document.createElement("div");
  render(h(Empty, {}), host);
  const commands = [...host.querySelectorAll("pre")].map(({ textContent }) => textContent?.trim());
  expect(commands).toContain("tb-memplugin import training.log --logdir runs");
  render(null, host);
});
