/** The answer of the route about the pool, checked and turned into the model. */

import { POOL_SOURCES, type PoolBand, type PoolGrowth, type PoolSteps } from "../model/pool";
import { PHASES } from "../model/run";
import { flag, list, maybe, number, object, oneOf, text } from "./check";
import { decodeColumns } from "./columns";

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
  const columns = decodeColumns(buffer);
  const head = poolHead(columns.head, "pool");
  return {
    ...head,
    rows: columns.rows,
    step: columns.column("step"),
    wall_time: columns.column("wall_time"),
    in_use_bytes: columns.column("in_use_bytes"),
    peak_bytes: columns.column("peak_bytes"),
    capacity_bytes: columns.column("capacity_bytes"),
    pool_low_bytes: columns.column("pool_low_bytes"),
    pool_high_bytes: columns.column("pool_high_bytes"),
    pool_source: columns.column("pool_source"),
    largest_free_bytes: columns.column("largest_free_bytes"),
    rounding_bytes: columns.column("rounding_bytes"),
    fragmentation: columns.column("fragmentation"),
    there: head.bands.map((_, index) => columns.column(`band/${index}`)),
  };
}
