// @vitest-environment happy-dom
import { h, render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, describe, expect, it, vi } from "vitest";

import type { MemoryMap } from "../../../../src/model/memory-map";
import { DEFAULTS, type Choices } from "../../../../src/state/address";
import type { Store } from "../../../../src/state/store";
import { StoreContext } from "../../../../src/views/shared/context";
import { type MapColours, Strip } from "../../../../src/views/shared/memory-map/strip";
import { placed, wheelEvent } from "../../box-cases";

const BASE = 1 << 20;
/** A region of 8 KiB with chunks of 1, 1, 2 and 4 KiB, behind another region of one chunk. */
const MAP = {
  rows: 5,
  states: ["free", "in_use"],
  sources: [],
  owners: [],
  regions: [
    { address: 0, bytes: 4096 },
    { address: BASE, bytes: 8192 },
  ],
  address: Float64Array.from([0, BASE, BASE + 1024, BASE + 2048, BASE + 4096]),
  bytes: Float64Array.from([4096, 1024, 1024, 2048, 4096]),
  requested_bytes: new Float64Array(5).fill(NaN),
  state: Float64Array.from([1, 1, 0, 1, 0]),
  owner: new Float64Array(5).fill(NaN),
  source: new Float64Array(5),
  since: new Float64Array(5).fill(NaN),
  region: Float64Array.from([0, 1, 1, 1, 1]),
} as unknown as MemoryMap;
const COLOURS: MapColours = { key: new Uint16Array(5), kinds: [] };

type Zoom = readonly [number, number];

/** The strip of the second region, 800 pixels wide; `zooms` are those of all regions. */
function drawn(marked: number | null = null, zooms: Zoom[] = []) {
  const onMark = vi.fn<(chunk: number | null) => void>();
  const choose = vi.fn<(choices: Partial<Choices>) => void>();
  const choices = { ...DEFAULTS, mapZooms: zooms } as Choices;
  const store = { choices: { value: choices, peek: () => choices }, choose };
  const props = {
    map: MAP,
    colours: COLOURS,
    index: 1,
    first: 1,
    end: 5,
    most: 8192,
    marked,
    onMark,
    request: null,
  };
  act(() =>
    render(
      h(StoreContext.Provider, { value: store as unknown as Store }, h(Strip, props)),
      document.body,
    ),
  );
  const plot = document.querySelector<HTMLElement>(".strip-plot");
  if (!plot) throw new Error("no strip");
  placed(plot, 100, 800);
  const press = (key: string, held: KeyboardEventInit = {}): void => {
    act(
      () =>
        void plot.dispatchEvent(
          new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...held }),
        ),
    );
  };
  const point = (type: string, share: number): void => {
    act(
      () =>
        void plot.dispatchEvent(
          new PointerEvent(type, { clientX: 100 + 800 * share, bubbles: true }),
        ),
    );
  };
  const wheel = (share: number, init: WheelEventInit): MouseEvent => {
    const event = wheelEvent({ clientX: 100 + 800 * share, ...init });
    act(() => void plot.dispatchEvent(event));
    return event;
  };
  /** The region's zoom from its begin, after the latest choice. */
  const zoom = (): Zoom[] | undefined =>
    choose.mock.lastCall?.[0].mapZooms?.map(([from, to]) => [from - BASE, to - BASE] as const);
  return { onMark, choose, plot, press, point, wheel, zoom };
}

afterEach(() => render(null, document.body));

