// @vitest-environment happy-dom
import { h, render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import type { PlotSpec } from "../../../src/charts/plot";
import { Chart, type ChartProps } from "../../../src/views/shared/chart";
import { AXIS_INKS } from "../../../src/views/shared/frame";
import { replace, restore } from "../../screens/harness";

const specOf = (x: Float64Array): PlotSpec => ({
  x,
  xKind: "step",
  range: [20, 60],
  yKind: "bytes",
  yMax: 100,
  headroom: 0,
  inks: AXIS_INKS.light,
  painters: [],
  lanes: [],
});

/** A chart of the steps 0, 10, ... 100 that shows 20 to 60. */
function drawn(changed: Partial<ChartProps> = {}) {
  const calls = { onCursor: vi.fn(), onPin: vi.fn(), onZoom: vi.fn(), onReset: vi.fn(), onHover: vi.fn() };
  const spec = specOf(Float64Array.from({ length: 11 }, (_, row) => 10 * row));
  const props: ChartProps = {
    label: "A chart",
    spec,
    marks: [],
    cursor: null,
    pin: null,
    describe: (row) => `row ${row}`,
    ...calls,
    ...changed,
  };
  act(() => render(h(Chart, props), document.body));
  // A new plot says that nothing is under the pointer.
  for (const call of Object.values(calls)) call.mockClear();
  const plot = document.querySelector<HTMLElement>(".plot");
  if (!plot) throw new Error("no plot");
  const press = (key: string, held: KeyboardEventInit = {}): KeyboardEvent => {
    const event = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...held });
    act(() => void plot.dispatchEvent(event));
    return event;
  };
  return { ...calls, plot, press };
}

beforeEach(replace);
afterEach(() => {
  render(null, document.body);
  restore();
});

describe("the keys of a chart", () => {
  it("begin where something is selected, and end at the ends", () => {
    const { onCursor, press } = drawn({ pin: 4 });
    press("ArrowRight");
    expect(onCursor).toHaveBeenLastCalledWith(4, null);
    const moved = drawn({ cursor: 4, pin: 2 });
    const expected: [string, number, KeyboardEventInit?][] = [
      ["ArrowLeft", 3],
      ["ArrowRight", 5],
      ["ArrowRight", 10, { shiftKey: true }],
      ["ArrowLeft", 0, { shiftKey: true }],
      ["Home", 0],
      ["End", 10],
    ];
    for (const [key, row, held] of expected) {
      moved.press(key, held);
      expect(moved.onCursor).toHaveBeenLastCalledWith(row, null);
    }
    moved.press("Enter");
    moved.press(" ");
    expect(moved.onPin.mock.calls).toEqual([[4], [4]]);
  });

  it("zoom around the cursor, and show all", () => {
    const { onZoom, onReset, press } = drawn({ cursor: 3 });
    press("+");
    expect(onZoom).toHaveBeenLastCalledWith(20, 40);
    press("s");
    expect(onZoom).toHaveBeenLastCalledWith(-10, 70);
    press("0");
    expect(onReset).toHaveBeenCalledTimes(1);
  });

  it("pan by a quarter, at most to the ends of the axis, and keep the length", () => {
    const inside = drawn({ whole: [0, 200] });
    inside.press("a");
    expect(inside.onZoom).toHaveBeenLastCalledWith(10, 50);
    inside.press("d");
    expect(inside.onZoom).toHaveBeenLastCalledWith(30, 70);
    const close = drawn({ whole: [15, 63] });
    close.press("a");
    expect(close.onZoom).toHaveBeenLastCalledWith(15, 55);
    close.press("d");
    expect(close.onZoom).toHaveBeenLastCalledWith(23, 63);
    const unknown = drawn();
    unknown.press("d");
    expect(unknown.onZoom).toHaveBeenLastCalledWith(30, 70);
  });

  it("leave the browser's own shortcuts, other keys and an empty chart alone", () => {
    const { onCursor, onZoom, onReset, press } = drawn();
    const held: [string, KeyboardEventInit?][] = [
      ["ArrowLeft", { altKey: true }],
      ["0", { ctrlKey: true }],
      ["+", { metaKey: true }],
      ["x"],
    ];
    for (const [key, modifier] of held) expect(press(key, modifier).defaultPrevented).toBe(false);
    expect([onCursor, onZoom, onReset].every((call) => call.mock.calls.length === 0)).toBe(true);
    expect(press("Home").defaultPrevented).toBe(true);
    const empty = drawn({ spec: specOf(new Float64Array()) });
    expect(empty.press("Home").defaultPrevented).toBe(false);
    expect(empty.plot.getAttribute("aria-valuetext")).toBe("no data");
  });
});

describe("a chart", () => {
  it("says where the cursor is, else what is selected, else what is shown", () => {
    const said = (changed: Partial<ChartProps>) => drawn(changed).plot.getAttribute("aria-valuetext");
    expect([said({ cursor: 2, pin: 3, rest: 4 }), said({ pin: 3, rest: 4 }), said({ rest: 4 }), said({})]).toEqual([
      "row 2",
      "row 3",
      "row 4",
      "row 0",
    ]);
  });

  it("tells when the pointer is over it and when the keyboard leaves", () => {
    const { onHover, onCursor, plot } = drawn();
    for (const type of ["pointerenter", "pointerleave"]) act(() => void plot.dispatchEvent(new PointerEvent(type)));
    expect(onHover.mock.calls).toEqual([[true], [false]]);
    act(() => void plot.dispatchEvent(new FocusEvent("blur")));
    expect(onCursor).toHaveBeenLastCalledWith(null, null);
  });
});
