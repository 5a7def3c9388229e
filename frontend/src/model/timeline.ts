/**
 * The timeline of one traced step: its live allocations at every moment, and its passes, times,
 * rows and moments in words.
 */

import {
  formatBytes,
  formatMilliseconds,
  plural,
  formatCount,
  formatExact,
  type Table,
  tableOf,
  totalBytes,
  largestFirst,
} from "../lib/bytes";
import { maximum, lowerBound } from "../lib/search";
import { groupKey, groupOfOwner, groupLabel } from "./categories";
import { dtypeBytes } from "./layers";
import { at } from "./overview";
import { NOT_TIED } from "./run";
import { sizesText } from "./snapshot";
import {
  type Band,
  CATEGORIES,
  type ChunkOwner,
  type Group,
  type TensorShape,
  type TimelineHead,
  type TimelineRef,
  type BandName,
} from "../schema";

type TimelineColumn =
  | "start"
  | "end"
  /** As in a ledger: requested bytes, or rounding; allocated bytes where the request is unknown. */
  | "bytes"
  /** Allocations in the row; 0 where they are unknown. */
  | "count"
  | "owner"
  | "op"
  /**
   * Number of the row's tensor: a tensor's bytes and its rounding are two rows beside each other.
   * Ascending.
   */
  | "tensor"
  | "rounding_bytes"
  /** As in memory maps; NaN where unknown. */
  | "address"
  /** Indices into `shapes` and `lines`; NaN where unknown. */
  | "shape"
  | "line";
export type Timeline = TimelineHead & { rows: number } & Record<TimelineColumn, Float64Array>;

const NOBODY: ChunkOwner = { layer: null, category: "unattributed", trainable: null };

export const ownerOfRow = (timeline: Timeline, row: number): ChunkOwner =>
  timeline.owners[timeline.owner[row] ?? -1] ?? NOBODY;

const opOfRow = (timeline: Timeline, row: number): string | null =>
  timeline.ops[at(timeline.op, row) ?? -1] ?? null;

export const shapeOfRow = (timeline: Timeline, row: number): TensorShape | null =>
  ownerOfRow(timeline, row).category === "rounding"
    ? null
    : (timeline.shapes[at(timeline.shape, row) ?? -1] ?? null);

export const lineOfRow = (timeline: Timeline, row: number): string | null =>
  timeline.lines[at(timeline.line, row) ?? -1] ?? null;

export interface Series {
  /** `groupKey` of a group, `layer:PATH`, `others` or `no_layer`. */
  key: string;
  group: Group | null;
  layer: string | null;
  bytes: Float64Array;
}

function sumsBy(
  timeline: Timeline,
  keyOf: (owner: ChunkOwner) => string,
): Map<string, Float64Array> {
  const keys = timeline.owners.map(keyOf);
  const changes = new Map<string, Float64Array>();
  for (let row = 0; row < timeline.rows; row += 1) {
    const key = keys[timeline.owner[row] ?? -1] ?? "";
    const column = changes.get(key) ?? new Float64Array(timeline.moments + 1);
    changes.set(key, column);
    const [start, end, bytes] = [
      timeline.start[row] ?? 0,
      timeline.end[row] ?? 0,
      timeline.bytes[row] ?? 0,
    ];
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
    category === "weights"
      ? [false, true, null].map((trainable) => ({ category, trainable }))
      : [{ category, trainable: null }],
  );
  return groups.flatMap((group): Series[] => {
    const bytes = sums.get(groupKey(group));
    return bytes ? [{ key: groupKey(group), group, layer: null, bytes }] : [];
  });
}

/**
 * Bytes by layer: the `limit` layers with the highest maximum, then the other layers together, then
 * what is not tied to a layer.
 */
export function layerSeries(timeline: Timeline, limit: number): Series[] {
  const sums = sumsBy(timeline, ({ layer }) => (layer === null ? "no_layer" : `layer:${layer}`));
  const none = sums.get("no_layer");
  sums.delete("no_layer");
  const ordered = [...sums].sort((a, b) => maximum(b[1]) - maximum(a[1]));
  const others = new Float64Array(timeline.moments);
  for (const [, column] of ordered.slice(limit))
    column.forEach((bytes, moment) => (others[moment] = (others[moment] ?? 0) + bytes));
  const series = (key: string, bytes: Float64Array, layer: string | null = null): Series => ({
    ...{ key, group: null, layer, bytes },
  });
  return [
    ...ordered.slice(0, limit).map(([key, bytes]) => series(key, bytes, key.replace("layer:", ""))),
    ...(ordered.length > limit ? [series("others", others)] : []),
    ...(none ? [series("no_layer", none)] : []),
  ];
}

export const bytesOfLayer = (timeline: Timeline, layer: string): Float64Array | null =>
  sumsBy(timeline, (owner) => (owner.layer === layer ? "layer" : "others")).get("layer") ?? null;

export const isLive = (timeline: Timeline, row: number, moment: number): boolean =>
  (timeline.start[row] ?? 0) <= moment && moment < (timeline.end[row] ?? 0);

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

/**
 * Of the timelines of a phase, the one to show: that of the wanted step or the nearest; without
 * one, that of the highest peak.
 */
