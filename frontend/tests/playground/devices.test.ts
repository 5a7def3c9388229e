/**
 * The devices of the playground's cases, from the wire to the rows, bars and charts of the page.
 */

import { describe, expect, it } from "vitest";

import { CASES } from "../../playground/cases";
import { devicesOf } from "../../playground/devices";
import { infoOf, type Plan } from "../../playground/training";
import { parseDevices } from "../api/answers-cases";
import { WrongAnswer } from "../../src/lib/check";
import { toCsv } from "../../src/lib/bytes";
import {
  alignedStep,
  breakdownNote,
  conspicuous,
  deviceLines,
  devicesFile,
  devicesSummary,
  ends,
  groupsOf,
  layersOnDevices,
  sortedDevices,
  stepSentence,
  workerFacts,
  workerTitle,
  type Devices,
} from "../../src/model/devices";
import { preferredDevice, preferredLabel } from "../../src/model/run";
import { DEFAULTS } from "../../src/state/address";
import { barScale, deviceBar } from "../../src/views/devices/device-table";
import { commonCapacity, peaksSpec, seriesOf, sumSpec } from "../../src/views/devices/devices-view";
import type { Category, DeviceRow } from "../../src/schema";

const planOf = (name: string): Plan => (CASES[name]?.plans as [Plan])[0];
const wire = (name: string): unknown =>
  JSON.parse(JSON.stringify(devicesOf(planOf(name)))) as unknown;
const [one, two, many] = ["two-runs", "two-workers", "many-devices"].map((name) =>
  parseDevices(wire(name)),
) as [Devices, Devices, Devices];
const names = (rows: readonly DeviceRow[]): string[] => rows.map(({ device }) => device);
const changed = (all: Devices, at: number, row: Partial<DeviceRow>): Devices => ({
  ...all,
  devices: all.devices.map((own, index) => (index === at ? { ...own, ...row } : own)),
});

describe("the answer", () => {
  it("survives the wire", () => {
    const made = devicesOf(planOf("two-workers"));
    expect(two.devices).toEqual(made.devices);
    expect(two.workers).toEqual(made.workers);
    expect([...two.steps.max_peak_bytes]).toEqual(made.steps.max_peak_bytes);
    expect(names(two.devices)).toEqual(
      infoOf(planOf("two-workers")).devices.map(({ device }) => device),
    );
  });

  it("has gaps where a step's figure is unknown, and no sum where none is known", () => {
    const json = devicesOf(planOf("two-runs"));
    const steps = {
      ...json.steps,
      min_peak_bytes: [null, ...json.steps.min_peak_bytes.slice(1)],
      sum_in_use_bytes: null,
    };
    const read = parseDevices({ ...json, steps, imbalance: null });
    expect(read.steps.min_peak_bytes[0]).toBeNaN();
    expect(read.steps.sum_in_use_bytes).toBeNull();
    expect(sumSpec(read, DEFAULTS)).toBeNull();
  });

  it("is refused where a figure is not one", () => {
    const json = devicesOf(planOf("two-runs"));
    expect(() =>
      parseDevices({ ...json, devices: [{ ...json.devices[0], peak_bytes: null }] }),
    ).toThrow(WrongAnswer);
    expect(() => parseDevices({ ...json, damage: [1] })).toThrow(WrongAnswer);
    expect(() => parseDevices({ ...json, workers: [{}] })).toThrow(
      "devices.workers[0].worker should be a string",
    );
  });
});

describe("what to look at first", () => {
  it("is nothing where all devices are alike", () => {
    expect(conspicuous(parseDevices(wire("two-workers")))).toEqual([]);
  });

  it("is a worker that stopped early, by its first device, and a count of those after ten", () => {
    const workers = two.workers.map((worker, at) => ({
      ...worker,
      stopped_early: at === 1 ? "worker_1 recorded nothing after step 3" : null,
    }));
    expect(conspicuous({ ...two, workers })).toEqual([
      { device: "worker_1/GPU:0", sentence: "worker_1 recorded nothing after step 3" },
    ]);
    const all = Array.from({ length: 12 }, (_, at) => ({
      ...(workers[1] as (typeof workers)[0]),
      worker: `w${at}`,
      stopped_early: `w${at} stopped`,
    }));
    const listed = conspicuous({ ...two, workers: all });
    expect(listed).toHaveLength(11);
    expect(listed.at(-1)).toEqual({ device: null, sentence: "2 more stopped early" });
    expect(listed[0]?.device).toBeNull();
  });
});

