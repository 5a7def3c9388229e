/** Splits the rounding of a timeline into a category of its own, as in ledgers. */

import type { ChunkOwner } from "./memory-map";
import type { Timeline } from "./timeline";

/** A timeline as it is stored: a row is a tensor's chunk, or several chunks, with `rounding_bytes` of its `bytes` not requested. */
export type StoredTimeline = Omit<Timeline, "tensor">;

const COLUMNS = ["start", "end", "count", "op", "rounding_bytes", "shape", "line"] as const;

/**
 * The rows with their known rounding in rows of category `rounding`, which keep layer, trainable, operation and span, and lie above the
 * requested bytes. Rows without bytes are left out; the sum at every moment does not change.
 */
export function splitRounding(stored: StoredTimeline): Timeline {
  const owners: ChunkOwner[] = [...stored.owners];
  const known = new Map<string, number>();
  const roundingOwner = (row: number): number => {
    const { layer = null, trainable = null } = stored.owners[stored.owner[row] ?? -1] ?? {};
    const key = JSON.stringify([layer, trainable]);
    const number = known.get(key) ?? owners.push({ layer, category: "rounding", trainable }) - 1;
    known.set(key, number);
    return number;
  };
  const parts: { row: number; owner: number; bytes: number; address: number }[] = [];
  for (let row = 0; row < stored.rows; row += 1) {
    const [allocated, owner] = [stored.bytes[row] ?? 0, stored.owner[row] ?? NaN];
    const rounding = Math.min(stored.rounding_bytes[row] || 0, allocated);
    const address = stored.address[row] ?? NaN;
    if (allocated > rounding) parts.push({ row, owner, bytes: allocated - rounding, address });
    if (rounding > 0) parts.push({ row, owner: roundingOwner(row), bytes: rounding, address: address + allocated - rounding });
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
    address: Float64Array.from(parts, ({ address }) => address),
    tensor: Float64Array.from(parts, ({ row }) => row),
  };
}
