/** An answer with a curve and a measured step. */

import type { CurvePoint, WhatIf } from "../../../src/schema";

export const MIB = 2 ** 20;

const point = (batchSize: number, mib: number): CurvePoint => ({
  batch_size: batchSize,
  peak_bytes: mib * MIB,
  low_bytes: (mib - 4) * MIB,
  high_bytes: (mib + 4) * MIB,
  fits: batchSize <= 16,
  fails_at: null,
});

export const curve = [point(2, 60), point(4, 110), point(8, 200), point(16, 390), point(20, 480)];

export const answer: WhatIf = {
  run: "a",
  device: "CPU:0",
  conditions: {
    batch_size: null,
    capacity_bytes: null,
    freeze: null,
    unfreeze: null,
    optimizer: null,
    precision: null,
  },
  batch_size: 8,
  capacity_bytes: 400 * MIB,
  peak_bytes: 200 * MIB,
  low_bytes: 190 * MIB,
  high_bytes: 210 * MIB,
  fits: true,
  sentence: "Fits: 200 MiB of 400 MiB",
  fails_at: null,
  recorded_peak_bytes: null,
  enough_capacity_bytes: null,
  largest_batch_size: 16,
  method: "replay",
  reproduced: { addresses: 1, of: 1 },
  assumptions: [],
  recorded: { batch_sizes: [4], steps: [1], peak_bytes: 110 * MIB },
  ledger: [
    { layer: "a", category: "activations", trainable: true, bytes: 180 * MIB, rounding_bytes: 0 },
    { layer: "a", category: "weights", trainable: true, bytes: 22 * MIB, rounding_bytes: 0 },
  ],
  measured: {
    step: 1,
    in_use_bytes: 110 * MIB,
    ledger: [
      { layer: "a", category: "activations", trainable: true, bytes: 110 * MIB, rounding_bytes: 0 },
    ],
  },
};
