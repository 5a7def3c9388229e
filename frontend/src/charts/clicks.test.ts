// @vitest-environment happy-dom
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { Clicks } from "./clicks";

const at = (x: number, detail = 1): MouseEvent => new MouseEvent("click", { clientX: x, clientY: 10, detail });

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

describe("a click", () => {
  it("acts after a while, once", () => {
    const [clicks, act] = [new Clicks(), vi.fn()];
    clicks.click(at(5), act);
    expect(act).not.toHaveBeenCalled();
    vi.advanceTimersByTime(1000);
    clicks.settle();
    expect(act).toHaveBeenCalledTimes(1);
  });

  it("acts at once when the pointer moves on, not when it trembles", () => {
    const [clicks, act] = [new Clicks(), vi.fn()];
    clicks.click(at(5), act);
    clicks.moved(at(7));
    expect(act).not.toHaveBeenCalled();
    clicks.moved(at(30));
    expect(act).toHaveBeenCalledTimes(1);
    vi.advanceTimersByTime(1000);
    expect(act).toHaveBeenCalledTimes(1);
  });

  it("does nothing as a part of a double-click", () => {
    const [clicks, act] = [new Clicks(), vi.fn()];
    clicks.click(at(5), act);
    clicks.click(at(5, 2), act);
    clicks.cancel();
    vi.advanceTimersByTime(1000);
    clicks.moved(at(90));
    expect(act).not.toHaveBeenCalled();
  });
});
