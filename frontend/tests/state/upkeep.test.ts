// @vitest-environment happy-dom
import { signal } from "@preact/signals";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import type { Store } from "../../src/state/store";
import { keepUp } from "../../src/state/upkeep";

/** The browser's dark mode, and the frame that TensorBoard shows the page in. */
const dark = { matches: false, tell: (): void => undefined };
const frame: { reload?: () => void } = {};

function kept(live: boolean) {
  const store = {
    dark: { value: false },
    follow: vi.fn(),
    reload: vi.fn(),
    poll: vi.fn(() => Promise.resolve()),
    primary: signal<{ status: string } | null>(null),
    answer: signal<{ error: string | null }>({ error: null }),
  };
  keepUp(store as unknown as Store, live);
  return store;
}

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("matchMedia", () => ({
    get matches() {
      return dark.matches;
    },
    addEventListener: (_: string, report: () => void) => (dark.tell = report),
  }));
  vi.stubGlobal("frameElement", frame);
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

describe("a live page", () => {
  it("loads at once and polls every five seconds while it can be seen", () => {
    const store = kept(true);
    expect([store.reload.mock.calls.length, store.poll.mock.calls.length]).toEqual([1, 0]);
    vi.advanceTimersByTime(15_000);
    expect(store.poll).toHaveBeenCalledTimes(3);
    // TensorBoard hides a tab so.
    vi.stubGlobal("innerHeight", 0);
    vi.advanceTimersByTime(15_000);
    expect(store.poll).toHaveBeenCalledTimes(3);
    vi.stubGlobal("innerHeight", 700);
    vi.advanceTimersByTime(5_000);
    expect(store.poll).toHaveBeenCalledTimes(4);
  });

  it("polls soon while the shown run is being read, unless the server does not answer", async () => {
    const store = kept(true);
    await vi.advanceTimersByTimeAsync(1000);
    expect(store.poll).toHaveBeenCalledTimes(0);
    store.primary.value = { status: "reading" };
    await vi.advanceTimersByTimeAsync(1100);
    expect(store.poll).toHaveBeenCalledTimes(5);
    store.answer.value = { error: "The server does not answer." };
    await vi.advanceTimersByTimeAsync(1000);
    expect(store.poll).toHaveBeenCalledTimes(6);
    store.primary.value = { status: "ok" };
    store.answer.value = { error: null };
    await vi.advanceTimersByTimeAsync(1000);
    expect(store.poll).toHaveBeenCalledTimes(6);
  });

  it("reloads when TensorBoard does", () => {
    const store = kept(true);
    frame.reload?.();
    expect(store.reload).toHaveBeenCalledTimes(2);
  });
});

describe("any page", () => {
  it("follows dark mode and addresses that others write", () => {
    const store = kept(false);
    for (const matches of [true, false]) {
      dark.matches = matches;
      dark.tell();
      expect([store.dark.value, document.documentElement.dataset.scheme]).toEqual([matches, matches ? "dark" : "light"]);
    }
    window.dispatchEvent(new Event("hashchange"));
    expect(store.follow).toHaveBeenCalledTimes(1);
  });

  it("of saved data loads once", () => {
    delete frame.reload;
    const store = kept(false);
    vi.advanceTimersByTime(60_000);
    expect([store.reload.mock.calls.length, store.poll.mock.calls.length]).toEqual([1, 0]);
    expect(frame.reload).toBeUndefined();
  });
});
