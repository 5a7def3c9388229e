import { afterEach, beforeEach, expect, test, vi } from "vitest";

import { later, touch } from "../../src/lib/activity";

const dataset: { idle?: string } = {};

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("window", globalThis);
  vi.stubGlobal("document", { documentElement: { dataset } });
});

afterEach(() => {
  vi.runAllTimers();
  vi.unstubAllGlobals();
  vi.useRealTimers();
});

test("what waits for its turn keeps the page busy", () => {
  let done = false;
  later(100, () => {
    done = true;
  });
  touch();
  vi.advanceTimersByTime(99);
  expect([done, dataset.idle]).toEqual([false, "false"]);
  vi.advanceTimersByTime(100);
  expect([done, dataset.idle]).toEqual([true, "true"]);
});

test("what is called off does neither happen nor keep the page busy", () => {
  const work = vi.fn();
  const callOff = later(100, work);
  callOff();
  callOff();
  vi.advanceTimersByTime(60);
  expect(dataset.idle).toBe("true");
  vi.runAllTimers();
  expect(work).not.toHaveBeenCalled();
});