describe("many devices", () => {
  const wide = (count: number): Devices => ({
    ...two,
    devices: Array.from({ length: count }, (_, at) => ({
      ...(two.devices[0] as Devices["devices"][0]),
      device: `w${at}`,
      peak_bytes: at,
    })),
  });

  it("show the ten most and the ten least loaded, and how many are between", () => {
    const lines = ends(deviceLines(wide(8000), "peak_bytes"));
    expect(lines).toHaveLength(21);
    expect(lines[0]).toMatchObject({ kind: "device", device: { peak_bytes: 7999 } });
    expect(lines[10]).toEqual({ kind: "more", count: 7980 });
    expect(lines.at(-1)).toMatchObject({ kind: "device", device: { peak_bytes: 0 } });
  });

  it("name workers with a bad status", () => {
    const workers = Array.from({ length: 2 }, (_, at) => ({
      ...(two.workers[0] as Devices["workers"][0]),
      worker: `worker_${at}`,
      status: at === 1 ? ("growing" as const) : ("ok" as const),
    }));
    expect(conspicuous({ ...two, rolled_up: true, workers })).toEqual([
      { device: "worker_1/GPU:0", sentence: "worker_1: memory grows" },
    ]);
    expect(conspicuous({ ...two, workers })).toEqual([]);
  });
});

describe("rows", () => {
  it("lie below their worker in natural order, and without workers where there is one", () => {
    const lines = deviceLines(two, "device");
    expect(
      lines.map((line) =>
        line.kind === "worker"
          ? line.worker.worker
          : line.kind === "device"
            ? line.device.name
            : "",
      ),
    ).toEqual(
      ["worker_0", "worker_1"].flatMap((worker) => [worker, "GPU:0", "GPU:1", "GPU:2", "GPU:3"]),
    );
    expect(deviceLines(one, "device").map(({ kind }) => kind)).toEqual(["device"]);
  });

  it("show a worker that has no device, and a device whose worker is not listed", () => {
    const [first, second] = two.workers as [Devices["workers"][0], Devices["workers"][0]];
    const lonely = { ...two, workers: [first, second, { ...second, worker: "worker_2" }] };
    expect(deviceLines(lonely, "device").at(-1)).toMatchObject({
      kind: "worker",
      worker: { worker: "worker_2" },
    });
    const strange = changed(two, 0, { worker: "elsewhere" });
    expect(deviceLines(strange, "device").at(-1)).toEqual({
      kind: "device",
      device: strange.devices[0],
    });
  });

  it("are sorted by one column across the workers, the most loaded first, unknown ones last", () => {
    const unknown = changed(two, 2, {
      headroom_bytes: null,
      capacity_bytes: null,
      pool_bytes: null,
    });
    for (const key of ["peak_bytes", "capacity_bytes", "pool_bytes", "ooms"] as const) {
      const values = sortedDevices(unknown.devices, key).flatMap((row) => row[key] ?? []);
      expect(values).toEqual([...values].sort((a, b) => b - a));
    }
    const rooms = sortedDevices(unknown.devices, "headroom_bytes");
    expect(rooms.at(-1)?.device).toBe("worker_0/GPU:2");
    expect(rooms.slice(0, -1).map(({ headroom_bytes }) => headroom_bytes)).toEqual(
      rooms
        .slice(0, -1)
        .map(({ headroom_bytes }) => headroom_bytes)
        .sort((a, b) => (a ?? 0) - (b ?? 0)),
    );
    expect(deviceLines(two, "peak_bytes").every(({ kind }) => kind === "device")).toBe(true);
    // Devices of the same capacity keep the natural order, and the answer its own.
    expect(names(sortedDevices(many.devices, "capacity_bytes"))).toEqual(names(many.devices));
    expect(names(sortedDevices(two.devices, "peak_bytes"))).not.toEqual(names(two.devices));
  });

  it("name a worker and what is known of it", () => {
    const [worker] = two.workers as [Devices["workers"][0]];
    expect(workerTitle(worker)).toBe("worker_0");
    expect(workerTitle({ worker: "" })).toBe("worker without a name");
    expect(workerFacts(worker)).toBe("steps 0–119");
    expect(workerFacts({ ...worker, sessions: 3, clock_offset_seconds: -0.26 })).toBe(
      "steps 0–119, 3 sessions, clock −0.3 s",
    );
    expect(workerFacts({ ...worker, first_step: null, clock_offset_seconds: 0.04 })).toBe(
      "no steps",
    );
  });
});

