/**
 * Where the tensors of a step lie above each other: stacked, or in the order of their addresses.
 */

import { categoryLabel, groupKey, groupOfOwner } from "./categories";
import {
  isLive,
  ownerOfRow,
  lineOfRow,
  shapeOfRow,
  type Timeline,
  whatText,
  sizesOfRow,
} from "./timeline";
import { CATEGORIES, PERSISTENT, type Category, type Group } from "../schema";

/**
 * Rank of a row by how long it lives: persistent categories, others that live throughout,
 * persistent ones for a part, transient ones.
 */
function lifetimeRank(timeline: Timeline, row: number): number {
  const { category, trainable } = ownerOfRow(timeline, row);
  const place = CATEGORIES.indexOf(category);
  const whole = timeline.start[row] === 0 && (timeline.end[row] ?? 0) >= timeline.moments;
  if (whole) return 2 * place + (category === "weights" && trainable !== false ? 1 : 0);
  return 2 * CATEGORIES.length + (PERSISTENT.includes(category) ? 0 : 1);
}

/**
 * All rows, the lowest of the stack first: what lives throughout by category and size, then the
 * others as they are allocated, of those at one moment the longest-lived first. The rounding of a
 * tensor follows it.
 */
export function stackOrder(timeline: Timeline): Uint32Array {
  const { rows, tensor, start, end, bytes } = timeline;
  // The first row of each tensor decides, so that its rounding stays with it.
  const head = new Uint32Array(rows);
  for (let row = 1; row < rows; row += 1)
    head[row] = tensor[row] === tensor[row - 1] ? (head[row - 1] ?? row) : row;
  const rank = Float64Array.from({ length: rows }, (_, row) =>
    head[row] === row ? lifetimeRank(timeline, row) : 0,
  );
  const at = (column: Float64Array, row: number): number => column[row] ?? 0;
  const transient = 2 * CATEGORIES.length;
  return Uint32Array.from({ length: rows }, (_, row) => row).sort((one, other) => {
    const [a, b] = [head[one] ?? one, head[other] ?? other];
    if (a === b) return one - other;
    const byRank = at(rank, a) - at(rank, b);
    if (byRank !== 0) return byRank;
    const byLife =
      at(rank, a) >= transient ? at(start, a) - at(start, b) || at(end, b) - at(end, a) : 0;
    return byLife || at(bytes, b) - at(bytes, a) || a - b;
  });
}

/**
 * Unused ranges above this share of the used addresses are cut down to it: regions may lie
 * terabytes apart.
 */
const LONGEST_GAP = 1 / 16;

/**
 * Lower end of each row in bytes from the ground of the chart, NaN where the address is unknown;
 * the places at which a range of addresses that the step never uses is cut out; and the tensors
 * without a known address, with their bytes at the peak.
 */
export function addressPlaces(timeline: Timeline) {
  const { address, bytes, rows } = timeline;
  const known = Array.from({ length: rows }, (_, row) => row).filter(
    (row) => !Number.isNaN(address[row]),
  );
  if (known.length === 0) return null;
  known.sort((a, b) => (address[a] ?? 0) - (address[b] ?? 0));
  const spans: { from: number; to: number }[] = [];
  for (const row of known) {
    const [from, to] = [address[row] ?? 0, (address[row] ?? 0) + (bytes[row] ?? 0)];
    const last = spans.at(-1);
    if (last && from <= last.to) last.to = Math.max(last.to, to);
    else spans.push({ from, to });
  }
  const most = spans.reduce((sum, { from, to }) => sum + to - from, 0) * LONGEST_GAP;
  const place = new Float64Array(rows).fill(NaN);
  const cuts: number[] = [];
  let [end, shown, next] = [spans[0]?.from ?? 0, 0, 0];
  for (const { from, to } of spans) {
    const gap = Math.min(from - end, most);
    if (from - end > most) cuts.push(shown + gap / 2);
    const shift = shown + gap - from;
    for (; next < known.length && (address[known[next] ?? 0] ?? 0) < to; next += 1)
      place[known[next] ?? 0] = (address[known[next] ?? 0] ?? 0) + shift;
    [end, shown] = [to, to + shift];
  }
  return { place, height: shown, cuts, ...unplaced(timeline, place) };
}

function unplaced(timeline: Timeline, place: Float64Array) {
  const { rows, tensor, bytes, peak } = timeline;
  const missing = Array.from({ length: rows }, (_, row) => row).filter((row) =>
    Number.isNaN(place[row]),
  );
  const atPeak = missing.filter((row) => isLive(timeline, row, peak));
  return {
    unknown: new Set(missing.map((row) => tensor[row])).size,
    unknown_bytes: atPeak.reduce((sum, row) => sum + (bytes[row] ?? 0), 0),
  };
}

export const LIVE_KEYS = [
  "layer",
  "category",
  "operation",
  "shape",
  "dtype",
  "bytes",
  "allocated",
  "freed",
  "line",
] as const;
export type LiveKey = (typeof LIVE_KEYS)[number];

export interface LiveSort {
  key: LiveKey;
  /** Against the key's usual direction: texts and times ascend, bytes descend. */
  reversed: boolean;
}

export const LARGEST_FIRST: LiveSort = { key: "bytes", reversed: false };

export const nextSort = ({ key, reversed }: LiveSort, clicked: LiveKey): LiveSort => ({
  key: clicked,
  reversed: key === clicked && !reversed,
});

export const ascends = ({ key, reversed }: LiveSort): boolean => (key === "bytes") === reversed;

