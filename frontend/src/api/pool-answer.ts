/** The answer of the route about the pool, checked and turned into the model. */

import { POOL_SOURCES, type PoolBand, type PoolGrowth, type PoolSteps } from "../model/pool";
import { PHASES } from "../model/run";
import { flag, list, maybe, number, object, oneOf, text } from "./check";
import { readColumns } from "./columns";

const poolHead = object<Pick<PoolSteps, "run" | "device" | "phase" | "total_rows" | "sources" | "bands" | "growths" | "sentences">>({
  run: text,
  device: text,
  phase: oneOf(PHASES),
  total_rows: number,
  sources: list(oneOf(POOL_SOURCES)),
  bands: list(object<PoolBand>({ bytes: number, region: flag, growth: number })),
  growths: list(object<PoolGrowth>({ after_step: maybe(number), by_step: number, bytes: number, pool_bytes: number })),
  sentences: list(text),
});

export function parsePool(buffer: ArrayBuffer): PoolSteps {
  const { answer, numbered } = readColumns(buffer, "pool", poolHead, [
    "step",
    "wall_time",
    "in_use_bytes",
    "peak_bytes",
    "capacity_bytes",
    "pool_low_bytes",
    "pool_high_bytes",
    "pool_source",
    "largest_free_bytes",
    "rounding_bytes",
    "fragmentation",
  ]);
  return { ...answer, there: numbered("band", answer.bands) };
}
