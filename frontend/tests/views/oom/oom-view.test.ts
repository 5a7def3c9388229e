// @vitest-environment happy-dom
import { h, render } from "preact";
import { act } from "preact/test-utils";
import { afterAll, afterEach, beforeEach, describe, expect, it } from "vitest";

import type { MemoryMap } from "../../../src/model/memory-map";
import type { Store } from "../../../src/state/store";
import { dark } from "../../../src/theme/palette";
import { seriesFill } from "../../../src/views/fragmentation/pool-panel";
import { oomBars, requestBar } from "../../../src/views/oom/oom-view";
import { StoreContext } from "../../../src/views/shared/context";
import { PossibleFixes } from "../../../src/views/shared/fixes";
import { mapColours } from "../../../src/views/shared/memory-map/strip";
import type { Oom, RunInfo } from "../../../src/schema";

const SIZES = {
  in_use_bytes: 600,
  free_bytes: 400,
  largest_free_bytes: 300,
  requested_bytes: 350,
  capacity_bytes: 1000,
};
const UNCHANGED = { peak_bytes: 1200, low_bytes: 1100, high_bytes: 1300 };
const FIX = {
  kind: "batch",
  change: "Batch size 4",
  sentence: "",
  enough: true,
  peak_bytes: 700,
  low_bytes: 650,
  high_bytes: 800,
};
const LIMIT = {
  ...FIX,
  kind: "limit",
  capacity_bytes: 1500,
  peak_bytes: 1200,
  low_bytes: 1100,
  high_bytes: 1300,
};

/** Place and width in bytes of what is drawn, by row, and where the capacity is. */
function drawn(
  changed: Partial<Oom>,
  fixes: object[] = [FIX, LIMIT],
  unchanged: object | null = UNCHANGED,
) {
  const oom = { ledger: [], ...SIZES, ...changed } as unknown as Oom;
  const value = {
    fixes: fixes.map((fix) => ({
      batch_size: null,
      capacity_bytes: null,
      freeze: null,
      code: null,
      ...fix,
    })),
    note: null,
    unchanged,
  };
  const fetched = {
    want: () => undefined,
    identity: () => "",
    read: () => ({ value, error: null, loading: false }),
  };
  const store = {
    recordedOnly: true,
    dark: { value: false },
    fetched: { fixes: fetched },
  } as unknown as Store;
  const run = { run: "r" } as RunInfo;
  const view = h(PossibleFixes, { run, oom, index: 0, request: requestBar(oom) });
  act(() => render(h(StoreContext.Provider, { value: store }, view), document.body));
  const bars = document.querySelector<HTMLElement>(".bars");
  const limits = (fixes as { capacity_bytes?: number }[]).map(
    ({ capacity_bytes: limit }) => limit ?? 0,
  );
  const most = 1.02 * Math.max(1300, 1000, 950, ...limits);
  const bytes = (text: string | undefined): number =>
    Math.round((parseFloat(text || "0") / 100) * most);
  const rows = [...document.querySelectorAll(".bars li:not(.limits)")].map((row) =>
    [...row.querySelectorAll<HTMLElement>(".track i")].map((part) => [
      part.dataset.figure ?? part.className,
      bytes(part.style.left),
      bytes(part.style.width),
    ]),
  );
  const named = [...document.querySelectorAll<HTMLElement>(".limit")].map((one) => [
    one.textContent,
    bytes(one.style.width),
  ]);
  return { rows, named, capacity: bytes(bars?.style.getPropertyValue("--capacity")) };
}

afterEach(() => render(null, document.body));

describe("a failure and its fixes", () => {
  it("are drawn on one scale, the request on top of what is in use", () => {
    const { rows, named, capacity } = drawn({});
    expect(capacity).toBe(1000);
    expect(named, "also the capacity that is a fix").toEqual([
      ["capacity 1000 B", 1000],
      ["1.5 KiB", 1500],
    ]);
    expect(rows).toEqual([
      [
        ["in_use_bytes", 0, 600],
        ["free_largest", 0, 300],
        ["free_other", 0, 100],
        ["asked", 600, 350],
      ],
      [
        ["peak", 0, 1200],
        ["range", 1100, 200],
      ],
      [
        ["peak", 0, 700],
        ["range", 650, 150],
      ],
      [
        ["peak", 0, 1200],
        ["range", 1100, 200],
        ["limit own", 0, 1500],
      ],
    ]);
  });

  it("shows an estimate as its range, and no failure whose request is unknown", () => {
    const estimate = { ...FIX, kind: "precision", enough: null, peak_bytes: null };
    const { rows } = drawn({ requested_bytes: null }, [estimate]);
    expect(rows).toEqual([
      [
        ["peak", 0, 1200],
        ["range", 1100, 200],
      ],
      [["range", 650, 150]],
    ]);
    expect(drawn({ in_use_bytes: null }, [], null).rows).toEqual([]);
  });

  it("names the categories of what is in use if they have all of it", () => {
    const row = {
      layer: "a",
      category: "weights",
      trainable: true,
      bytes: 600,
      rounding_bytes: 0,
    } as const;
    expect(drawn({ ledger: [row] }).rows[0]?.[0]).toEqual(["weights", 0, 600]);
    expect(drawn({ ledger: [{ ...row, bytes: 500 }] }).rows[0]?.[0]).toEqual([
      "in_use_bytes",
      0,
      600,
    ]);
  });
});

const OOM = {
  in_use_bytes: 900,
  free_bytes: 120,
  largest_free_bytes: 40,
  requested_bytes: 96,
  ledger: [],
} as unknown as Oom;
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

describe.each([false, true])("free memory, dark: %s", (isDark) => {
  beforeEach(() => void (dark.value = isDark));
  afterAll(() => void (dark.value = false));
  it("looks the same in the post-mortem, the pool over steps and the memory map", () => {
    const fills = new Map(oomBars(OOM).pool.map(({ label, fill }) => [label, fill]));
    expect(fills.get("free: largest chunk")).toEqual(seriesFill("free_largest"));
    expect(fills.get("free: other chunks")).toEqual(seriesFill("free_other"));
    expect(mapColours(MAP, "category").kinds[0]?.fill).toEqual({
      ...seriesFill("free_largest"),
      muted: false,
    });
    expect(fills.get("in use")).toEqual(seriesFill("allocated_bytes"));
  });
});
