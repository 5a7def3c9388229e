// @vitest-environment happy-dom
import { h, render } from "preact";
import { expect, it } from "vitest";

import type { Source } from "../../../src/api/source";
import { createStore } from "../../../src/state/store";
import { StoreContext } from "../../../src/views/shared/context";
import { Segments } from "../../../src/views/what-if/plan";
import { plan } from "./plan-cases";

it.each([
  [true, false, true],
  [false, false, false],
  [true, true, false], // a report has the plan for one budget only, and no layer table of another
  [false, true, false],
])(
  "a plan that fits (%s) is marked in the layer table, except in a report (%s)",
  (fits, recordedOnly, offered) => {
    const host = document.createElement("div");
    const store = createStore({ recordedOnly } as Source);
    render(
      h(StoreContext.Provider, { value: store }, h(Segments, { plan: { ...plan, fits } })),
      host,
    );
    expect([...host.querySelectorAll("[data-segment]")]).toHaveLength(plan.segments.length);
    const texts = [...host.querySelectorAll("button")].map(({ textContent }) => textContent);
    expect(texts.includes("Show in the layer table")).toBe(offered);
    render(null, host);
  },
);