const VALUES: Record<LiveKey, (timeline: Timeline, row: number) => string | number | null> = {
  layer: (timeline, row) => ownerOfRow(timeline, row).layer,
  category: (timeline, row) => categoryLabel(ownerOfRow(timeline, row).category),
  operation: whatText,
  shape: sizesOfRow,
  dtype: (timeline, row) => shapeOfRow(timeline, row)?.dtype ?? null,
  bytes: ({ bytes }, row) => bytes[row] ?? 0,
  allocated: ({ start }, row) => start[row] ?? 0,
  freed: ({ end }, row) => end[row] ?? 0,
  line: lineOfRow,
};

const natural = new Intl.Collator("en", { numeric: true });

export function sortedRows(timeline: Timeline, sort: LiveSort): Uint32Array {
  const value = VALUES[sort.key];
  const values = Array.from({ length: timeline.rows }, (_, row) => value(timeline, row));
  const sign = ascends(sort) ? 1 : -1;
  const compare = (a: string | number | null, b: string | number | null): number => {
    if (a === null || b === null) return Number(a === null) - Number(b === null);
    return (
      sign *
      (typeof a === "number" && typeof b === "number"
        ? a - b
        : natural.compare(String(a), String(b)))
    );
  };
  const bytes = (row: number): number => timeline.bytes[row] ?? 0;
  return Uint32Array.from({ length: timeline.rows }, (_, row) => row).sort(
    (a, b) =>
      compare(values[a] ?? null, values[b] ?? null) ||
      bytes(b) - bytes(a) ||
      (timeline.start[a] ?? 0) - (timeline.start[b] ?? 0),
  );
}

interface Flow {
  allocated_bytes: number;
  freed_bytes: number;
  allocated: number;
  freed: number;
}

export type SpanStatistics = ReturnType<typeof spanStatistics>;

const LARGEST = 5;

const none = (): Flow => ({ allocated_bytes: 0, freed_bytes: 0, allocated: 0, freed: 0 });

/**
 * Statistics from the first to the last moment of a span, both with their events. What lives before
 * the step is not allocated in it.
 *
 * @param total Bytes in use at each moment.
 */
export function spanStatistics(
  timeline: Timeline,
  total: Float64Array,
  [first, last]: readonly [number, number],
) {
  const all = none();
  const groups = new Map<string, Flow & { group: Group }>();
  const tensors = new Map<number, number>();
  const isIn = (moment: number): boolean => moment >= Math.max(first, 1) && moment <= last;
  for (let row = 0; row < timeline.rows; row += 1) {
    const [born, gone] = [isIn(timeline.start[row] ?? 0), isIn(timeline.end[row] ?? 0)];
    if (!born && !gone) continue;
    const group = groupOfOwner(ownerOfRow(timeline, row));
    const own = groups.get(groupKey(group)) ?? { ...none(), group };
    groups.set(groupKey(group), own);
    const bytes = timeline.bytes[row] ?? 0;
    // An allocation is counted once, not again with its rounding.
    const count = group.category === "rounding" ? 0 : (timeline.count[row] ?? 0);
    for (const flow of [all, own]) {
      if (born)
        [flow.allocated_bytes, flow.allocated] = [
          flow.allocated_bytes + bytes,
          flow.allocated + count,
        ];
      if (gone) [flow.freed_bytes, flow.freed] = [flow.freed_bytes + bytes, flow.freed + count];
    }
    const tensor = timeline.tensor[row] ?? 0;
    if (born) tensors.set(tensor, (tensors.get(tensor) ?? 0) + bytes);
  }
  let peak = first;
  for (let moment = first; moment <= last; moment += 1)
    if ((total[moment] ?? 0) > (total[peak] ?? 0)) peak = moment;
  const moved = (flow: Flow): number => flow.allocated_bytes + flow.freed_bytes;
  return {
    ...all,
    peak,
    peak_bytes: total[peak] ?? 0,
    largest: [...tensors]
      .sort((a, b) => b[1] - a[1])
      .slice(0, LARGEST)
      .map(([tensor]) => tensor),
    groups: [...groups.values()].sort((a, b) => moved(b) - moved(a)),
  };
}

/**
 * Memory of variables and the input pipeline, which no Python object of the program holds as a
 * tensor.
 */
const OWNED: ReadonlySet<Category> = new Set<Category>([
  "weights",
  "optimizer_state",
  "other_state",
  "inputs",
  "rounding",
]);

const outlives = ({ end, moments }: Timeline, row: number): boolean => (end[row] ?? 0) >= moments;

/** Whether something in Python may keep the tensor of a row alive after the step. */
export const isHeld = (timeline: Timeline, row: number): boolean =>
  outlives(timeline, row) && !OWNED.has(ownerOfRow(timeline, row).category);

/**
 * Rows that the step allocated and did not free, without rounding and new values in place of freed
 * ones, such as weights.
 */
export function survivors(timeline: Timeline, rows: Iterable<number>): number[] {
  const { start, owner, bytes } = timeline;
  const key = (row: number): string => `${owner[row]}/${bytes[row]}`;
  const freed = new Map<string, number>();
  for (let row = 0; row < timeline.rows; row += 1) {
    if (start[row] === 0 && !outlives(timeline, row))
      freed.set(key(row), (freed.get(key(row)) ?? 0) + 1);
  }
  return [...rows].filter((row) => {
    if (
      start[row] === 0 ||
      !outlives(timeline, row) ||
      ownerOfRow(timeline, row).category === "rounding"
    )
      return false;
    const left = freed.get(key(row)) ?? 0;
    freed.set(key(row), left - 1);
    return left <= 0;
  });
}
