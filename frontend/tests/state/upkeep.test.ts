// @vitest-environment happy-dom
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import * as host from "../../src/state/host";
import type { Store } from "../../src/state/store";
import { keepUp } from "../../src/state/upkeep";

vi.mock("../../src/state/host", () => ({
  followDarkMode: vi.fn(),
  isVisible: vi.fn(() => true),
  onAddress: vi.fn(),
  onReload: vi.fn(),
}));

function kept(live: boolean) {
  const store = { dark: { value: false }, follow: vi.fn(), reload: vi.fn(), poll: vi.fn() };
  keepUp(store as unknown as Store, live);
  return store;
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => {
  vi.useRealTimers();
  vi.clearAllMocks();
});

describe("a live page", () => {
  it("loads at once and polls every five seconds while it can be seen", () => {
    const store = kept(true);
    expect([store.reload.mock.calls.length, store.poll.mock.calls.length]).toEqual([1, 0]);
    vi.advanceTimersByTime(15_000);
    expect(store.poll).toHaveBeenCalledTimes(3);
    vi.mocked(host.isVisible).mockReturnValue(false);
    vi.advanceTimersByTime(15_000);
    expect(store.poll).toHaveBeenCalledTimes(3);
    vi.mocked(host.isVisible).mockReturnValue(true);
    vi.advanceTimersByTime(5_000);
    expect(store.poll).toHaveBeenCalledTimes(4);
  });

  it("reloads when TensorBoard does", () => {
    const store = kept(true);
    vi.mocked(host.onReload).mock.lastCall?.[0]();
    expect(store.reload).toHaveBeenCalledTimes(2);
  });
});

describe("any page", () => {
  it("follows dark mode and addresses that others write", () => {
    const store = kept(false);
    for (const dark of [true, false]) {
      vi.mocked(host.followDarkMode).mock.lastCall?.[0](dark);
      expect([store.dark.value, document.documentElement.dataset.scheme]).toEqual([dark, dark ? "dark" : "light"]);
    }
    expect(host.onAddress).toHaveBeenCalledWith(store.follow);
  });

  it("of saved data loads once", () => {
    const store = kept(false);
    vi.advanceTimersByTime(60_000);
    expect([store.reload.mock.calls.length, store.poll.mock.calls.length]).toEqual([1, 0]);
    expect(host.onReload).not.toHaveBeenCalled();
  });
});