export function chosenTimeline(
  list: readonly TimelineRef[],
  step: number | null,
): TimelineRef | null {
  const better = (a: TimelineRef, b: TimelineRef): boolean =>
    step === null
      ? b.in_use_bytes > a.in_use_bytes
      : Math.abs(b.step - step) < Math.abs(a.step - step);
  return list.reduce<TimelineRef | null>(
    (best, one) => (best === null || better(best, one) ? one : best),
    null,
  );
}

/**
 * A timeline as it is stored: a row is a tensor's chunk, or several chunks, with `rounding_bytes`
 * of its `bytes` not requested.
 */
export type StoredTimeline = Omit<Timeline, "tensor">;

const COLUMNS = ["start", "end", "count", "op", "rounding_bytes", "shape", "line"] as const;

/**
 * The rows with their known rounding in rows of category `rounding`, which keep layer, trainable,
 * operation and span, and lie above the requested bytes. Rows without bytes are left out; the sum
 * at every moment does not change.
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
  const [owner, bytes, address] = [
    new Float64Array(most),
    new Float64Array(most),
    new Float64Array(most),
  ];
  let rows = 0;
  const add = (row: number, its: number, size: number, place: number) => {
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
  const columns = Object.fromEntries(COLUMNS.map((name) => [name, take(stored[name])])) as Pick<
    Timeline,
    (typeof COLUMNS)[number]
  >;
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

/** A tensor with its rows: the requested bytes first, then the rounding. */
export function tensorOf(timeline: Timeline, number: number) {
  const rows: number[] = [];
  for (let row = lowerBound(timeline.tensor, number); timeline.tensor[row] === number; row += 1)
    rows.push(row);
  const [first] = rows;
  if (first === undefined) return null;
  const bytes = rows.reduce((sum, row) => sum + (timeline.bytes[row] ?? 0), 0);
  const rounding = at(timeline.rounding_bytes, first);
  return {
    number,
    rows,
    /** That of its requested bytes. */
    row: first,
    bytes,
    requested_bytes: rounding === null ? null : bytes - rounding,
    rounding_bytes: rounding,
    address: at(timeline.address, first),
    shape: shapeOfRow(timeline, first),
    line: lineOfRow(timeline, first),
  };
}

export type Tensor = NonNullable<ReturnType<typeof tensorOf>>;

export const tensorStops = (timeline: Timeline, rows: readonly number[]): number[] => [
  ...new Set(rows.map((row) => timeline.tensor[row] ?? -1)),
];

/**
 * The tensor with the most bytes at a moment among single allocations with a known owner, null if
 * there is none.
 */
export function largestTensor(timeline: Timeline, moment: number): number | null {
  let best = -1;
  for (let row = 0; row < timeline.rows; row += 1) {
    // What fails for most rows comes first.
    if (
      !isLive(timeline, row, moment) ||
      (best >= 0 && (timeline.bytes[row] ?? 0) <= (timeline.bytes[best] ?? 0))
    )
      continue;
    const { category } = ownerOfRow(timeline, row);
    if (timeline.count[row] === 1 && category !== "rounding" && category !== "unattributed")
      best = row;
  }
  return best < 0 ? null : (timeline.tensor[best] ?? null);
}

export const shapeText = ({ shape, dtype }: TensorShape): string => `${sizesText(shape)} ${dtype}`;

/** "64 × 32 × 32 × 3 × 4 B = 786,432 B"; null for a dtype of unknown size. */
export function sizeFormula({ shape, dtype }: TensorShape): string | null {
  const one = dtypeBytes(dtype);
  if (one === null) return null;
  const bytes = shape.reduce((product, size) => product * size, one);
  return `${[...shape.map(formatCount), `${one} B`].join(" × ")} = ${formatExact(bytes)}`;
}

export const sizeText = (bytes: number | null): string =>
  bytes === null
    ? "unknown"
    : bytes < 1024
      ? formatExact(bytes)
      : `${formatBytes(bytes)} (${formatExact(bytes)})`;

const BANDS: Record<BandName, readonly [label: string, meaning: string]> = {
  forward: ["forward", "forward pass, up to the last layer op before the backward pass"],
  backward: ["backward", "backward pass, before any weight update"],
  backward_and_update: [
    "backward + update",
    "backward pass, while weights with finished gradients are updated",
  ],
  update: ["update", "optimizer updates the remaining weights"],
};

export const bandLabel = (name: BandName): string => BANDS[name][0];
export const bandMeaning = (name: BandName): string => BANDS[name][1];

/** Time of a moment in milliseconds since the trace's first event. */
const milliseconds = (timeline: Timeline, moment: number): number =>
  (timeline.time_ns[moment] ?? timeline.duration_ns) / 1e6;

export const timeText = (timeline: Timeline, moment: number): string =>
  formatMilliseconds(milliseconds(timeline, moment));

/** The moments of a row, and whether it is live before the step and after it. */
function lifeOf({ start, end, moments }: Timeline, row: number) {
  const [from, to] = [start[row] ?? 0, end[row] ?? 0];
  return { from, to, before: from === 0, after: to >= moments };
}

