/** An overview of four steps, of which one was traced. */

import { type Overview } from "../../src/model/overview";
import type { LayerChange } from "../../src/schema";

export const MIB = 2 ** 20;
export const column = (...values: number[]): Float64Array => Float64Array.from(values);

export const unknown = column(NaN, NaN, NaN, NaN);

export const change = (step: number, changed: Partial<LayerChange>): LayerChange => ({
  step,
  reason: "recording began",
  frozen_weight_bytes: 30 * MIB,
  trainable_weight_bytes: 10 * MIB,
  statistics_bytes: 0,
  unfreezing_weight_bytes: 30 * MIB,
  optimizer_bytes: 20 * MIB,
  other_optimizer_bytes: 0,
  frozen_layers: 3,
  trainable_layers: 1,
  became_trainable: [],
  became_frozen: [],
  peak_before_bytes: null,
  peak_before_step: null,
  peak_after_bytes: null,
  peak_after_step: null,
  stayed_slots_bytes: 0,
  ...changed,
});

/** Steps 10 to 40; step 20 was traced; the peak of 80 MiB at step 30 is inferred. */
export const OVERVIEW: Overview = {
  run: "r",
  device: "GPU:0",
  phase: "train",
  rows: 4,
  total_rows: 4,
  groups: [
    { category: "weights", trainable: false },
    { category: "activations", trainable: null },
    { category: "unattributed", trainable: null },
  ],
  snapshots: [
    {
      step: 20,
      phase: "train",
      mode: "xla",
      batch_size: 32,
      at_failure: false,
      first_step: 0,
      earlier_slots_bytes: 0,
    },
  ],
  changes: [change(10, {})],
  epochs: [],
  validations: [],
  failures: [],
  sessions: [],
  step: column(10, 20, 30, 40),
  epoch: unknown,
  wall_time: column(0, 1, 2, 3),
  in_use_bytes: unknown,
  peak_bytes: column(NaN, 64 * MIB, 80 * MIB, 80 * MIB),
  capacity_bytes: unknown,
  host_resident_bytes: unknown,
  driver_process_bytes: unknown,
  driver_used_bytes: unknown,
  driver_total_bytes: unknown,
  pool_bytes: unknown,
  largest_free_bytes: unknown,
  snapshot: column(NaN, 0, 0, 0),
  traced: column(0, 1, 0, 0),
  bytes: [
    column(NaN, 16 * MIB, 20 * MIB, 20 * MIB),
    column(NaN, 40 * MIB, 0, 0),
    column(NaN, 8 * MIB, 60 * MIB, 60 * MIB),
  ],
};