describe("bars", () => {
  it("have one scale that ends at the largest capacity, or at the highest peak where that would squash them", () => {
    expect(barScale(two.devices)).toBe(planOf("two-workers").capacity);
    const roomy = two.devices.map((row) => ({ ...row, capacity_bytes: 80 * 2 ** 30 }));
    const highest = Math.max(...two.devices.map(({ peak_bytes }) => peak_bytes));
    expect(barScale(roomy)).toBe(highest);
    expect(deviceBar(roomy[0] as DeviceRow, highest).capacity).toBeNull();
    expect(barScale(two.devices.map((row) => ({ ...row, capacity_bytes: null })))).toBe(highest);
  });

  it("hold every byte of the breakdown, the bottom of the stack first", () => {
    const scale = barScale(two.devices);
    for (const row of two.devices) {
      const { segments, peak } = deviceBar(row, scale);
      expect(segments.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(row.breakdown?.peak_bytes);
      expect(segments[0]?.group.category).toBe("weights");
      expect(segments.at(-1)?.to).toBeCloseTo((row.breakdown?.peak_bytes ?? 0) / scale, 12);
      expect(peak).toBeCloseTo(row.peak_bytes / scale, 12);
    }
    expect(
      deviceBar({ ...(two.devices[0] as DeviceRow), breakdown: null }, scale).segments,
    ).toEqual([]);
  });
});

describe("layers on devices", () => {
  const row = (layer: string | null, category: Category, bytes: number, trainable = true) => ({
    ...{ layer, category, bytes, trainable, rounding_bytes: 0 },
  });

  it("are those of all of them, with the bytes of each, the largest first", () => {
    const [first, second] = [
      [row("a", "weights", 10), row("a", "activations", 30), row(null, "inputs", 7)],
      [row("a", "weights", 10), row("b", "weights", 90, false)],
    ];
    const layers = layersOnDevices([first, second]);
    expect(layers.map(({ path, most }) => [path, most])).toEqual([
      ["b", 90],
      ["a", 40],
      [null, 7],
    ]);
    expect(layers.map(({ on }) => on.map((own) => own?.total ?? null))).toEqual([
      [null, 90],
      [40, 10],
      [7, null],
    ]);
    expect(layers.map(({ frozen }) => frozen)).toEqual([true, false, false]);
  });

  it("are in the legend unless they are small, or chosen", () => {
    const parts = [
      { category: "weights" as const, trainable: true, bytes: 995 },
      { category: "rounding" as const, trainable: null, bytes: 5 },
    ];
    const { devices } = changed(two, 0, { breakdown: { step: 1, peak_bytes: 1000, parts } });
    const shown = (chosen: Category | null) =>
      groupsOf(devices.slice(0, 1), true, chosen).map(({ category }) => category);
    expect(shown(null)).toEqual(["weights"]);
    expect(shown("rounding")).toEqual(["weights", "rounding"]);
  });
});

describe("sentences", () => {
  it("count the devices and name the sum of the peaks an upper bound", () => {
    expect(devicesSummary(one)).toBe("1 device");
    expect(devicesSummary(two)).toMatch(/^8 devices of 2 workers\. Sum of their peaks: 2\.\d GiB$/);
  });

  it("do not call the sum that of all devices where a CPU is left out", () => {
    const mixed = changed(two, 0, { device: "worker_0/CPU:0" });
    const sum = mixed.sum_peak_bytes - (mixed.devices[0]?.peak_bytes ?? 0);
    expect(devicesSummary({ ...mixed, sum_peak_bytes: sum })).toContain(
      "Sum of the accelerators' peaks: ",
    );
  });

  it("say which step the breakdowns come from", () => {
    expect(alignedStep(two.devices)).toBe(83);
    expect(breakdownNote(two.devices)).toBe("Breakdown from step 83.");
    const apart = changed(two, 1, { breakdown: { step: 43, peak_bytes: 1, parts: [] } });
    expect(breakdownNote(apart.devices)).toBe("Breakdown from a traced step of each device.");
    expect(breakdownNote(changed(two, 1, { breakdown: null }).devices)).toBe(
      "Breakdown from step 83. Unknown for 1 device: not traced.",
    );
    expect(breakdownNote(two.devices.map((row) => ({ ...row, breakdown: null })))).toContain(
      "no step of these devices was traced",
    );
  });

  it("describe a step, of one device without a lowest peak", () => {
    expect(stepSentence(two, 5)).toMatch(
      /^step 5: highest peak \d+ MiB, lowest peak \d+ MiB, sum in use at step end 1\.\d GiB$/,
    );
    expect(stepSentence(one, 5)).toMatch(/^step 5: peak \d+ MiB$/);
    expect(stepSentence(one, 9999)).toBe("step ?: unknown");
  });
});

describe("the charts", () => {
  it("hold the highest peak, in the range of the zoom", () => {
    const spec = peaksSpec(two, DEFAULTS);
    expect(spec.yMax).toBeGreaterThan(Math.max(...two.steps.max_peak_bytes));
    expect(spec.range).toEqual([-0.5, 119.5]);
    expect(peaksSpec(two, { ...DEFAULTS, axis: "wall", zoom: [10, 20] }).range).toEqual([
      9.5, 20.5,
    ]);
    expect(sumSpec(two, DEFAULTS)?.yMax).toBeGreaterThan(
      Math.max(...(two.steps.sum_in_use_bytes ?? [])),
    );
  });

  it("draw a lowest peak and a sum of several devices only", () => {
    expect(seriesOf(two).map(({ name }) => name)).toEqual(["highest", "lowest", "sum"]);
    expect(seriesOf(one)).toEqual([{ name: "highest", label: "measured peak" }]);
    expect(sumSpec(one, DEFAULTS)).toBeNull();
    expect(peaksSpec(one, DEFAULTS).painters).toHaveLength(2);
  });

  it("are those of one device where the other one is a CPU", () => {
    const beside = { ...two, devices: two.devices.slice(0, 2) };
    const mixed = changed(changed(beside, 0, { device: "GPU:0" }), 1, {
      device: "CPU:0",
      capacity_bytes: 1,
    });
    expect(seriesOf(mixed).map(({ name }) => name)).toEqual(["highest"]);
    expect(sumSpec(mixed, DEFAULTS)).toBeNull();
    expect(stepSentence(mixed, 5)).toMatch(/^step 5: peak \d+ MiB$/);
    expect(devicesSummary(mixed)).toBe("2 devices of 2 workers");
    expect(commonCapacity(mixed)).toBe(planOf("two-workers").capacity);
  });

  it("draw a capacity that all devices have", () => {
    expect(commonCapacity(two)).toBe(planOf("two-workers").capacity);
    expect(commonCapacity(changed(two, 0, { capacity_bytes: 1 }))).toBeNull();
    expect(
      commonCapacity({
        ...two,
        devices: two.devices.map((row) => ({ ...row, capacity_bytes: null })),
      }),
    ).toBeNull();
  });
});

describe("the saved table", () => {
  it("has a row per device whose categories sum to the breakdown", () => {
    const { columns, rows } = devicesFile(changed(two, 3, { breakdown: null }));
    expect(rows).toHaveLength(8);
    const first = columns.indexOf("breakdown_step") + 1;
    expect(columns.slice(first)).toHaveLength(groupsOf(two.devices).length);
    rows.forEach((row, index) => {
      const parts = row.slice(first);
      if (index === 3) expect(parts.every((cell) => cell === null)).toBe(true);
      else
        expect(parts.reduce<number>((sum, cell) => sum + Number(cell), 0)).toBe(
          two.devices[index]?.breakdown?.peak_bytes,
        );
    });
    expect(toCsv({ columns, rows }).split("\r\n")).toHaveLength(10);
  });
});

describe("the device that a run shows first", () => {
  const run = infoOf(planOf("two-workers"));
  const devices = ["worker_0/CPU:0", "worker_1/GPU:0", "worker_1/GPU:1"].map((device) => ({
    device,
    capacity_bytes: 100,
    peak_bytes: null,
    peak_step: null,
    snapshots: 0,
  }));

  it("is the most loaded one, the first of the devices by headroom", () => {
    const least = sortedDevices(two.devices, "headroom_bytes")[0]?.device;
    expect(preferredDevice(run)).toBe(least);
    expect(preferredLabel(run)).toBe(`most loaded: ${least ?? ""}`);
  });

  it("is named with its kind where there are others", () => {
    const mixed = { ...run, devices, most_loaded: "worker_1/GPU:1" };
    expect(preferredDevice(mixed)).toBe("worker_1/GPU:1");
    expect(preferredLabel(mixed)).toBe("most loaded GPU: worker_1/GPU:1");
  });

  it("is the first accelerator where no peak is known, and none without devices", () => {
    expect(preferredDevice({ ...run, devices, most_loaded: null })).toBe("worker_1/GPU:0");
    expect(preferredDevice({ ...run, devices: [], most_loaded: null })).toBeNull();
  });
});
