// @vitest-environment happy-dom
import { h, render } from "preact";
import { expect, it } from "vitest";

import type { Source } from "../../../src/api/source";
import { createStore } from "../../../src/state/store";
import { Categories } from "../../../src/views/compare/compare-table";
import { StoreContext } from "../../../src/views/shared/context";

const MIB = 2 ** 20;

it.each<[number | null, number | null, string[]]>([
  [2 * MIB, 5 * MIB, ["2.0", "5.0"]],
  [null, 5 * MIB, ["–", "5.0"]],
  [5 * MIB, null, ["5.0", "–"]],
])("peaks of %s and %s bytes stand beside each other, unknown ones as a dash", (a, b, shown) => {
  const host = document.createElement("div");
  const store = createStore({} as Source);
  render(h(StoreContext.Provider, { value: store }, h(Categories, { deltas: [], a, b })), host);
  const cells = [...host.querySelectorAll("[data-figure=peak_bytes] td")].map(
    ({ textContent }) => textContent,
  );
  expect(cells).toEqual(shown);
  render(null, host);
});
