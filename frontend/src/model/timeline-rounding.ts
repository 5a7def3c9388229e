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
  const most = 2 * stored.rows;
  const source = new Uint32Array(most);
  const [owner, bytes, address] = [new Float64Array(most), new Float64Array(most), new Float64Array(most)];
  let rows = 0;
  const add = (row: number, its: number, size: number, place: number): void => {
    [source[rows], owner[rows], bytes[rows], address[rows]] = [row, its, size, place];
    rows += 1;
  };
  for (let row = 0; row < stored.rows; row += 1) {
    const allocated = stored.bytes[row] ?? 0;
    const rounding = Math.min(stored.rounding_bytes[row] || 0, allocated);
    const place = stored.address[row] ?? NaN;
    if (allocated > rounding) add(row, stored.owner[row] ?? NaN, allocated - rounding, place);
    if (rounding > 0) add(row, roundingOwner(row), rounding, place + allocated - rounding);
  }
  const take = (column: Float64Array): Float64Array => {
    const out = new Float64Array(rows);
    for (let at = 0; at < rows; at += 1) out[at] = column[source[at] as number] ?? NaN;
    return out;
  };
  const columns = Object.fromEntries(COLUMNS.map((name) => [name, take(stored[name])])) as Pick<Timeline, (typeof COLUMNS)[number]>;
  return {
    ...stored,
    ...columns,
    rows,
    owners,
    owner: owner.slice(0, rows),
    bytes: bytes.slice(0, rows),
    address: address.slice(0, rows),
    tensor: new Float64Array(source.subarray(0, rows)),
  };
}
