/** The answer of the devices route, checked and turned into the model. */

import { CATEGORIES } from "../model/categories";
import type { DeviceBreakdown, DevicePart, DeviceRow, Devices, DeviceSteps, Imbalance, WorkerInfo } from "../model/devices";
import { PHASES } from "../model/run";
import { flag, list, maybe, number, object, oneOf, text, type Check } from "./check";

/** A column of figures; NaN where one is unknown. */
const column: Check<Float64Array> = (value, where) => Float64Array.from(list(maybe(number))(value, where), (one) => one ?? NaN);

const workerInfo = object<WorkerInfo>({
  worker: text,
  sessions: number,
  first_step: maybe(number),
  last_step: maybe(number),
  ended: flag,
  last_wall_time: maybe(number),
  status: maybe(text),
  stopped_early: maybe(text),
  clock_offset_seconds: maybe(number),
});

const devicePart = object<DevicePart>({ category: oneOf(CATEGORIES), trainable: maybe(flag), bytes: number });

const deviceRow = object<DeviceRow>({
  device: text,
  worker: text,
  name: text,
  capacity_bytes: maybe(number),
  peak_bytes: number,
  peak_step: number,
  last_in_use_bytes: maybe(number),
  headroom_bytes: maybe(number),
  pool_bytes: maybe(number),
  breakdown: maybe(
    object<DeviceBreakdown>({
      step: number,
      peak_bytes: number,
      parts: list(devicePart),
    }),
  ),
  ooms: number,
});

const devicesAnswer = object<Devices>({
  run: text,
  rolled_up: flag,
  phase: oneOf(PHASES),
  workers: list(workerInfo),
  devices: list(deviceRow),
  imbalance: maybe(object<Imbalance>({ largest: text, smallest: text, bytes: number, sentence: text })),
  sum_peak_bytes: number,
  steps: object<DeviceSteps>({
    step: column,
    max_peak_bytes: column,
    min_peak_bytes: column,
    sum_in_use_bytes: maybe(column),
  }),
  damage: list(text),
});
export const parseDevices = (json: unknown): Devices => devicesAnswer(json, "devices");
