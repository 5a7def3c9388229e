// @vitest-environment happy-dom
import { h, render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, describe, expect, it, vi } from "vitest";

import type { Range } from "../../../src/charts/axis";
import { orderEdges } from "../../../src/charts/timeline-layout";
import { stackLayout } from "../../../src/charts/layout";
import { Minimap, useGestures, wheelMove } from "../../../src/views/step/minimap";
import { placed, wheelEvent } from "../box-cases";

const WHOLE: Range = [0, 100];
const LAYOUT = stackLayout(orderEdges(4), [Float64Array.from([1, 3, 2, 1])]);

/** A strip of 200 pixels that shows 40 to 60 of 100. */
function drawn(range: Range = [40, 60]) {
  const show = vi.fn<(range: Range, soon?: boolean) => void>();
  const reset = vi.fn();
  const zoom = { range, whole: WHOLE, moving: false, latest: () => range, show, reset };
  act(() =>
    render(
      h(Minimap, {
        layout: LAYOUT,
        zoom,
        box: { left: 50, top: 0, width: 200, height: 30 } as never,
        peak: 25,
        label: "40 to 60",
      }),
      document.body,
    ),
  );
  const strip = document.querySelector<HTMLElement>(".minimap");
  const box = document.querySelector<HTMLElement>(".minimap-box");
  if (!strip || !box) throw new Error("no strip");
  strip.setPointerCapture = () => undefined;
  placed(strip, 50, 200);
  const pointer = (type: string, value: number, target: Element = strip, button = 0): void => {
    act(
      () =>
        void target.dispatchEvent(
          new PointerEvent(type, { clientX: 50 + 2 * value, button, bubbles: true }),
        ),
    );
  };
  const press = (key: string, held: KeyboardEventInit = {}): void => {
    act(
      () =>
        void box.dispatchEvent(
          new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...held }),
        ),
    );
  };
  return { show, reset, strip, box, pointer, press };
}

const last = (show: ReturnType<typeof drawn>["show"]): Range | undefined => show.mock.lastCall?.[0];

afterEach(() => render(null, document.body));

describe("the strip of the whole step", () => {
  it("shows where the range and the peak are", () => {
    const { strip, box } = drawn([20, 60]);
    expect([box.style.left, box.style.width]).toEqual(["20%", "40%"]);
    expect(strip.querySelector<HTMLElement>(".minimap-peak")?.style.left).toBe("25%");
    expect(box.getAttribute("aria-valuenow")).toBe("40");
    expect(box.getAttribute("aria-valuetext")).toBe("40 to 60");
  });

  it("pans and zooms around the middle by keys", () => {
    const { show, reset, press } = drawn();
    const expected: [string, Range][] = [
      ["ArrowLeft", [35, 55]],
      ["d", [45, 65]],
      ["+", [45, 55]],
      ["-", [30, 70]],
      ["Home", [0, 20]],
      ["End", [80, 100]],
    ];
    for (const [key, range] of expected) {
      press(key);
      expect(last(show)?.map((value) => Math.round(value * 1000) / 1000)).toEqual(range);
    }
    expect(show).toHaveBeenCalledTimes(expected.length);
    press("0");
    expect(reset).toHaveBeenCalledTimes(1);
  });

  it("leaves other keys to the browser", () => {
    const { show, press } = drawn();
    press("x");
    press("+", { ctrlKey: true });
    press("-", { metaKey: true });
    press("ArrowLeft", { altKey: true });
    expect(show).not.toHaveBeenCalled();
  });

  it("comes to where it is pressed, and follows the pointer until that is lifted", () => {
    const { show, pointer } = drawn();
    pointer("pointerdown", 80);
    expect(last(show)).toEqual([70, 90]);
    pointer("pointermove", 75);
    expect(last(show)).toEqual([65, 85]);
    pointer("pointerup", 75);
    pointer("pointermove", 10);
    expect(show).toHaveBeenCalledTimes(2);
    expect(show.mock.calls.every(([, soon]) => soon === true)).toBe(true);
  });

  it("is moved by its box and resized by its edges, also over each other", () => {
    const { show, box, pointer } = drawn();
    const [from, to] = ["from", "to"].map((grip) => box.querySelector(`[data-grip=${grip}]`));
    if (!from || !to) throw new Error("no edges");
    for (const [grip, at, range] of [
      [box, 60, [50, 70]],
      [from, 45, [35, 60]],
      [to, 65, [40, 75]],
      [to, 15, [25, 40]],
    ] as [Element, number, Range][]) {
      show.mockClear();
      pointer("pointerdown", 50, grip);
      expect(show).not.toHaveBeenCalled();
      pointer("pointermove", at, grip);
      expect(last(show)).toEqual(range);
      pointer("pointercancel", at, grip);
    }
  });

  it("ignores other buttons and shows all on a double click", () => {
    const { show, reset, strip, pointer } = drawn();
    pointer("pointerdown", 80, strip, 2);
    pointer("pointermove", 90);
    expect(show).not.toHaveBeenCalled();
    act(() => void strip.dispatchEvent(new MouseEvent("dblclick", { bubbles: true })));
    expect(reset).toHaveBeenCalledTimes(1);
  });
});

