// @vitest-environment happy-dom
import { h, render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, it, vi } from "vitest";

import type { Source } from "../../../src/api/source";
import { layerTree } from "../../../src/model/layer-tree";
import { layerFigures } from "../../../src/model/layers";
import { createStore } from "../../../src/state/store";
import { Icicle, IcicleDrawing } from "../../../src/views/layers/icicle";
import { StoreContext } from "../../../src/views/shared/context";
import type { Category, LedgerRow } from "../../../src/schema";

const row = (
  layer: string,
  category: Category,
  bytes: number,
  trainable: boolean | null = null,
): LedgerRow => ({ ...{ layer, category, bytes, trainable, rounding_bytes: null } });
const layers = layerFigures(null, [
  row("net/a", "activations", 600),
  row("net/a", "weights", 200),
  row("net/b", "weights", 200),
]);
const frozen = layers.map((layer) => ({ ...layer, trainable: layer.path !== "net/b" }));
const tree = layerTree(frozen, new Map(), "none");

let host: HTMLElement;
let store: ReturnType<typeof createStore>;
const cells = (): string[] =>
  [...host.querySelectorAll(".cell")].map((cell) => cell.getAttribute("aria-label") ?? "");
const cell = (name: string): HTMLElement =>
  host.querySelector(`.cell[aria-label^="${name} "]`) as HTMLElement;
const focused = (): string => document.activeElement?.getAttribute("aria-label") ?? "";
const press = (key: string): Promise<void> =>
  act(() => {
    document.activeElement?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  });

beforeEach(async () => {
  vi.stubGlobal(
    "ResizeObserver",
    class {
      constructor(tell: ResizeObserverCallback) {
        tell([{ contentRect: { width: 1000, height: 120 } } as ResizeObserverEntry], this as never);
      }
      observe(): void {}
      disconnect(): void {}
    },
  );
  host = document.createElement("div");
  document.body.append(host);
  store = createStore({} as Source);
  await act(() =>
    render(
      h(
        StoreContext.Provider,
        { value: store },
        h(Icicle, {
          tree,
          moment: "at the peak of step 3",
          figure: "in_use_bytes",
          source: "the trace",
        }),
      ),
      host,
    ),
  );
});
afterEach(() => {
  render(null, host);
  host.remove();
  vi.unstubAllGlobals();
});

it("shows all in use, and takes no focus by itself", () => {
  expect(cells()).toEqual([
    "net 1000 B, 100 %",
    "a 800 B, 80 %",
    "b 200 B, 20 %",
    "activations 600 B, 60 %",
    "weights 200 B, 20 %",
    "weights 200 B, 20 %",
  ]);
  expect(host.querySelector("nav")?.textContent).toBe("in use at the peak of step 3 1000 B");
  expect(document.activeElement).toBe(document.body);
  expect([...host.querySelectorAll("[tabindex='0']")]).toHaveLength(1);
});

it("a click selects the layer and zooms in, on the zoomed one out again", async () => {
  await act(() => cell("a").click());
  expect(store.choices.value.layer).toBe("net/a");
  expect(cells()).toEqual(["a 800 B, 80 %", "activations 600 B, 60 %", "weights 200 B, 20 %"]);
  expect(cell("a").getAttribute("aria-selected")).toBe("true");
  expect(host.querySelector("nav")?.textContent.trim()).toBe("in use at the peak of step 3neta");
  await act(() => cell("a").click());
  expect(cells()[0]).toBe("net 1000 B, 100 %");
  await act(() => (host.querySelector("nav button") as HTMLElement).click());
  expect(cells()[0]).toBe("net 1000 B, 100 %");
});

it("is walked with the keys; Escape zooms out, and leaves the page alone only while it does", async () => {
  const heard: string[] = [];
  const listen = (event: KeyboardEvent): void => void heard.push(event.key);
  document.addEventListener("keydown", listen);
  cell("net").focus();
  await press("ArrowDown");
  expect(focused()).toBe("a 800 B, 80 %");
  await act(() => (document.activeElement as HTMLElement).click());
  await press("ArrowDown");
  expect(focused()).toBe("activations 600 B, 60 %");
  await press("Escape");
  expect([focused(), heard]).toEqual(["net 1000 B, 100 %", []]);
  await press("Escape");
  await press("Escape");
  expect([focused(), heard]).toEqual(["net 1000 B, 100 %", ["Escape"]]);
  document.removeEventListener("keydown", listen);
});

it("frozen layers have the diagonal pattern, on the page and in the drawing", () => {
  const patterns = (name: string): string[] =>
    [...cell(name).querySelectorAll(".fill")].map(({ className }) => className);
  expect([patterns("a"), patterns("b")]).toEqual([["fill plain", "fill plain"], ["fill diagonal"]]);
  const drawn = document.createElement("div");
  render(h(IcicleDrawing, { tree, title: "t" }), drawn);
  const titles = [...drawn.querySelectorAll("g > title")].map(({ textContent }) => textContent);
  expect(titles.slice(0, 4)).toEqual([
    "in use: 1000 B",
    "net: 1000 B",
    "net/a: 800 B",
    "net/b: 200 B",
  ]);
  expect(drawn.querySelectorAll("pattern").length).toBeGreaterThan(0);
});
