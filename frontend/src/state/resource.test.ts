// @vitest-environment happy-dom
import { describe, expect, it, vi } from "vitest";

import { Resource } from "./resource";

const direct = <T>(work: () => Promise<T>): Promise<T> => work();
const settled = (): Promise<void> => new Promise((resume) => setTimeout(resume, 0));

describe("Resource", () => {
  it("fetches a version once", async () => {
    const resource = new Resource<number>(direct);
    const load = vi.fn(() => Promise.resolve(7));
    resource.want("k", "v1", load);
    resource.want("k", "v1", load);
    expect(resource.read("k").loading).toBe(true);
    await settled();
    expect(resource.read("k")).toEqual({ value: 7, error: null, loading: false });
    resource.want("k", "v2", load);
    await settled();
    expect(load).toHaveBeenCalledTimes(2);
  });

  it("keeps the old value while a new one loads and when it fails", async () => {
    const resource = new Resource<number>(direct);
    resource.want("k", "v1", () => Promise.resolve(7));
    await settled();
    resource.want("k", "v2", () => Promise.reject(new Error("The run is gone.")));
    expect(resource.read("k").value).toBe(7);
    await settled();
    expect(resource.read("k")).toEqual({ value: 7, error: "The run is gone.", loading: false });
  });

  it("retries what failed", async () => {
    const resource = new Resource<number>(direct);
    let fails = true;
    resource.want("k", "v1", () => (fails ? Promise.reject(new Error("no")) : Promise.resolve(1)));
    await settled();
    fails = false;
    resource.retryFailed();
    await settled();
    expect(resource.read("k").value).toBe(1);
  });

  it("holds new values back, but not the first", async () => {
    const resource = new Resource<number>(direct);
    resource.hold(true);
    resource.want("k", "v1", () => Promise.resolve(1));
    await settled();
    expect(resource.read("k").value).toBe(1);
    resource.want("k", "v2", () => Promise.resolve(2));
    await settled();
    expect(resource.read("k").value).toBe(1);
    resource.hold(false);
    expect(resource.read("k").value).toBe(2);
  });

  it("stops fetching what nobody waits for any more, and fetches it again when wanted", async () => {
    const resource = new Resource<number>(direct);
    const aborted: boolean[] = [];
    const load = vi.fn((signal: AbortSignal) => {
      signal.addEventListener("abort", () => aborted.push(true));
      return new Promise<number>(() => undefined);
    });
    resource.want("slow", "v1", load);
    resource.want("done", "v1", () => Promise.resolve(1));
    await settled();
    resource.only("next");
    expect([aborted.length, resource.read("slow").loading, resource.read("done").value]).toEqual([1, false, 1]);
    resource.want("slow", "v1", () => Promise.resolve(2));
    await settled();
    expect(resource.read("slow").value).toBe(2);
  });

  it("drops an answer that a newer question overtook", async () => {
    const resource = new Resource<number>(direct);
    let answer: (value: number) => void = () => undefined;
    resource.want("k", "v1", () => new Promise((resolve) => (answer = resolve)));
    resource.want("k", "v2", () => Promise.resolve(2));
    await settled();
    answer(1);
    await settled();
    expect(resource.read("k").value).toBe(2);
  });
});
