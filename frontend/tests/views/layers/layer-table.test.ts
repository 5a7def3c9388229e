// @vitest-environment happy-dom
import { h, render } from "preact";
import { expect, it } from "vitest";

import type { Source } from "../../../src/api/source";
import { groupOf } from "../../../src/model/layer-figures";
import { createStore } from "../../../src/state/store";
import { LayerTable } from "../../../src/views/layers/layer-table";
import { StoreContext } from "../../../src/views/shared/context";

it.each([
  ["path", "ascending", "path"],
  ["type", "ascending", "type"],
  ["total", "descending", "number"],
] as const)("sorted by %s, its column is %s", (sort, order, kind) => {
  const host = document.createElement("div");
  const none = groupOf(null, []);
  const props = { groups: [none], totals: none, unit: "MiB" as const, total: 0, sort, onSort: () => undefined, explain: () => "" };
  render(h(StoreContext.Provider, { value: createStore({} as Source) }, h(LayerTable, props)), host);
  const sorted = [...host.querySelectorAll("th[aria-sort]")].filter((cell) => cell.getAttribute("aria-sort") !== "none");
  expect(sorted.map((cell) => [cell.getAttribute("aria-sort"), cell.className])).toEqual([[order, kind]]);
  render(null, host);
});
