// @vitest-environment happy-dom
import { computed, effect } from "@preact/signals";
import { describe, expect, it, vi } from "vitest";

import { Refused } from "../../src/api/source";
import { Resource, Shelf, footprint, limiter } from "../../src/state/resource";

const direct = <T>(work: () => Promise<T>): Promise<T> => work();
const settled = (): Promise<void> => new Promise((resume) => setTimeout(resume, 0));

type Load = (abort: AbortSignal) => Promise<number>;

/** Numbers by key, fetched as the question says. */
const numbers = (shelf = new Shelf(1e9)) =>
  new Resource<[key: string, version?: string, load?: Load], number>(
    {
      key: (key) => key,
      version: (_, version) => version ?? "",
      load: (abort, _key, _version, load) =>
        load ? load(abort) : Promise.reject(new Error("no load")),
    },
    shelf,
    direct,
  );

describe("Resource", () => {
  it("fetches a version once", async () => {
    const resource = numbers();
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
    const resource = numbers();
    resource.want("k", "v1", () => Promise.resolve(7));
    await settled();
    resource.want("k", "v2", () => Promise.reject(new Error("The run is gone.")));
    expect(resource.read("k").value).toBe(7);
    await settled();
    expect(resource.read("k")).toEqual({ value: 7, error: "The run is gone.", loading: false });
  });

  it("says which parameter an error is about, until the next answer", async () => {
    const resource = numbers();
    resource.want("k", "v1", () => Promise.reject(new Refused(400, "Too large.", "capacity")));
    await settled();
    expect(resource.read("k")).toEqual({
      value: null,
      error: "Too large.",
      parameter: "capacity",
      loading: false,
    });
    resource.want("k", "v2", () => Promise.reject(new Refused(404, "Gone.")));
    expect(resource.read("k")).toEqual({ value: null, error: null, loading: true });
    await settled();
    expect(resource.read("k")).toEqual({ value: null, error: "Gone.", loading: false });
  });

  it("retries what failed", async () => {
    const resource = numbers();
    let fails = true;
    resource.want("k", "v1", () => (fails ? Promise.reject(new Error("no")) : Promise.resolve(1)));
    await settled();
    fails = false;
    resource.keep([["k"]]);
    resource.retryFailed();
    await settled();
    expect(resource.read("k").value).toBe(1);
  });

  it("forgets what failed while nobody shows it, so that it is fetched when it is wanted again", async () => {
    const resource = numbers();
    resource.want("k", "v1", () => Promise.reject(new Error("no")));
    await settled();
    resource.retryFailed();
    await settled();
    expect(resource.read("k")).toEqual({ value: null, error: null, loading: false });
    resource.want("k", "v1", () => Promise.resolve(1));
    await settled();
    expect(resource.read("k").value).toBe(1);
  });

  it("holds new values back, but not the first", async () => {
    const resource = numbers();
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
    const resource = numbers();
    const aborted: boolean[] = [];
    const load = vi.fn((signal: AbortSignal) => {
      signal.addEventListener("abort", () => aborted.push(true));
      return new Promise<number>(() => undefined);
    });
    resource.want("slow", "v1", load);
    resource.want("done", "v1", () => Promise.resolve(1));
    await settled();
    resource.keep([["next"]]);
    expect([aborted.length, resource.read("slow").loading, resource.read("done").value]).toEqual([
      1,
      false,
      1,
    ]);
    resource.want("slow", "v1", () => Promise.resolve(2));
    await settled();
    expect(resource.read("slow").value).toBe(2);
  });

  it("drops an answer that a newer question overtook", async () => {
    const resource = numbers();
    let answer: (value: number) => void = () => undefined;
    resource.want("k", "v1", () => new Promise((resolve) => (answer = resolve)));
    resource.want("k", "v2", () => Promise.resolve(2));
    await settled();
    answer(1);
    await settled();
    expect(resource.read("k").value).toBe(2);
  });

  it("drops what was used longest ago, but nothing that is read or kept, and fetches it again", async () => {
    const shelf = new Shelf(4 * 1100);
    const resource = numbers(shelf);
    const load = vi.fn(() => Promise.resolve(1));
    const browse = async (keys: string[]): Promise<void> => {
      for (const key of keys) {
        resource.want(key, "v1", load);
        await settled();
      }
    };
    const shown: (number | null)[] = [];
    const stop = effect(() => void shown.push(resource.read("shown").value));
    resource.keep([["kept"]]);
    await browse(["shown", "kept", "a", "b", "c", "d"]);
    load.mockClear();
    await browse(["shown", "kept", "c", "d"]);
    expect(load).not.toHaveBeenCalled();
    await browse(["a"]);
    expect(load).toHaveBeenCalledTimes(1);
    expect(resource.read("a").value).toBe(1);
    expect(shown.at(-1)).toBe(1);
    expect(shelf.bytes).toBeLessThanOrEqual(4 * 1100);
    stop();
    await browse(["b", "c", "d", "e"]);
    load.mockClear();
    await browse(["shown"]);
    expect(load).toHaveBeenCalledTimes(1);
  });

  it("gives what is derived from a dropped answer the next one", async () => {
    const resource = numbers(new Shelf(2 * 1100));
    const one = (): Promise<number> => Promise.resolve(1);
    resource.want("k", "v1", one);
    await settled();
    const derived = computed(() => resource.read("k").value);
    expect(derived.value).toBe(1);
    for (const key of ["a", "b", "c"]) {
      resource.want(key, "v1", one);
      await settled();
    }
    expect(derived.value).toBeNull();
    resource.want("k", "v1", () => Promise.resolve(2));
    await settled();
    expect(derived.value).toBe(2);
  });
});

describe("footprint", () => {
  it("is that of the buffers for columns, each buffer once", () => {
    const buffer = new ArrayBuffer(1 << 20);
    const columns = { step: new Float64Array(buffer, 0, 10), bytes: new Float64Array(buffer, 80) };
    expect(footprint(columns)).toBeGreaterThanOrEqual(1 << 20);
    expect(footprint(columns)).toBeLessThan((1 << 20) + 200);
  });

  it("grows with every row of plain data", () => {
    const rows = (count: number): unknown =>
      Array.from({ length: count }, (_, index) => ({ layer: `block${index}`, bytes: index }));
    const each = (footprint(rows(2000)) - footprint(rows(1000))) / 1000;
    expect(each).toBeGreaterThan(40);
    expect(each).toBeLessThan(100);
  });

  it("counts what is held twice once, and ends in a circle", () => {
    const layer = { path: "x".repeat(1000) };
    expect(footprint([layer, layer])).toBeLessThan(1200);
    const circle: { self?: unknown } = {};
    circle.self = circle;
    expect(footprint(circle)).toBeGreaterThan(0);
  });

  it("is nothing for nothing", () => {
    expect([footprint(null), footprint(undefined), footprint(5)]).toEqual([0, 0, 0]);
  });
});

describe("limiter", () => {
  it("runs no more at once than it may, and all in the end", async () => {
    const limit = limiter(2);
    let running = 0;
    let most = 0;
    const results = await Promise.all(
      Array.from({ length: 7 }, (_, index) =>
        limit(async () => {
          running += 1;
          most = Math.max(most, running);
          await Promise.resolve();
          running -= 1;
          return index;
        }),
      ),
    );
    expect(results).toEqual([0, 1, 2, 3, 4, 5, 6]);
    expect(most).toBe(2);
  });
});
