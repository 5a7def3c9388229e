/** The answer of the pool route, checked and turned into the model. */

import { POOL_SOURCES, type PoolGrowth, type PoolSteps } from "../model/pool";
import { PHASES } from "../model/run";
import { list, maybe, number, object, oneOf, text } from "./check";
import { readColumns } from "./columns";

const poolHead = object<Pick<PoolSteps, "run" | "device" | "phase" | "total_rows" | "sources" | "growths" | "sentences">>({
  run: text,
  device: text,
  phase: oneOf(PHASES),
  total_rows: number,
  sources: list(oneOf(POOL_SOURCES)),
  growths: list(
    object<PoolGrowth>({ after_step: maybe(number), by_step: number, bytes: number, pool_bytes: number, peak_rise_bytes: maybe(number) }),
  ),
  sentences: list(text),
});

export const parsePool = (buffer: ArrayBuffer): PoolSteps =>
  readColumns(buffer, "pool", poolHead, [
    "step",
    "wall_time",
    "session",
    "in_use_bytes",
    "peak_bytes",
    "capacity_bytes",
    "pool_source",
    "pool_bytes",
    "largest_free_bytes",
    "fragmentation",
    "rounding_bytes",
  ]).answer;
