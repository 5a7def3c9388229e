// @vitest-environment happy-dom
import { h, render } from "preact";
import { act } from "preact/test-utils";
import { describe, expect, it } from "vitest";

import { FoldedRows, type FoldedRow } from "../../../src/views/shared/folded-rows";

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
  const seen = () => [...host.querySelectorAll<HTMLElement>("tr[data-row]")].filter((one) => !one.hidden).map((one) => one.dataset["row"]);
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
