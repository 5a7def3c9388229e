// @vitest-environment happy-dom
import { h, render } from "preact";
import { act } from "preact/test-utils";
import { expect, it, describe } from "vitest";

import type { Source } from "../../../src/api/source";
import { createStore } from "../../../src/state/store";
import { StoreContext } from "../../../src/views/shared/context";
import {
  FigureRows,
  FoldedRows,
  InUnit,
  type BreakdownRow,
  type FoldedRow,
} from "../../../src/views/shared/figures";

const MIB = 2 ** 20;
const figureRow = (
  name: string,
  bytes: number,
  highest: number | null,
  chosen = false,
): BreakdownRow => ({
  fill: { colour: "#000", pattern: "plain" },
  name,
  label: name,
  bytes: bytes * MIB,
  highest: highest === null ? null : highest * MIB,
  chosen,
});

function drawnFigures(rows: readonly BreakdownRow[]) {
  const host = document.createElement("table");
  const table = h(
    "tbody",
    null,
    h(InUnit, { value: "MiB" }, h(FigureRows, { rows, whole: 500 * MIB })),
  );
  render(h(StoreContext.Provider, { value: createStore({} as Source) }, table), host);
  const seen = () =>
    [...host.querySelectorAll<HTMLElement>("[data-figure]")]
      .filter((one) => !one.hidden)
      .map((one) => one.dataset["figure"]);
  return { seen, folded: () => host.querySelector(".folded-rows") };
}

it("folds rows below 1 % of the whole at every step into their sum", () => {
  const { seen, folded } = drawnFigures([
    figureRow("large", 300, 300),
    figureRow("small", 4.5, 4.9),
    figureRow("later", 0, 5),
    figureRow("none", 0, 0),
    figureRow("tiny", 0.5, 0.5),
    figureRow("unknown", 0, null),
  ]);
  expect(seen()).toEqual(["large", "later", "unknown"]);
  expect(folded()?.textContent, "one that is nowhere is no row").toBe("2 others5.0");
  act(() => folded()?.querySelector("button")?.click());
  expect(seen()).toEqual(["large", "small", "later", "tiny", "unknown"]);
});

it("keeps the colour and name, without a row, of what the selected step has nothing of", () => {
  const absent = { ...figureRow("unattributed", 0, 50), selected: 0 };
  const { seen, folded } = drawnFigures([
    absent,
    { ...figureRow("large", 300, 300), selected: 300 * MIB },
  ]);
  expect([seen(), folded()?.textContent]).toEqual([["large"], "unattributed"]);
  // While the pointer is at another step, its bytes are in the sum, and no row moves.
  const pointed = drawnFigures([
    { ...absent, bytes: 40 * MIB, focused: true },
    figureRow("large", 300, 300),
    figureRow("small", 2, 2),
  ]);
  expect([pointed.seen(), pointed.folded()?.textContent]).toEqual([
    ["large"],
    "unattributed+ 1 other42.0",
  ]);
  expect(pointed.folded()?.querySelector(".focused")?.textContent).toBe("unattributed");
  expect(drawnFigures([{ ...absent, chosen: true }]).seen()).toEqual(["unattributed"]);
});

it("shows a selected row, which is no part of the sum", () => {
  const { seen, folded } = drawnFigures([
    figureRow("large", 300, 300),
    figureRow("selected", 2, 2, true),
    figureRow("small", 1, 1),
    figureRow("tiny", 0.5, 0.5),
  ]);
  expect(seen()).toEqual(["large", "selected"]);
  expect(folded()?.textContent).toBe("2 others1.5");
});

const row = (key: string, quiet: boolean, chosen = false): FoldedRow => ({
  key,
  quiet,
  chosen,
  row: (hidden) => h("tr", { key, hidden, "data-row": key }),
});

function drawn(rows: readonly FoldedRow[], sums?: string) {
  const host = document.createElement("table");
  const cell = sums === undefined ? undefined : h("td", { class: "sums" }, sums);
  render(h("tbody", null, h(FoldedRows, { rows, columns: 3, sums: cell })), host);
  const seen = () =>
    [...host.querySelectorAll<HTMLElement>("tr[data-row]")]
      .filter((one) => !one.hidden)
      .map((one) => one.dataset["row"]);
  return { host, seen, button: () => host.querySelector("button") };
}

describe("rows that matter little", () => {
  const rows = [row("a", false), row("zero", true), row("b", false), row("tiny", true)];

  it("are one row until it is opened, in their places then", () => {
    const { seen, button } = drawn(rows);
    expect([seen(), button()?.textContent]).toEqual([["a", "b"], "2 others"]);
    act(() => button()?.click());
    expect([seen(), button()?.textContent]).toEqual([["a", "zero", "b", "tiny"], "Show fewer"]);
  });

  it("are shown where there is one alone, or where one is selected", () => {
    expect(drawn(rows.slice(0, 3)).seen()).toEqual(["a", "zero", "b"]);
    const { seen, button } = drawn([...rows, row("chosen", true, true)]);
    expect([seen(), button()?.textContent]).toEqual([["a", "b", "chosen"], "2 others"]);
  });

  it("have their sums beside their number", () => {
    const { host, button } = drawn(rows, "0.5");
    expect(host.querySelector(".sums")?.textContent).toBe("0.5");
    act(() => button()?.click());
    expect(host.querySelector(".sums")).toBeNull();
  });
});
