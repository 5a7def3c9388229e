/** One tensor of a step's timeline, with all that is known of it. */

import { formatBytes, formatCount, formatExact } from "../lib/bytes";
import { lowerBound } from "../lib/search";
import { dtypeBytes } from "./formula";
import { at } from "./overview";
import { isLive, lineOfRow, ownerOfRow, shapeOfRow, type TensorShape, type Timeline } from "./timeline";
import { sizesText } from "./traced-details";

export interface Tensor {
  number: number;
  /** Its rows: the requested bytes first, then the rounding. */
  rows: number[];
  bytes: number;
  /** Null where unknown. */
  requested_bytes: number | null;
  rounding_bytes: number | null;
  address: number | null;
  shape: TensorShape | null;
  line: string | null;
}

/** The tensor of a number, null if the timeline has none. */
export function tensorOf(timeline: Timeline, number: number): Tensor | null {
  const rows: number[] = [];
  for (let row = lowerBound(timeline.tensor, number); timeline.tensor[row] === number; row += 1) rows.push(row);
  const [first] = rows;
  if (first === undefined) return null;
  const bytes = rows.reduce((sum, row) => sum + (timeline.bytes[row] ?? 0), 0);
  const rounding = at(timeline.rounding_bytes, first);
  return {
    number,
    rows,
    bytes,
    requested_bytes: rounding === null ? null : bytes - rounding,
    rounding_bytes: rounding,
    address: at(timeline.address, first),
    shape: shapeOfRow(timeline, first),
    line: lineOfRow(timeline, first),
  };
}

/** Numbers of the tensors of some rows, each once, in the order of their first rows. */
export const tensorStops = (timeline: Timeline, rows: readonly number[]): number[] => [
  ...new Set(rows.map((row) => timeline.tensor[row] ?? -1)),
];

/** The tensor with the most bytes at a moment among single allocations with a known owner, null if there is none. */
export function largestTensor(timeline: Timeline, moment: number): number | null {
  let best = -1;
  for (let row = 0; row < timeline.rows; row += 1) {
    // What fails for most rows comes first.
    if (!isLive(timeline, row, moment) || (best >= 0 && (timeline.bytes[row] ?? 0) <= (timeline.bytes[best] ?? 0))) continue;
    const { category } = ownerOfRow(timeline, row);
    if (timeline.count[row] === 1 && category !== "rounding" && category !== "unattributed") best = row;
  }
  return best < 0 ? null : (timeline.tensor[best] ?? null);
}

/** "(64, 32, 32, 3) float32". */
export const shapeText = ({ shape, dtype }: TensorShape): string => `${sizesText(shape)} ${dtype}`;

/** "64 × 32 × 32 × 3 × 4 B = 786,432 B"; null for a dtype of unknown size. */
export function sizeFormula({ shape, dtype }: TensorShape): string | null {
  const one = dtypeBytes(dtype);
  if (one === null) return null;
  const bytes = shape.reduce((product, size) => product * size, one);
  return `${[...shape.map(formatCount), `${one} B`].join(" × ")} = ${formatExact(bytes)}`;
}

/** "1.5 MiB (1,572,864 B)"; "unknown" for null. */
export const sizeText = (bytes: number | null): string =>
  bytes === null ? "unknown" : bytes < 1024 ? formatExact(bytes) : `${formatBytes(bytes)} (${formatExact(bytes)})`;
