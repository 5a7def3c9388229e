/** Where the tensors of a step lie above each other: stacked, or in the order of their addresses. */

import { CATEGORIES, PERSISTENT } from "./categories";
import { isLive, ownerOfRow, type Timeline } from "./timeline";

/** Rank of a row by how long it lives: persistent categories, others that live throughout, persistent ones for a part, transient ones. */
function lifetimeRank(timeline: Timeline, row: number): number {
  const { category, trainable } = ownerOfRow(timeline, row);
  const place = CATEGORIES.indexOf(category);
  const whole = timeline.start[row] === 0 && (timeline.end[row] ?? 0) >= timeline.moments;
  if (whole) return 2 * place + (category === "weights" && trainable !== false ? 1 : 0);
  return 2 * CATEGORIES.length + (PERSISTENT.includes(category) ? 0 : 1);
}

/**
 * All rows, the lowest of the stack first: what lives throughout by category and size, then the others as they are allocated, of those at
 * one moment the longest-lived first. The rounding of a tensor follows it.
 */
export function stackOrder(timeline: Timeline): Uint32Array {
  const { rows, tensor, start, end, bytes } = timeline;
  // The first row of each tensor decides, so that its rounding stays with it.
  const head = new Uint32Array(rows);
  for (let row = 1; row < rows; row += 1) head[row] = tensor[row] === tensor[row - 1] ? (head[row - 1] ?? row) : row;
  const rank = Float64Array.from({ length: rows }, (_, row) => (head[row] === row ? lifetimeRank(timeline, row) : 0));
  const at = (column: Float64Array, row: number): number => column[row] ?? 0;
  const transient = 2 * CATEGORIES.length;
  return Uint32Array.from({ length: rows }, (_, row) => row).sort((one, other) => {
    const [a, b] = [head[one] ?? one, head[other] ?? other];
    if (a === b) return one - other;
    const byRank = at(rank, a) - at(rank, b);
    if (byRank !== 0) return byRank;
    const byLife = at(rank, a) >= transient ? at(start, a) - at(start, b) || at(end, b) - at(end, a) : 0;
    return byLife || at(bytes, b) - at(bytes, a) || a - b;
  });
}

/** The rows at their addresses. */
export interface AddressPlaces {
  /** Lower end of each row in bytes from the ground of the chart; NaN where the address is unknown. */
  place: Float64Array;
  /** Upper end of the highest row. */
  height: number;
  /** Places at which a range of addresses that the step never uses is cut out. */
  cuts: number[];
  /** Tensors without a known address, and their bytes at the peak. */
  unknown: number;
  unknown_bytes: number;
}

/** Unused ranges above this share of the used addresses are cut down to it: regions may lie terabytes apart. */
const LONGEST_GAP = 1 / 16;

/** Null if no address is known. */
export function addressPlaces(timeline: Timeline): AddressPlaces | null {
  const { address, bytes, rows } = timeline;
  const known = Array.from({ length: rows }, (_, row) => row).filter((row) => !Number.isNaN(address[row]));
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
  const missing = Array.from({ length: rows }, (_, row) => row).filter((row) => Number.isNaN(place[row]));
  const atPeak = missing.filter((row) => isLive(timeline, row, peak));
  return {
    unknown: new Set(missing.map((row) => tensor[row])).size,
    unknown_bytes: atPeak.reduce((sum, row) => sum + (bytes[row] ?? 0), 0),
  };
}
