// @vitest-environment happy-dom
import { h, render } from "preact";
import { expect, it } from "vitest";

import type { Source } from "../../../src/api/source";
import { groupOf, type LayerFigures, type SortKey } from "../../../src/model/layers";
import { plannedLayers } from "../../../src/model/what-if";
import { createStore } from "../../../src/state/store";
import { LayerTable } from "../../../src/views/layers/layer-table";
import { StoreContext } from "../../../src/views/shared/context";
import { InUnit } from "../../../src/views/shared/figures";
import { plan } from "../what-if/plan-cases";
import { CATEGORIES, type Category } from "../../../src/schema";

const MIB = 2 ** 20;
const BYTES = { weights: 4 * MIB, held_tensors: 238 * MIB, rounding: 100 };
const LAYER: LayerFigures = {
  path: "net/dense",
  type: "Dense",
  trainable: true,
  training: "trainable",
  parameters: 1,
  output_shape: null,
  output_dtype: null,
  output_bytes: null,
  recomputed: null,
  bytes: Object.fromEntries(
    CATEGORIES.map((category) => [
      category,
      (BYTES as Partial<Record<Category, number>>)[category] ?? 0,
    ]),
  ) as Record<Category, number>,
  total: 242 * MIB + 100,
  persistent: 242 * MIB,
  saved: 3 * MIB,
};
const NOT_OF_A_LAYER: LayerFigures = {
  ...LAYER,
  path: null,
  bytes: { ...LAYER.bytes, weights: 0 },
  persistent: 238 * MIB,
};

function drawn(
  layers: readonly LayerFigures[],
  sort: SortKey | null,
  isPlanned: (path: string) => boolean = () => false,
  brief = false,
  store = createStore({} as Source),
): HTMLElement {
  const host = document.createElement("div");
  const all = groupOf(null, layers);
  const props = { groups: [all], all, totals: all, brief, explain: () => "", isPlanned };
  store.choose({ sort });
  const table = h(InUnit, { value: "MiB" }, h(LayerTable, props));
  render(h(StoreContext.Provider, { value: store }, table), host);
  return host;
}

const headers = (host: HTMLElement): string[] =>
  [...host.querySelectorAll("thead th")].map(
    (cell) => cell.textContent?.trim().replace(/\s+/g, " ") ?? "",
  );

it("has a column for each category of the run, and one for those too small to read", () => {
  const host = drawn([NOT_OF_A_LAYER], "total");
  expect(headers(host)).toEqual([
    "layer",
    "type",
    "total ▼",
    "persistent",
    "saved",
    "share",
    "held tensors",
    "others",
    "parameters",
    "output",
    "output shape",
  ]);
  const cells = [...host.querySelectorAll("tbody td[data-figure]")].map((cell) => [
    cell.getAttribute("data-figure"),
    cell.textContent,
  ]);
  expect(cells).toEqual([
    ["total", "242"],
    ["persistent", "238"],
    ["saved", "3.0"],
    ["held_tensors", "238"],
    ["others", "<0.01"],
  ]);
  render(null, host);
});

it("has a bar of the categories in place of most columns, as long as the layer's bytes, a frozen layer's striped", () => {
  const half = {
    ...LAYER,
    path: "net/half",
    trainable: false,
    total: 121 * MIB,
    bytes: { ...NOT_OF_A_LAYER.bytes, held_tensors: 121 * MIB },
  };
  const host = drawn([LAYER, half], "total", undefined, true);
  expect(headers(host)).toEqual(["layer", "total ▼", "categories"]);
  const bars = [...host.querySelectorAll("tbody [role='img']")];
  expect(bars.map((bar) => bar.getAttribute("aria-label"))).toEqual([
    "weights 4.0 MiB, held tensors 238 MiB, rounding 100 B",
    "held tensors 121 MiB, rounding 100 B",
  ]);
  const parts = bars.map((bar) => [...bar.querySelectorAll<HTMLElement>("i")]);
  const widths = parts.map((own) =>
    own.reduce((sum, { style }) => sum + parseFloat(style.width), 0),
  );
  expect(widths.map((width) => Math.round(width))).toEqual([100, 50]);
  expect(
    parts.map((own) => own.map(({ dataset }) => [dataset.figure, Number(dataset.bytes)])),
  ).toEqual([
    Object.entries(BYTES),
    [
      ["held_tensors", 121 * MIB],
      ["rounding", 100],
    ],
  ]);
  expect(parts.map((own) => own[own.length - 1]?.className.includes("diagonal"))).toEqual([
    false,
    false,
  ]);
  expect(parts[1]?.[0]?.className).toBe("fill diagonal");
  // All layers together would be longer than the longest bar.
  expect(host.querySelectorAll("tfoot [role='img']").length).toBe(0);
  render(null, host);
});

it("a second click on a size goes back to the total, on a text to the model's order", () => {
  for (const [sort, label, next] of [
    ["saved", "saved", "total"],
    ["total", "saved", "saved"],
    ["path", "layer", null],
  ] as const) {
    const store = createStore({} as Source);
    const host = drawn([LAYER], sort, undefined, false, store);
    const button = [...host.querySelectorAll<HTMLElement>("thead button")].find(({ textContent }) =>
      textContent?.includes(label),
    );
    button?.click();
    expect(store.choices.value.sort).toBe(next);
    render(null, host);
  }
});

it.each([
  ["path", "ascending", "path"],
  ["type", "ascending", "type"],
  ["total", "descending", "number"],
  ["weights", "descending", "number"],
] as const)("sorted by %s, its column is %s", (sort, order, kind) => {
  const host = drawn([LAYER], sort);
  const sorted = [...host.querySelectorAll("th[aria-sort]")].filter(
    (cell) => cell.getAttribute("aria-sort") !== "none",
  );
  expect(sorted.map((cell) => [cell.getAttribute("aria-sort"), cell.className])).toEqual([
    [order, kind],
  ]);
  render(null, host);
});

it("tags layers that the step recomputes, and those that a plan would", () => {
  const paths = ["net/a", "net/a/inner", "net/ab"];
  const tags = (layers: readonly LayerFigures[]): string[] => {
    const host = drawn(layers, "total", plannedLayers({ ...plan, segments: [["a"]] }));
    const texts = [...host.querySelectorAll("tbody th")].map(
      (cell) => cell.querySelector(".tag")?.textContent?.trim() ?? "",
    );
    render(null, host);
    return texts;
  };
  const layers = paths.map((path) => ({ ...LAYER, path }));
  expect(tags([...layers, NOT_OF_A_LAYER])).toEqual([
    "recomputed by plan",
    "recomputed by plan",
    "",
    "",
  ]);
  expect(
    tags([{ ...layers[0], path: "net/other", recomputed: "resampled" } as LayerFigures]),
  ).toEqual(["recomputed"]);
});

it("names a layer by the shortest end of its path that no other has, the parent apart", () => {
  const host = drawn(
    [
      ...["net/head", "net/aux/head", "net/stem"].map((path) => ({ ...LAYER, path })),
      NOT_OF_A_LAYER,
    ],
    "path",
  );
  const names = [...host.querySelectorAll("tbody .layer-name")].map((name) =>
    [...name.children].map(({ textContent }) => textContent),
  );
  expect(names).toEqual([
    ["net/", "head"],
    ["aux/", "head"],
    ["", "stem"],
  ]);
  render(null, host);
});
