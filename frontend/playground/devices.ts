/** The answer of the devices route for a made-up training. */

import { groupKey } from "../src/model/categories";
import { devicePlans, type PlannedDevice } from "./device-plans";
import { peaksOf, snapshotAt, snapshotsOf, type Plan } from "./training";
import type { Group } from "../src/schema";

const sum = (values: readonly number[]): number =>
  values.reduce((total, value) => total + value, 0);

function partsAt(plan: Plan, step: number): (Group & { bytes: number })[] {
  const parts = new Map<string, Group & { bytes: number }>();
  for (const { category, trainable, bytes } of snapshotAt(plan, step).ledger) {
    const group = { category, trainable };
    parts.set(groupKey(group), {
      ...group,
      bytes: (parts.get(groupKey(group))?.bytes ?? 0) + bytes,
    });
  }
  return [...parts.values()];
}

function deviceOf({ device, worker, name, plan }: PlannedDevice) {
  const peaks = peaksOf(plan);
  const peak_bytes = Math.max(...peaks);
  const last = snapshotsOf(plan).at(-1);
  return {
    device,
    worker,
    name,
    capacity_bytes: plan.capacity,
    peak_bytes,
    peak_step: peaks.indexOf(peak_bytes),
    last_in_use_bytes: Math.floor((peaks.at(-1) ?? 0) * 0.4),
    headroom_bytes: plan.capacity === null ? null : plan.capacity - peak_bytes,
    pool_bytes: last?.pool_bytes ?? null,
    breakdown: last
      ? { step: last.step, peak_bytes: last.in_use_bytes, parts: partsAt(plan, last.step) }
      : null,
    rows: plan.steps,
    ooms: 0,
  };
}

export function devicesOf(plan: Plan) {
  const planned = devicePlans(plan);
  const devices = planned.map(deviceOf);
  const step = Array.from({ length: plan.steps }, (_, at) => at);
  const peaks = planned.map(({ plan: own }) => peaksOf(own));
  const at = (row: number): number[] => peaks.map((own) => own[row] ?? 0);
  const workers = [...new Set(planned.map(({ worker }) => worker))];
  const ordered = [...devices].sort((a, b) => b.peak_bytes - a.peak_bytes);
  const [largest, smallest] = [ordered[0], ordered.at(-1)];
  const bytes = (largest?.peak_bytes ?? 0) - (smallest?.peak_bytes ?? 0);
  const sentence = `${largest?.device ?? ""} peaks ${Math.round(bytes / 2 ** 20)} MiB higher than ${smallest?.device ?? ""}.`;
  return {
    run: plan.run,
    rolled_up: false,
    phase: "train",
    workers: workers.map((worker) => ({
      worker,
      sessions: 1,
      first_step: 0,
      last_step: plan.steps - 1,
      rows: plan.steps,
      ended: true,
      last_wall_time: null,
      status: "ok",
      stopped_early: null,
      clock_offset_seconds: null,
    })),
    devices,
    imbalance:
      largest && smallest && bytes > 0
        ? { largest: largest.device, smallest: smallest.device, bytes, sentence }
        : null,
    most_loaded: ordered[0]?.device ?? null,
    sum_peak_bytes: sum(devices.map(({ peak_bytes }) => peak_bytes)),
    steps: {
      step,
      max_peak_bytes: step.map((row) => Math.max(...at(row))),
      min_peak_bytes: step.map((row) => Math.min(...at(row))),
      sum_in_use_bytes: step.map((row) => sum(at(row).map((own) => Math.floor(own * 0.4)))),
    },
    damage: [],
  };
}
