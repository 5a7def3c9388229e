/** Splits the rounding of a timeline into a category of its own, as in ledgers. */

import type { ChunkOwner } from "./memory-map";
import type { Timeline } from "./timeline";

/** A timeline as it is stored: a row is a chunk, or several. */
export interface StoredTimeline extends Timeline {
  /** How many of `bytes` were not requested; NaN where unknown. */
  rounding_bytes: Float64Array;
}

const COLUMNS = ["start", "end", "count", "op"] as const;

/**
 * The rows with their known rounding in rows of category `rounding`, which keep layer, trainable, operation and span. Rows without bytes
 * are left out; the sum at every moment does not change.
 */
export function splitRounding({ rounding_bytes, ...stored }: StoredTimeline): Timeline {
  const owners: ChunkOwner[] = [...stored.owners];
  const known = new Map<string, number>();
  const roundingOwner = (row: number): number => {
    const { layer = null, trainable = null } = stored.owners[stored.owner[row] ?? -1] ?? {};
    const key = JSON.stringify([layer, trainable]);
    const number = known.get(key) ?? owners.push({ layer, category: "rounding", trainable }) - 1;
    known.set(key, number);
    return number;
  };
  const parts: { row: number; owner: number; bytes: number }[] = [];
  for (let row = 0; row < stored.rows; row += 1) {
    const [allocated, owner] = [stored.bytes[row] ?? 0, stored.owner[row] ?? NaN];
    const rounding = Math.min(rounding_bytes[row] || 0, allocated);
    if (allocated > rounding) parts.push({ row, owner, bytes: allocated - rounding });
    if (rounding > 0) parts.push({ row, owner: roundingOwner(row), bytes: rounding });
  }
  const columns = Object.fromEntries(
    COLUMNS.map((name) => [name, Float64Array.from(parts, ({ row }) => stored[name][row] ?? NaN)]),
  ) as Pick<Timeline, (typeof COLUMNS)[number]>;
  return {
    ...stored,
    ...columns,
    rows: parts.length,
    owners,
    owner: Float64Array.from(parts, ({ owner }) => owner),
    bytes: Float64Array.from(parts, ({ bytes }) => bytes),
  };
}
