// @vitest-environment happy-dom
import { signal } from "@preact/signals";
import { h, render } from "preact";
import { act } from "preact/test-utils";
import { expect, it } from "vitest";

import type { Source } from "../../../src/api/source";
import type { Plan, RunInfo } from "../../../src/schema";
import { createStore } from "../../../src/state/store";
import { StoreContext } from "../../../src/views/shared/context";
import { WhatIfView } from "../../../src/views/what-if/what-if-view";
import { plan } from "./plan-cases";
import { answer } from "./what-if-cases";

it("an answer for new conditions never stands beside the plan for earlier ones", async () => {
  const host = document.createElement("div");
  const loaded = <T>(value: T) => ({ value, error: null, loading: false });
  const planned = signal<{ value: Plan | null; error: null; loading: boolean }>(loaded(plan));
  const store = {
    ...createStore({ recordedOnly: true } as Source),
    whatIf: signal(loaded(answer)),
    plan: planned,
  };
  const view = h(WhatIfView, {
    run: { run: "a", devices: [], phases: ["train"] } as unknown as RunInfo,
    device: "CPU:0",
  });
  await act(() => render(h(StoreContext.Provider, { value: store }, view), host));
  const isShown = (name: string) => host.querySelector(`[data-testid="${name}"]`) !== null;
  expect([isShown("plan-verdict"), isShown("plan-search")]).toEqual([true, false]);
  await act(() => {
    planned.value = { value: null, error: null, loading: true };
  });
  expect([isShown("plan-verdict"), isShown("plan-search")]).toEqual([false, true]);
  expect(host.querySelector(".plan-below")?.getAttribute("aria-busy")).toBe("true");
  render(null, host);
});
