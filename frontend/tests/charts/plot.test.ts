// @vitest-environment happy-dom
import { describe, expect, it, vi } from "vitest";

import { placeOf, Clicks, type Undo } from "../../src/charts/plot";
import { momentAt } from "../../src/charts/timeline-layout";

describe("the cursor", () => {
  const edges = Float64Array.of(0, 1, 1, 4, 10);
  const x = edges.subarray(0, -1);
  const rowAt = (value: number): number => momentAt(edges, value);

  it("stands where its row begins, or where the range does if the row reaches into it", () => {
    const places = (from: number) =>
      [0, 1, 2, 3].map((row) => placeOf({ x, rowAt, range: [from, 10] }, row));
    expect(places(0)).toEqual([0, 1, 1, 4]);
    expect(places(2)).toEqual([0, 1, 2, 4]);
    expect(placeOf({ x, rowAt, range: [0, 10] }, 4)).toBeNull();
  });

  it("stands at its row where rows are points", () => {
    expect(placeOf({ x, range: [2, 10] }, 2)).toBe(1);
  });
});

const at = (detail: number): MouseEvent => new MouseEvent("click", { detail });

/** A selection that clicks change. */
function selection() {
  const selected = { now: "before" };
  const select = (next: string) => (): Undo => {
    const before = selected.now;
    selected.now = next;
    return () => void (selected.now = before);
  };
  return { selected, select };
}

describe("a click", () => {
  it("acts at once, once", () => {
    const [clicks, act] = [new Clicks(), vi.fn(() => null)];
    clicks.click(at(1), act);
    expect(act).toHaveBeenCalledTimes(1);
  });

  it("acts when a keyboard or a script makes it", () => {
    const [clicks, act] = [new Clicks(), vi.fn(() => null)];
    clicks.click(at(0), act);
    expect(act).toHaveBeenCalledTimes(1);
  });
});

describe("a double-click", () => {
  it("leaves the selection as it was before its first click", () => {
    const [clicks, { selected, select }] = [new Clicks(), selection()];
    clicks.click(at(1), select("first"));
    expect(selected.now).toBe("first");
    clicks.click(at(2), select("second"));
    expect(selected.now).toBe("first");
    clicks.doubleClick();
    expect(selected.now).toBe("before");
  });

  it("undoes its own first click only", () => {
    const [clicks, { selected, select }] = [new Clicks(), selection()];
    clicks.click(at(1), select("chosen"));
    clicks.click(at(1), select("first"));
    clicks.click(at(2), select("second"));
    clicks.doubleClick();
    expect(selected.now).toBe("chosen");
    clicks.doubleClick();
    expect(selected.now).toBe("chosen");
  });

  it("undoes nothing if its first click did nothing", () => {
    const [clicks, { selected, select }] = [new Clicks(), selection()];
    clicks.click(at(1), select("chosen"));
    clicks.click(at(1), () => null);
    clicks.doubleClick();
    expect(selected.now).toBe("chosen");
  });
});