describe("the wheel", () => {
  const turn = { deltaX: 0, deltaY: 100, deltaMode: 0, shiftKey: false };
  it("zooms, and pans to the side or with Shift", () => {
    expect(wheelMove(turn)).toEqual({ pan: 0, zoom: 100 });
    expect(wheelMove({ ...turn, shiftKey: true })).toEqual({ pan: 100, zoom: 0 });
    expect(wheelMove({ ...turn, deltaX: -101 })).toEqual({ pan: -101, zoom: 0 });
    expect(wheelMove({ ...turn, deltaY: 3, deltaMode: 1 })).toEqual({ pan: 0, zoom: 48 });
  });
});

/** A chart of 0 to 100 whose plot, 200 pixels wide from 50 on, shows a range. */
function gestured(range: Range = [40, 60]) {
  const show = vi.fn<(range: Range, soon?: boolean) => void>();
  const zoom = {
    range,
    whole: [0, 100] as Range,
    moving: false,
    latest: () => range,
    show,
    reset: vi.fn(),
  };
  let gestures: ReturnType<typeof useGestures> | null = null;
  const selected = vi.fn();
  const Probe = () => {
    gestures = useGestures(zoom);
    return h(
      "div",
      { ref: gestures.host },
      h("div", { class: "u-over", onMouseDown: selected, onClick: selected }),
    );
  };
  act(() => render(h(Probe, {}), document.body));
  const plot = document.querySelector<HTMLElement>(".u-over");
  if (!plot || !gestures) throw new Error("no plot");
  placed(plot, 50, 200);
  const fire = (
    type: string,
    value: number,
    init: MouseEventInit & WheelEventInit = {},
  ): MouseEvent => {
    const whole = { clientX: 50 + 2 * value, bubbles: true, cancelable: true, ...init };
    const event = type === "wheel" ? wheelEvent(whole) : new MouseEvent(type, whole);
    plot.dispatchEvent(event);
    return event;
  };
  return { show, selected, fire, told: gestures as ReturnType<typeof useGestures> };
}

afterEach(() => render(null, document.body));

describe("the wheel over the chart", () => {
  it("zooms at the pointer", () => {
    const { show, fire } = gestured();
    expect(fire("wheel", 25, { deltaY: -100 }).defaultPrevented).toBe(true);
    const [from, to] = show.mock.lastCall?.[0] ?? [NaN, NaN];
    // A quarter of the range, at 45, stays where it is.
    expect((45 - from) / (to - from)).toBeCloseTo(0.25);
    expect(to - from).toBeCloseTo(20 * Math.exp(-0.2));
    expect(show.mock.lastCall?.[1]).toBe(true);
  });

  it("pans sideways by as much as the pointer would move", () => {
    const { show, fire } = gestured();
    fire("wheel", 25, { deltaX: 50 });
    expect(show.mock.lastCall?.[0]).toEqual([45, 65]);
    fire("wheel", 25, { deltaY: -50, shiftKey: true });
    expect(show.mock.lastCall?.[0]).toEqual([35, 55]);
  });

  it("scrolls the page while all is shown, unless it zooms in", () => {
    const { show, fire } = gestured([0, 100]);
    expect(fire("wheel", 25, { deltaY: 100 }).defaultPrevented).toBe(false);
    expect(fire("wheel", 25, { deltaX: 100 }).defaultPrevented).toBe(false);
    expect(show).not.toHaveBeenCalled();
    expect(fire("wheel", 25, { deltaY: -100 }).defaultPrevented).toBe(true);
    expect(show).toHaveBeenCalledTimes(1);
  });
});

describe("a drag with Shift", () => {
  it("moves the range with the pointer and is no click", () => {
    vi.useFakeTimers();
    const { show, selected, fire, told } = gestured();
    fire("mousedown", 50, { shiftKey: true });
    expect(selected).not.toHaveBeenCalled();
    fire("mousemove", 51);
    expect([show.mock.calls.length, told.isPanning()]).toEqual([0, false]);
    fire("mousemove", 60);
    expect(show.mock.lastCall?.[0]).toEqual([38, 58]);
    expect(told.isPanning()).toBe(true);
    fire("mouseup", 60);
    fire("click", 60);
    expect([selected.mock.calls.length, told.isPanning()]).toEqual([0, false]);
    vi.runAllTimers();
    show.mockClear();
    fire("mousemove", 80);
    fire("click", 80);
    expect([show.mock.calls.length, selected.mock.calls.length]).toEqual([0, 1]);
    vi.useRealTimers();
  });

  it("without a movement is a click, and without Shift or with another button the plot's own", () => {
    const { show, selected, fire } = gestured();
    fire("mousedown", 50, { shiftKey: true });
    fire("mousemove", 51);
    fire("mouseup", 51);
    fire("click", 51);
    expect(selected).toHaveBeenCalledTimes(1);
    fire("mousedown", 50);
    fire("mousedown", 50, { shiftKey: true, button: 2 });
    expect(selected).toHaveBeenCalledTimes(3);
    fire("mousemove", 80);
    expect(show).not.toHaveBeenCalled();
  });

  it("with Ctrl selects a span", () => {
    const { fire, told } = gestured();
    fire("mousedown", 50, { ctrlKey: true });
    expect(told.isSelecting()).toBe(true);
    fire("mousedown", 50, { metaKey: true });
    expect(told.isSelecting()).toBe(true);
    fire("mousedown", 50);
    expect(told.isSelecting()).toBe(false);
  });
});
