// @vitest-environment happy-dom
import { h, render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, describe, expect, it, vi } from "vitest";

import type { Range } from "../../../src/charts/axis";
import { useGestures, wheelMove } from "../../../src/views/step/use-gestures";
import { placed, wheelEvent } from "../box-cases";

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
function drawn(range: Range = [40, 60]) {
  const show = vi.fn<(range: Range, soon?: boolean) => void>();
  const zoom = { range, whole: [0, 100] as Range, moving: false, latest: () => range, show, reset: vi.fn() };
  let gestures: ReturnType<typeof useGestures> | null = null;
  const selected = vi.fn();
  const Probe = () => {
    gestures = useGestures(zoom);
    return h("div", { ref: gestures.host }, h("div", { class: "u-over", onMouseDown: selected, onClick: selected }));
  };
  act(() => render(h(Probe, {}), document.body));
  const plot = document.querySelector<HTMLElement>(".u-over");
  if (!plot || !gestures) throw new Error("no plot");
  placed(plot, 50, 200);
  const fire = (type: string, value: number, init: MouseEventInit & WheelEventInit = {}): MouseEvent => {
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
    const { show, fire } = drawn();
    expect(fire("wheel", 25, { deltaY: -100 }).defaultPrevented).toBe(true);
    const [from, to] = show.mock.lastCall?.[0] ?? [NaN, NaN];
    // A quarter of the range, at 45, stays where it is.
    expect((45 - from) / (to - from)).toBeCloseTo(0.25);
    expect(to - from).toBeCloseTo(20 * Math.exp(-0.2));
    expect(show.mock.lastCall?.[1]).toBe(true);
  });

  it("pans sideways by as much as the pointer would move", () => {
    const { show, fire } = drawn();
    fire("wheel", 25, { deltaX: 50 });
    expect(show.mock.lastCall?.[0]).toEqual([45, 65]);
    fire("wheel", 25, { deltaY: -50, shiftKey: true });
    expect(show.mock.lastCall?.[0]).toEqual([35, 55]);
  });

  it("scrolls the page while all is shown, unless it zooms in", () => {
    const { show, fire } = drawn([0, 100]);
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
    const { show, selected, fire, told } = drawn();
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
    const { show, selected, fire } = drawn();
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
    const { fire, told } = drawn();
    fire("mousedown", 50, { ctrlKey: true });
    expect(told.isSelecting()).toBe(true);
    fire("mousedown", 50, { metaKey: true });
    expect(told.isSelecting()).toBe(true);
    fire("mousedown", 50);
    expect(told.isSelecting()).toBe(false);
  });
});
