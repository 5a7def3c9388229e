// @vitest-environment happy-dom
import { computed, effect, signal } from "@preact/signals";
import { describe, expect, it } from "vitest";

import type { Source } from "../../src/api/source";
import { createResources } from "../../src/state/resources";
import type { RunInfo } from "../../src/schema";

const MIB = 2 ** 20;
const LIMIT = 16 * MIB;

const run = { run: "a", version: "1", sessions: 1, ooms: 0, devices: [] } as unknown as RunInfo;
const settled = (): Promise<void> => new Promise((resume) => setTimeout(resume, 0));

/** Timelines and memory maps of 1 MiB each; `asked` counts the requests. */
function sourceOf() {
  const asked = { timelines: 0, maps: 0, whatIfs: 0 };
  const column = (): Float64Array => new Float64Array(MIB / 8);
  const source = {
    timeline: () => Promise.resolve({ at: column(), number: (asked.timelines += 1) }),
    map: () => Promise.resolve({ address: column(), number: (asked.maps += 1) }),
    whatIf: () => Promise.resolve({ sentence: "x".repeat(MIB), number: (asked.whatIfs += 1) }),
  } as unknown as Source;
  return { source, asked };
}

describe("what was fetched", () => {
  it("has the layers of each worker apart, and those of a process once", async () => {
    const asked: [string | null, number][] = [];
    const layers = (
      _: AbortSignal,
      _run: string,
      device: string | null,
      step: number,
    ): Promise<unknown> => {
      asked.push([device, step]);
      return Promise.resolve({ step });
    };
    const fetched = createResources({ layers } as unknown as Source, LIMIT);
    for (const device of ["GPU:0", "GPU:1", null, "worker_0/GPU:0", "worker_1/GPU:0"]) {
      fetched.layers.want(run, device, 3);
      await settled();
    }
    expect(asked).toEqual([
      [null, 3],
      ["worker_0/GPU:0", 3],
      ["worker_1/GPU:0", 3],
    ]);
  });

  it("stays bounded over 100 steps, and nothing that is shown is dropped", async () => {
    const { source, asked } = sourceOf();
    const fetched = createResources(source, LIMIT);
    const step = signal(0);
    const first = { phase: "train", step: 0 } as const;
    const shown = computed(
      () => fetched.timelines.read(run, "GPU:0", { phase: "train", step: step.value }).value,
    );
    const lost: number[] = [];
    let stays: unknown = null;
    // The timeline of the step, beside the memory map of the first one.
    const stop = effect(() => {
      const map = fetched.maps.read(run, { device: "GPU:0", ...first }).value;
      if (stays !== null && map !== stays) lost.push(step.peek());
      stays = map;
      void shown.value;
    });
    fetched.maps.want(run, { device: "GPU:0", ...first });
    for (let now = 0; now < 100; now += 1) {
      step.value = now;
      fetched.timelines.want(run, "GPU:0", { phase: "train", step: now });
      fetched.whatIfs.want(run, "GPU:0", { batch_size: String(now) } as never);
      await settled();
      expect(shown.value, `step ${now}`).not.toBeNull();
      expect(fetched.bytes()).toBeLessThanOrEqual(LIMIT);
    }
    expect(lost).toEqual([]);
    expect(asked).toEqual({ timelines: 100, maps: 1, whatIfs: 100 });
    // The last ones are still there, the first ones are fetched again.
    fetched.timelines.want(run, "GPU:0", { phase: "train", step: 98 });
    await settled();
    expect(asked.timelines).toBe(100);
    fetched.timelines.want(run, "GPU:0", first);
    await settled();
    expect(asked.timelines).toBe(101);
    stop();
  });

  it("may be larger than the bound while all of it is shown", async () => {
    const { source } = sourceOf();
    const fetched = createResources(source, LIMIT);
    const steps = Array.from({ length: 20 }, (_, step) => ({ phase: "train", step }) as const);
    const missing = signal(0);
    const stop = effect(() => {
      missing.value = steps.filter(
        (one) => fetched.timelines.read(run, "GPU:0", one).value === null,
      ).length;
    });
    for (const one of steps) fetched.timelines.want(run, "GPU:0", one);
    for (let turn = 0; turn < 10; turn += 1) await settled();
    expect(missing.value).toBe(0);
    expect(fetched.bytes()).toBeGreaterThan(LIMIT);
    stop();
    fetched.timelines.want(run, "GPU:0", { phase: "train", step: 20 });
    await settled();
    expect(fetched.bytes()).toBeLessThanOrEqual(LIMIT);
  });
});
