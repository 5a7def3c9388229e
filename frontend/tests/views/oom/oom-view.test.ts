// @vitest-environment happy-dom
import { h, render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, describe, expect, it } from "vitest";

import type { MemoryMap } from "../../../src/model/memory-map";
import type { Store } from "../../../src/state/store";
import { seriesFill } from "../../../src/views/fragmentation/pool-panel";
import { Request, oomBars } from "../../../src/views/oom/oom-view";
import { StoreContext } from "../../../src/views/shared/context";
import { mapColours } from "../../../src/views/shared/memory-map/strip";
import type { Oom } from "../../../src/schema";

/** Widths in percent of what is drawn, by its figure, and of the request. */
function widths(changed: Partial<Oom>): Record<string, number> {
  const oom = { in_use_bytes: 600, free_bytes: 400, largest_free_bytes: 300, requested_bytes: 350, ...changed } as Oom;
  const store = { dark: { value: false } } as unknown as Store;
  act(() => render(h(StoreContext.Provider, { value: store }, h(Request, { oom })), document.body));
  const parts = [...document.querySelectorAll<HTMLElement>(".memory-bar i")];
  return Object.fromEntries(parts.map((part) => [part.dataset.figure ?? "request", parseFloat(part.style.width)]));
}

afterEach(() => render(null, document.body));

describe("a request beside the pool", () => {
  it("is drawn on one scale with what is in use and free", () => {
    expect(widths({})).toEqual({ in_use_bytes: 60, free_largest: 30, free_other: 10, request: 35 });
    expect(widths({ requested_bytes: 2000 })).toEqual({ in_use_bytes: 30, free_largest: 15, free_other: 5, request: 100 });
    expect(widths({ largest_free_bytes: 400 })).toEqual({ in_use_bytes: 60, free_largest: 40, request: 35 });
  });

  it("is not drawn if any of the four sizes is unknown", () => {
    for (const name of ["in_use_bytes", "free_bytes", "largest_free_bytes", "requested_bytes"] as const) {
      expect(widths({ [name]: null })).toEqual({});
    }
  });
});

const OOM = { in_use_bytes: 900, free_bytes: 120, largest_free_bytes: 40, requested_bytes: 96, ledger: [] } as unknown as Oom;
const MAP = {
  rows: 1,
  states: ["free"],
  owners: [],
  bytes: Float64Array.of(120),
  requested_bytes: Float64Array.of(NaN),
  state: Float64Array.of(0),
  owner: Float64Array.of(NaN),
  since: Float64Array.of(NaN),
} as unknown as MemoryMap;

describe.each(["light", "dark"] as const)("free memory, %s", (scheme) => {
  it("looks the same in the post-mortem, the pool over steps and the memory map", () => {
    const fills = new Map(oomBars(OOM, scheme).pool.map(({ label, fill }) => [label, fill]));
    expect(fills.get("free: largest chunk")).toEqual(seriesFill("free_largest", scheme));
    expect(fills.get("free: other chunks")).toEqual(seriesFill("free_other", scheme));
    expect(mapColours(MAP, "category", scheme).kinds[0]?.fill).toEqual({ ...seriesFill("free_largest", scheme), muted: false });
    expect(fills.get("in use")).toEqual(seriesFill("allocated_bytes", scheme));
  });
});
