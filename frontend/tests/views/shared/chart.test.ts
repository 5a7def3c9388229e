// @vitest-environment happy-dom
import { h, render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import type { PlotSpec } from "../../../src/charts/plot";
import { Chart } from "../../../src/views/shared/chart";
import type { ChartProps } from "../../../src/views/shared/chart-props";
import { INKS } from "../../../src/theme/palette";
import { replace, restore } from "../../screens/harness";

const specOf = (x: Float64Array): PlotSpec => ({
  x,
  xKind: "step",
  range: [20, 60],
  yKind: "bytes",
  yMax: 100,
  headroom: 0,
  inks: INKS.light,
  painters: [],
  lanes: [],
});

/** A chart of the steps 0, 10, ... 100 that shows 20 to 60. */
function drawn(changed: Partial<ChartProps> = {}) {
  const calls = {
    onCursor: vi.fn(),
    onPin: vi.fn(),
    onZoom: vi.fn(),
    onReset: vi.fn(),
    onHover: vi.fn(),
  };
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
    const said = (changed: Partial<ChartProps>) =>
      drawn(changed).plot.getAttribute("aria-valuetext");
    expect([
      said({ cursor: 2, pin: 3, rest: 4 }),
      said({ pin: 3, rest: 4 }),
      said({ rest: 4 }),
      said({}),
    ]).toEqual(["row 2", "row 3", "row 4", "row 0"]);
  });

  it("tells when the pointer is over it and when the keyboard leaves", () => {
    const { onHover, onCursor, plot } = drawn();
    for (const type of ["pointerenter", "pointerleave"])
      act(() => void plot.dispatchEvent(new PointerEvent(type)));
    expect(onHover.mock.calls).toEqual([[true], [false]]);
    act(() => void plot.dispatchEvent(new FocusEvent("blur")));
    expect(onCursor).toHaveBeenLastCalledWith(null, null);
  });
});

describe("the handle of the selected step", () => {
  const handled = (changed: Partial<ChartProps> = {}, step = 40) => {
    const choose = vi.fn();
    const chart = drawn({
      rest: step / 10,
      handle: { step, stops: [10, 30, 50], ends: [0, 100], choose },
      ...changed,
    });
    const handle = document.querySelector<HTMLElement>(".handle");
    const key = (name: string): void => {
      const event = new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true });
      act(() => void handle?.dispatchEvent(event));
    };
    const point = (kind: string, clientX: number, button = 0): void => {
      const event = new PointerEvent(kind, { pointerId: 1, clientX, button, bubbles: true });
      act(() => void handle?.dispatchEvent(event));
    };
    if (handle) handle.setPointerCapture = vi.fn();
    const width = Number.parseFloat(
      document.querySelector<HTMLElement>(".u-over")?.style.width ?? "",
    );
    return { ...chart, choose, handle, key, point, width };
  };
  const placeOf = (handle: HTMLElement | null): number =>
    Number(/translate\(([\d.]+)px/.exec(handle?.style.transform ?? "")?.[1]);

  it("stands at its place in the range, paler at the end nearest to a step outside", () => {
    const middle = handled();
    expect(middle.handle?.getAttribute("aria-valuenow")).toBe("40");
    expect(middle.handle?.getAttribute("aria-valuetext")).toBe("row 4");
    expect(placeOf(middle.handle)).toBeCloseTo(76 + middle.width / 2);
    expect(middle.handle?.className).toBe("handle");
    const outside = handled({}, 90);
    expect(placeOf(outside.handle)).toBeCloseTo(76 + outside.width);
    expect(outside.handle?.className).toBe("handle beyond");
    expect(handled({ height: "small" }).handle).toBeNull();
  });

  it("goes to the next and the previous stop, to the first and the last by keys, and stays at the ends", () => {
    const { key, choose } = handled();
    for (const name of ["ArrowLeft", "ArrowDown", "ArrowRight", "ArrowUp", "Home", "End", "x"])
      key(name);
    expect(choose.mock.calls).toEqual([[30], [30], [50], [50], [10], [50]]);
    const last = handled({}, 60);
    last.key("ArrowRight");
    expect(last.choose).not.toHaveBeenCalled();
  });

  it("shows the row under the pointer while it is dragged, and selects it in the end", () => {
    const { point, width, onCursor, onPin, onHover } = handled({ cursor: 3 });
    point("pointermove", 76);
    expect(onCursor).not.toHaveBeenCalled();
    point("pointerdown", 76 + width / 2, 2);
    point("pointerdown", 76 + width / 2);
    expect(onHover.mock.calls).toEqual([[true]]);
    for (const share of [-1, 0, 0.26, 0.9, 2]) point("pointermove", 76 + share * width);
    expect(onCursor.mock.calls).toEqual([2, 2, 3, 6, 6].map((row) => [row, null]));
    point("pointerup", 76 + width / 4);
    expect(onPin.mock.calls).toEqual([[3]]);
    expect(onCursor).toHaveBeenLastCalledWith(null, null);
    expect(onHover).toHaveBeenLastCalledWith(false);
    point("pointerup", 76);
    expect(onPin).toHaveBeenCalledTimes(1);
  });

  it("selects nothing if the drag is cancelled or went nowhere", () => {
    for (const [end, cursor] of [
      ["pointercancel", 3],
      ["pointerup", null],
    ] as const) {
      const { point, onPin } = handled({ cursor });
      point("pointerdown", 200);
      point(end, 200);
      expect(onPin).not.toHaveBeenCalled();
    }
  });
});
