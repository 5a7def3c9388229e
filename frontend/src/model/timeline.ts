/** The timeline of one traced step: its live allocations at every moment. */

import { maximum } from "../lib/search";
import { groupKey, groupOfOwner } from "./categories";
import { at } from "./overview";
import { type Band, CATEGORIES, type ChunkOwner, type Group, type TensorShape, type TimelineHead, type TimelineRef } from "../schema";

type TimelineColumn =
  | "start"
  | "end"
  /** As in a ledger: requested bytes, or rounding; allocated bytes where the request is unknown. */
  | "bytes"
  /** Allocations in the row; 0 where they are unknown. */
  | "count"
  | "owner"
  | "op"
  /** Number of the row's tensor: a tensor's bytes and its rounding are two rows beside each other. Ascending. */
  | "tensor"
  | "rounding_bytes"
  /** As in memory maps; NaN where unknown. */
  | "address"
  /** Indices into `shapes` and `lines`; NaN where unknown. */
  | "shape"
  | "line";
export type Timeline = TimelineHead & { rows: number } & Record<TimelineColumn, Float64Array>;

const NOBODY: ChunkOwner = { layer: null, category: "unattributed", trainable: null };

export const ownerOfRow = (timeline: Timeline, row: number): ChunkOwner => timeline.owners[timeline.owner[row] ?? -1] ?? NOBODY;

export const opOfRow = (timeline: Timeline, row: number): string | null => timeline.ops[at(timeline.op, row) ?? -1] ?? null;

/** Shape of the row's tensor; rounding has none. */
export const shapeOfRow = (timeline: Timeline, row: number): TensorShape | null =>
  ownerOfRow(timeline, row).category === "rounding" ? null : (timeline.shapes[at(timeline.shape, row) ?? -1] ?? null);

export const lineOfRow = (timeline: Timeline, row: number): string | null => timeline.lines[at(timeline.line, row) ?? -1] ?? null;

export interface Series {
  /** `groupKey` of a group, `layer:PATH`, `others` or `no_layer`. */
  key: string;
  group: Group | null;
  layer: string | null;
  bytes: Float64Array;
}

/** Adds up rows by a key of their owner, at every moment. */
function sumsBy(timeline: Timeline, keyOf: (owner: ChunkOwner) => string): Map<string, Float64Array> {
  const keys = timeline.owners.map(keyOf);
  const changes = new Map<string, Float64Array>();
  for (let row = 0; row < timeline.rows; row += 1) {
    const key = keys[timeline.owner[row] ?? -1] ?? "";
    const column = changes.get(key) ?? new Float64Array(timeline.moments + 1);
    changes.set(key, column);
    const [start, end, bytes] = [timeline.start[row] ?? 0, timeline.end[row] ?? 0, timeline.bytes[row] ?? 0];
    column[start] = (column[start] ?? 0) + bytes;
    column[end] = (column[end] ?? 0) - bytes;
  }
  for (const column of changes.values()) {
    let level = 0;
    column.forEach((change, moment) => (column[moment] = level += change));
  }
  return new Map([...changes].map(([key, column]) => [key, column.subarray(0, timeline.moments)]));
}

/** Bytes by category in stack order; those that the step never has are left out. */
export function groupSeries(timeline: Timeline): Series[] {
  const sums = sumsBy(timeline, (owner) => groupKey(groupOfOwner(owner)));
  const groups = CATEGORIES.flatMap((category): Group[] =>
    category === "weights" ? [false, true, null].map((trainable) => ({ category, trainable })) : [{ category, trainable: null }],
  );
  return groups.flatMap((group): Series[] => {
    const bytes = sums.get(groupKey(group));
    return bytes ? [{ key: groupKey(group), group, layer: null, bytes }] : [];
  });
}

/** Bytes by layer: the `limit` layers with the highest maximum, then the other layers together, then what is not tied to a layer. */
export function layerSeries(timeline: Timeline, limit: number): Series[] {
  const sums = sumsBy(timeline, ({ layer }) => (layer === null ? "no_layer" : `layer:${layer}`));
  const none = sums.get("no_layer");
  sums.delete("no_layer");
  const ordered = [...sums].sort((a, b) => maximum(b[1]) - maximum(a[1]));
  const others = new Float64Array(timeline.moments);
  for (const [, column] of ordered.slice(limit)) column.forEach((bytes, moment) => (others[moment] = (others[moment] ?? 0) + bytes));
  const named = ordered.slice(0, limit).map(([key, bytes]): Series => ({ key, group: null, layer: key.slice("layer:".length), bytes }));
  return [
    ...named,
    ...(ordered.length > limit ? [{ key: "others", group: null, layer: null, bytes: others }] : []),
    ...(none ? [{ key: "no_layer", group: null, layer: null, bytes: none }] : []),
  ];
}

export function bytesOfLayer(timeline: Timeline, layer: string): Float64Array | null {
  return sumsBy(timeline, (owner) => (owner.layer === layer ? "layer" : "others")).get("layer") ?? null;
}

export const isLive = (timeline: Timeline, row: number, moment: number): boolean =>
  (timeline.start[row] ?? 0) <= moment && moment < (timeline.end[row] ?? 0);

/** Rows that are live at a moment, in the order given. */
export function liveRows({ start, end }: Timeline, ordered: Uint32Array, moment: number): number[] {
  const live: number[] = [];
  // Runs for each move of the pointer over as many rows as the step has.
  for (let at = 0; at < ordered.length; at += 1) {
    const row = ordered[at] as number;
    if ((start[row] as number) <= moment && moment < (end[row] as number)) live.push(row);
  }
  return live;
}

export const bandOf = (timeline: Timeline, moment: number): Band | null =>
  timeline.bands.find(({ start, end }) => start <= moment && moment < end) ?? null;

export const isCompiled = (timeline: Timeline, moment: number): boolean =>
  timeline.compiled.some(({ start, end }) => start <= moment && moment < end);

/** Of the timelines of a phase, the one to show: that of the wanted step or the nearest; without one, that of the highest peak. */
export function chosenTimeline(list: readonly TimelineRef[], step: number | null): TimelineRef | null {
  const better = (a: TimelineRef, b: TimelineRef): boolean =>
    step === null ? b.in_use_bytes > a.in_use_bytes : Math.abs(b.step - step) < Math.abs(a.step - step);
  return list.reduce<TimelineRef | null>((best, one) => (best === null || better(best, one) ? one : best), null);
}

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
