// @vitest-environment happy-dom
import { h, render } from "preact";
import { act } from "preact/test-utils";
import { expect, it } from "vitest";

import type { Source } from "../../../src/api/source";
import { createStore } from "../../../src/state/store";
import { StoreContext } from "../../../src/views/shared/context";
import { FigureRows, type BreakdownRow } from "../../../src/views/shared/figure-rows";

const MIB = 2 ** 20;
const row = (name: string, bytes: number, highest: number | null, chosen = false): BreakdownRow => ({
  name,
  label: name,
  bytes: bytes * MIB,
  highest: highest === null ? null : highest * MIB,
  chosen,
});

function drawn(rows: readonly BreakdownRow[]) {
  const host = document.createElement("table");
  const table = h("tbody", null, h(FigureRows, { rows, whole: 500 * MIB, unit: "MiB" }));
  render(h(StoreContext.Provider, { value: createStore({} as Source) }, table), host);
  const seen = () =>
    [...host.querySelectorAll<HTMLElement>("[data-figure]")].filter((one) => !one.hidden).map((one) => one.dataset["figure"]);
  return { seen, folded: () => host.querySelector(".folded-rows") };
}

it("folds rows below 1 % of the whole at every step into their sum", () => {
  const { seen, folded } = drawn([
    row("large", 300, 300),
    row("small", 4.5, 4.9),
    row("later", 0, 5),
    row("none", 0, 0),
    row("unknown", 0, null),
  ]);
  expect(seen()).toEqual(["large", "later", "unknown"]);
  expect(folded()?.textContent).toBe("2 others4.5");
  act(() => folded()?.querySelector("button")?.click());
  expect(seen()).toEqual(["large", "small", "later", "none", "unknown"]);
});

it("shows a selected row, which is no part of the sum", () => {
  const { seen, folded } = drawn([row("large", 300, 300), row("selected", 2, 2, true), row("small", 1, 1), row("tiny", 0.5, 0.5)]);
  expect(seen()).toEqual(["large", "selected"]);
  expect(folded()?.textContent).toBe("2 others1.5");
});
