// @vitest-environment happy-dom
import { h, render } from "preact";
import { beforeEach, expect, it } from "vitest";

import type { Source } from "../../../src/api/source";
import { createStore } from "../../../src/state/store";
import { Tabs, Toolbar } from "../../../src/views/app/toolbar";
import { StoreContext } from "../../../src/views/shared/context";
import type { RunInfo } from "../../../src/schema";

const device = (name: string, peak_bytes: number): RunInfo["devices"][0] => ({
  device: name,
  capacity_bytes: null,
  peak_bytes,
  peak_step: 0,
  snapshots: 0,
});
const RUN: RunInfo = {
  run: "a",
  version: "1",
  sessions: 1,
  workers: [""],
  steps: 100,
  first_step: 0,
  last_step: 99,
  started: 1,
  ended: null,
  recorded_until: null,
  status: "ok",
  rank: 0,
  phases: ["train"],
  devices: [device("GPU:0", 1), device("GPU:1", 2)],
  most_loaded: "GPU:1",
  activation_layers: 0,
  frozen: true,
  ooms: 0,
  findings: [],
  largest_at_failure: null,
  notes: [],
  damage: [],
};
const never = (): Promise<never> => new Promise(() => undefined);
const source = new Proxy(
  {
    runs: () => Promise.resolve({ plugin_version: "1", runs: [RUN] }),
    hostRuns: () => Promise.resolve([]),
  },
  { get: (known: Record<string, unknown>, name: string) => known[name] ?? never },
) as unknown as Source;

beforeEach(() => window.history.replaceState(null, "", "#"));

it("a device of the list is chosen, and the first entry leaves the choice to the page", async () => {
  const store = createStore(source);
  await store.reload();
  const host = document.createElement("div");
  const draw = (): void => render(h(StoreContext.Provider, { value: store }, h(Toolbar, {})), host);
  draw();
  const select = host.querySelector("select") as HTMLSelectElement;
  expect([...select.options].map(({ value }) => value)).toEqual(["", "GPU:0", "GPU:1"]);
  expect([select.value, store.device.value]).toEqual(["", "GPU:1"]);
  const choose = (value: string): void => {
    select.value = value;
    select.dispatchEvent(new Event("change", { bubbles: true }));
  };
  choose("GPU:0");
  expect([store.choices.value.device, store.device.value]).toEqual(["GPU:0", "GPU:0"]);
  choose("");
  expect([store.choices.value.device, store.device.value]).toEqual([null, "GPU:1"]);
  render(null, host);
});

it("arrow keys go from tab to tab, and the list of tabs is one stop of the Tab key", async () => {
  const store = createStore(source);
  await store.reload();
  store.choose({ view: "layers" });
  const host = document.createElement("div");
  document.body.append(host);
  render(h(StoreContext.Provider, { value: store }, h(Tabs, {})), host);
  const tabs = [...host.querySelectorAll<HTMLElement>("button")];
  expect(
    tabs.filter(({ tabIndex }) => tabIndex === 0).map(({ textContent }) => textContent),
  ).toEqual(["Layers"]);
  tabs[1]?.focus();
  const seen = ["ArrowRight", "ArrowLeft", "ArrowLeft", "ArrowLeft", "Home", "End"].map((key) => {
    document.activeElement?.dispatchEvent(
      new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }),
    );
    return document.activeElement?.textContent;
  });
  expect(seen).toEqual([
    "Frozen",
    "Layers",
    "Overview",
    tabs.at(-1)?.textContent,
    "Overview",
    tabs.at(-1)?.textContent,
  ]);
  // Moving opens nothing.
  expect(store.choices.value.view).toBe("layers");
  render(null, host);
  host.remove();
});

it("arrow keys go round the tabs, and other keys are the browser's", async () => {
  const store = createStore(source);
  await store.reload();
  const host = document.body.appendChild(document.createElement("div"));
  render(h(StoreContext.Provider, { value: store }, h(Tabs, {})), host);
  const tabs = [...host.querySelectorAll<HTMLButtonElement>("button.tab")];
  const [first, second, last] = [tabs[0], tabs[1], tabs.at(-1)];
  expect(tabs.filter(({ tabIndex }) => tabIndex === 0)).toEqual([first]);
  const press = (from: HTMLElement | undefined, key: string): KeyboardEvent => {
    const event = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true });
    from?.focus();
    from?.dispatchEvent(event);
    return event;
  };
  for (const [from, key, to] of [
    [first, "ArrowRight", second],
    [second, "ArrowLeft", first],
    [first, "ArrowLeft", last],
    [last, "ArrowRight", first],
    [second, "Home", first],
    [second, "End", last],
  ] as const) {
    expect(press(from, key).defaultPrevented).toBe(true);
    expect(document.activeElement).toBe(to);
  }
  for (const key of ["Enter", " ", "Tab", "x"])
    expect(press(second, key).defaultPrevented).toBe(false);
  expect(document.activeElement).toBe(second);
  render(null, host);
  host.remove();
});