describe("the keys of a region", () => {
  it("move from chunk to chunk, at most to its ends", () => {
    const fresh = drawn();
    fresh.press("ArrowRight");
    expect(fresh.onMark).toHaveBeenLastCalledWith(1);
    const { onMark, press } = drawn(2);
    const expected: [string, number, KeyboardEventInit?][] = [
      ["ArrowLeft", 1],
      ["ArrowRight", 3],
      ["ArrowRight", 4, { shiftKey: true }],
      ["ArrowLeft", 1, { shiftKey: true }],
      ["Home", 1],
      ["End", 4],
    ];
    for (const [key, chunk, held] of expected) {
      press(key, held);
      expect(onMark).toHaveBeenLastCalledWith(chunk);
    }
    // A chunk of another region is no place to begin.
    const elsewhere = drawn(0);
    elsewhere.press("ArrowRight");
    expect(elsewhere.onMark).toHaveBeenLastCalledWith(1);
  });

  it("zoom around the chunk, and to it", () => {
    const { press, zoom, choose } = drawn(3);
    press("+");
    // Its middle, at 3 KiB, stays where it is.
    expect(zoom()).toEqual([[1536, 5632]]);
    press("Enter");
    expect(zoom()).toEqual([[1792, 4352]]);
    press("-");
    expect(zoom()).toEqual([]);
    press("0");
    expect(zoom()).toEqual([]);
    choose.mockClear();
    press("+", { ctrlKey: true });
    press("x");
    expect(choose).not.toHaveBeenCalled();
  });

  it("pan a zoomed region and bring a chunk into sight, beside the zooms of other regions", () => {
    const { press, zoom } = drawn(4, [
      [0, 512],
      [BASE + 4096, BASE + 6144],
    ]);
    press("a");
    expect(zoom()).toEqual([
      [-BASE, 512 - BASE],
      [3584, 5632],
    ]);
    press("Home");
    expect(zoom()?.[1]).toEqual([0, 2048]);
  });
});

describe("the pointer over a region", () => {
  it("marks the chunk that it is over, and none when it leaves", () => {
    const { onMark, point } = drawn();
    for (const [share, chunk] of [
      [0.05, 1],
      [0.2, 2],
      [0.3, 3],
      [0.9, 4],
      [1.2, 4],
    ] as const) {
      point("pointermove", share);
      expect(onMark).toHaveBeenLastCalledWith(chunk);
    }
    point("pointerleave", 0);
    expect(onMark).toHaveBeenLastCalledWith(null);
  });

  it("zooms to what is dragged open, from either end, and not upon a click", () => {
    const { point, zoom, choose, plot } = drawn();
    point("pointerdown", 0.75);
    point("pointermove", 0.25);
    expect(plot.querySelector<HTMLElement>(".strip-drag")?.style.left).toBe("25%");
    point("pointerup", 0.25);
    expect(zoom()).toEqual([[2048, 6144]]);
    expect(plot.querySelector(".strip-drag")).toBeNull();
    choose.mockClear();
    point("pointerdown", 0.5);
    point("pointerup", 0.501);
    point("pointerup", 0.9);
    expect(choose).not.toHaveBeenCalled();
  });

  it("zooms by the wheel with Ctrl, pans sideways, and lets the page scroll otherwise", () => {
    const { wheel, zoom, choose } = drawn(null, [[BASE + 2048, BASE + 4096]]);
    expect(wheel(0.5, { deltaY: 100 }).defaultPrevented).toBe(false);
    expect(choose).not.toHaveBeenCalled();
    expect(wheel(0, { deltaY: -100, ctrlKey: true }).defaultPrevented).toBe(true);
    expect(zoom()).toEqual([[2048, 2048 + 0.8 * 2048].map(Math.round)]);
    wheel(0, { deltaY: 100, ctrlKey: true });
    expect(zoom()).toEqual([[2048, 2048 + 1.25 * 2048]]);
    wheel(0, { deltaX: 300, deltaY: 10 });
    expect(zoom()).toEqual([[3072, 5120]]);
  });
});

describe("a region", () => {
  it("says what it is and which chunk is marked", () => {
    const { plot } = drawn(2);
    expect(plot.getAttribute("aria-label")).toBe("Region 2, 8.0 KiB, 4 chunks");
    expect([plot.getAttribute("aria-valuenow"), plot.getAttribute("aria-valuemax")]).toEqual([
      "1",
      "3",
    ]);
    expect(plot.getAttribute("aria-valuetext")).toMatch(/^free, 1\.0 KiB/);
    expect(drawn().plot.getAttribute("aria-valuetext")).toBe("no chunk selected");
  });

  it("is shown over the full width and at the scale of all by its button", () => {
    const button = (): HTMLButtonElement =>
      document.querySelector(".strip-label button") as HTMLButtonElement;
    const plain = drawn();
    act(() => button().click());
    expect(plain.zoom()).toEqual([[0, 8192]]);
    const zoomed = drawn(null, [[BASE, BASE + 4096]]);
    expect(button().getAttribute("aria-pressed")).toBe("true");
    expect(document.querySelector(".strip-label .small")?.textContent).toBe("4.0 KiB shown");
    act(() => button().click());
    expect(zoomed.zoom()).toEqual([]);
  });
});
