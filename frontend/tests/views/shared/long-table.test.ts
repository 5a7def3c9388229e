// @vitest-environment happy-dom
import { describe, expect, it, vi } from "vitest";

import { arrowKeys, rowsInSight } from "../../../src/views/shared/long-table";

describe("the keys of a table", () => {
  const pressed = (
    key: string,
    selected: string | null,
    all: readonly string[] = ["a", "b", "c"],
  ) => {
    const [select, host] = [vi.fn<(stop: string) => void>(), document.createElement("div")];
    const focus = vi.spyOn(host, "focus");
    const event = new KeyboardEvent("keydown", { key, cancelable: true });
    arrowKeys({ current: host }, () => ({ all, selected }), select)(event);
    expect(focus.mock.calls.length).toBe(select.mock.calls.length);
    expect(event.defaultPrevented).toBe(select.mock.calls.length === 1);
    return select.mock.calls[0]?.[0];
  };

  it("select the next, the previous, the first and the last stop", () => {
    expect(["ArrowDown", "ArrowUp", "Home", "End"].map((key) => pressed(key, "b"))).toEqual([
      "c",
      "a",
      "a",
      "c",
    ]);
  });

  it("begin at the first stop, also if the selected one is not in the table", () => {
    for (const selected of [null, "z"]) {
      expect(["ArrowDown", "ArrowUp", "Home", "End"].map((key) => pressed(key, selected))).toEqual([
        "a",
        "a",
        "a",
        "c",
      ]);
    }
  });

  it("end at the ends, and leave other keys and an empty table to the browser", () => {
    expect(pressed("ArrowDown", "c")).toBeUndefined();
    expect(pressed("ArrowUp", "a")).toBe("a");
    expect(pressed("x", "a")).toBeUndefined();
    expect(["ArrowDown", "ArrowUp", "Home", "End"].map((key) => pressed(key, null, []))).toEqual(
      Array(4).fill(undefined),
    );
  });
});

describe("the rows in sight", () => {
  it("are few before the height is known", () => {
    expect(rowsInSight(1000, 28, 0, 0)).toEqual({ first: 0, last: 8 });
  });

  it("cover the height, with a margin on both sides", () => {
    expect(rowsInSight(1000, 28, 0, 280)).toEqual({ first: 0, last: 18 });
    expect(rowsInSight(1000, 28, 2800, 280)).toEqual({ first: 92, last: 118 });
  });

  it("end with the list", () => {
    expect(rowsInSight(5, 28, 0, 280)).toEqual({ first: 0, last: 5 });
    expect(rowsInSight(1000, 28, 28000, 280)).toEqual({ first: 992, last: 1000 });
    expect(rowsInSight(3, 28, 28000, 280)).toEqual({ first: 2, last: 3 });
    expect(rowsInSight(0, 28, 0, 280)).toEqual({ first: 0, last: 0 });
  });
});