export function sinceText(timeline: Timeline, row: number): string {
  const { from, before } = lifeOf(timeline, row);
  return before ? "before" : timeText(timeline, from);
}

export function untilText(timeline: Timeline, row: number): string {
  const { to, after } = lifeOf(timeline, row);
  return after ? "after" : timeText(timeline, to);
}

export function whatText(timeline: Timeline, row: number): string {
  const count = timeline.count[row] ?? 1;
  if (count > 1) return plural(count, "smaller allocation");
  if (count === 0) return "allocations unknown";
  const op = opOfRow(timeline, row);
  if (op !== null) return op;
  return lifeOf(timeline, row).before ? "allocated before the step" : "operation unknown";
}

const ownerText = (timeline: Timeline, row: number): string => {
  const owner = ownerOfRow(timeline, row);
  return `${owner.layer ?? NOT_TIED}: ${groupLabel(groupOfOwner(owner))}`;
};

export function rowFacts(timeline: Timeline, row: number): string[] {
  const { before, after } = lifeOf(timeline, row);
  const since = before ? "allocated before the step" : `allocated at ${sinceText(timeline, row)}`;
  const until = after ? "live after the step" : `freed at ${untilText(timeline, row)}`;
  const what = whatText(timeline, row);
  return [
    ownerText(timeline, row),
    ...(what === since ? [] : [what]),
    `${since}, ${until}`,
    `the trace, step ${timeline.step}`,
  ];
}

/** "12.3 ms to 15 ms: 2.7 ms"; "throughout the step". */
export function lifetimeText(timeline: Timeline, row: number): string {
  const { from, to, before, after } = lifeOf(timeline, row);
  if (before && after) return "throughout the step";
  if (before) return `from before the step to ${untilText(timeline, row)}`;
  if (after) return `${sinceText(timeline, row)} to after the step`;
  const length = formatMilliseconds(milliseconds(timeline, to) - milliseconds(timeline, from));
  return `${sinceText(timeline, row)} to ${untilText(timeline, row)}: ${length}`;
}

export function tensorLines(timeline: Timeline, tensor: Tensor): string[] {
  const { row } = tensor;
  return [
    `${formatBytes(tensor.bytes)}${tensor.shape ? ` · ${shapeText(tensor.shape)}` : ""}`,
    ownerText(timeline, row),
    whatText(timeline, row),
    lifetimeText(timeline, row),
    ...(tensor.line === null ? [] : [tensor.line]),
  ];
}

export const atPeakText = (timeline: Timeline, row: number): string =>
  isLive(timeline, row, timeline.peak) ? "yes" : "no";

/**
 * "at 12.3 ms, forward: 1.2 GiB in use; activations 600 MiB; …", largest first: text for screen
 * readers.
 */
export function momentSentence(
  timeline: Timeline,
  series: readonly Series[],
  labels: readonly string[],
  moment: number,
): string {
  const parts = series
    .map(({ bytes }, index) => ({ label: labels[index] ?? "", bytes: bytes[moment] ?? 0 }))
    .filter(({ bytes }) => bytes > 0)
    .sort(largestFirst);
  const total = totalBytes(parts);
  const band = bandOf(timeline, moment);
  const where = [
    `at ${timeText(timeline, moment)}`,
    ...(band ? [bandLabel(band.name)] : []),
    ...(moment === timeline.peak ? ["peak"] : []),
  ];
  return [
    `${where.join(", ")}: ${formatBytes(total)} in use`,
    ...parts.map(({ label, bytes }) => `${label} ${formatBytes(bytes)}`),
  ].join("; ");
}

/**
 * All rows; unknown values are null. Rows of one `tensor` are its requested bytes and its rounding.
 */
export function timelineFile(timeline: Timeline): Table {
  const timeOf = (moment: number | undefined): number | null =>
    timeline.time_ns[moment ?? -1] ?? null;
  return tableOf([...timeline.start.keys()], {
    layer: (row) => ownerOfRow(timeline, row).layer,
    category: (row) => ownerOfRow(timeline, row).category,
    trainable: (row) => ownerOfRow(timeline, row).trainable,
    operation: (row) => opOfRow(timeline, row),
    shape: (row) => sizesOfRow(timeline, row),
    dtype: (row) => shapeOfRow(timeline, row)?.dtype ?? null,
    bytes: (row) => at(timeline.bytes, row),
    // An allocation is counted once, not again with its rounding.
    count: (row) =>
      ownerOfRow(timeline, row).category === "rounding" ? 0 : at(timeline.count, row),
    since_ns: (row) => (timeline.start[row] === 0 ? null : timeOf(timeline.start[row])),
    until_ns: (row) => timeOf(timeline.end[row]),
    line: (row) => lineOfRow(timeline, row),
    address: (row) => at(timeline.address, row),
    tensor: (row) => at(timeline.tensor, row),
    live_at_peak: (row) => isLive(timeline, row, timeline.peak),
  });
}

export function sizesOfRow(timeline: Timeline, row: number): string | null {
  const shape = shapeOfRow(timeline, row);
  return shape && sizesText(shape.shape);
}
