// @vitest-environment happy-dom
import { describe, expect, it, vi } from "vitest";

import { Clicks, type Undo } from "../../src/charts/clicks";

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
