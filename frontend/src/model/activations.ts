/** Recorded activation bytes of layers over steps, and the largest layers of them. */

import { maximum } from "../lib/search";
import type { ActivationsHead } from "../schema";

/** `bytes` has a column for each layer. */
export type Activations = ActivationsHead & { rows: number; step: Float64Array; wall_time: Float64Array; bytes: Float64Array[] };

export interface LayerSeries {
  /** Layer path; null for the sum of the layers that are not shown one by one. */
  layer: string | null;
  count: number;
  bytes: Float64Array;
  max_bytes: number;
}

/** The `limit` layers with the highest recorded bytes, then one series for all others. In order of size. */
export function topLayers(activations: Activations, limit: number): LayerSeries[] {
  const all = activations.layers.map((layer, index): LayerSeries => {
    const bytes = activations.bytes[index] ?? new Float64Array(activations.rows).fill(NaN);
    return { layer, count: 1, bytes, max_bytes: maximum(bytes) };
  });
  all.sort((a, b) => b.max_bytes - a.max_bytes);
  if (all.length <= limit + 1) return all;
  const rest = all.slice(limit);
  const sum = new Float64Array(activations.rows).fill(NaN);
  for (const series of rest) {
    series.bytes.forEach((value, row) => {
      if (!Number.isNaN(value)) sum[row] = (Number.isNaN(sum[row]) ? 0 : (sum[row] as number)) + value;
    });
  }
  return [...all.slice(0, limit), { layer: null, count: rest.length, bytes: sum, max_bytes: maximum(sum) }];
}

export function totalAt(series: readonly LayerSeries[], row: number): number | null {
  let total: number | null = null;
  for (const { bytes } of series) {
    const value = bytes[row];
    if (value !== undefined && !Number.isNaN(value)) total = (total ?? 0) + value;
  }
  return total;
}
