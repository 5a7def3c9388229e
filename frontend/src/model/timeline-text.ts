/** A step's timeline in words: passes, times, rows and moments. */

import { formatBytes, formatMilliseconds, plural, formatCount, formatExact, type Table, tableOf } from "../lib/bytes";
import { lowerBound } from "../lib/search";
import { groupLabel, groupOfOwner } from "./categories";
import { dtypeBytes } from "./layers";
import { at } from "./overview";
import { NOT_TIED } from "./run";
import { sizesText } from "./snapshot";
import { bandOf, isLive, opOfRow, ownerOfRow, lineOfRow, shapeOfRow, type Series, type Timeline } from "./timeline";
import type { BandName, TensorShape } from "../schema";

export interface Tensor {
  number: number;
  /** Its rows: the requested bytes first, then the rounding. */
  rows: number[];
  bytes: number;
  requested_bytes: number | null;
  rounding_bytes: number | null;
  address: number | null;
  shape: TensorShape | null;
  line: string | null;
}

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

const BAND_LABELS: Record<BandName, string> = {
  forward: "forward",
  backward: "backward",
  backward_and_update: "backward + update",
  update: "update",
};

const BAND_MEANINGS: Record<BandName, string> = {
  forward: "forward pass, up to the last layer op before the backward pass",
  backward: "backward pass, before any weight update",
  backward_and_update: "backward pass, while weights with finished gradients are updated",
  update: "optimizer updates the remaining weights",
};

export const bandLabel = (name: BandName): string => BAND_LABELS[name];
export const bandMeaning = (name: BandName): string => BAND_MEANINGS[name];

/** Time of a moment in milliseconds since the trace's first event. */
const milliseconds = (timeline: Timeline, moment: number): number => (timeline.time_ns[moment] ?? timeline.duration_ns) / 1e6;

export const timeText = (timeline: Timeline, moment: number): string => formatMilliseconds(milliseconds(timeline, moment));

/** "12.3 ms", or "before" if allocated before the step. */
export const sinceText = (timeline: Timeline, row: number): string =>
  (timeline.start[row] ?? 0) === 0 ? "before" : timeText(timeline, timeline.start[row] ?? 0);

/** "12.3 ms", or "after" if live after the step. */
export const untilText = (timeline: Timeline, row: number): string =>
  (timeline.end[row] ?? 0) >= timeline.moments ? "after" : timeText(timeline, timeline.end[row] ?? 0);

export function whatText(timeline: Timeline, row: number): string {
  const count = timeline.count[row] ?? 1;
  if (count > 1) return plural(count, "smaller allocation");
  if (count === 0) return "allocations unknown";
  const op = opOfRow(timeline, row);
  if (op !== null) return op;
  return (timeline.start[row] ?? 0) === 0 ? "allocated before the step" : "operation unknown";
}

export function rowFacts(timeline: Timeline, row: number): string[] {
  const owner = ownerOfRow(timeline, row);
  const since = (timeline.start[row] ?? 0) === 0 ? "allocated before the step" : `allocated at ${sinceText(timeline, row)}`;
  const until = (timeline.end[row] ?? 0) >= timeline.moments ? "live after the step" : `freed at ${untilText(timeline, row)}`;
  const what = whatText(timeline, row);
  return [
    `${owner.layer ?? NOT_TIED}: ${groupLabel(groupOfOwner(owner))}`,
    ...(what === since ? [] : [what]),
    `${since}, ${until}`,
    `the trace, step ${timeline.step}`,
  ];
}

/** "12.3 ms to 15 ms: 2.7 ms"; "throughout the step". */
export function lifetimeText(timeline: Timeline, row: number): string {
  const [start, end] = [timeline.start[row] ?? 0, timeline.end[row] ?? 0];
  const [before, after] = [start === 0, end >= timeline.moments];
  if (before && after) return "throughout the step";
  if (before) return `from before the step to ${untilText(timeline, row)}`;
  if (after) return `${sinceText(timeline, row)} to after the step`;
  const length = formatMilliseconds(milliseconds(timeline, end) - milliseconds(timeline, start));
  return `${sinceText(timeline, row)} to ${untilText(timeline, row)}: ${length}`;
}

export function tensorLines(timeline: Timeline, tensor: Tensor): string[] {
  const row = tensor.rows[0] ?? 0;
  const owner = ownerOfRow(timeline, row);
  return [
    `${formatBytes(tensor.bytes)}${tensor.shape ? ` · ${shapeText(tensor.shape)}` : ""}`,
    `${owner.layer ?? NOT_TIED}: ${groupLabel(groupOfOwner(owner))}`,
    whatText(timeline, row),
    lifetimeText(timeline, row),
    ...(tensor.line === null ? [] : [tensor.line]),
  ];
}

export const atPeakText = (timeline: Timeline, row: number): string => (isLive(timeline, row, timeline.peak) ? "yes" : "no");

/** "at 12.3 ms, forward: 1.2 GiB in use; activations 600 MiB; …", largest first: text for screen readers. */
export function momentSentence(timeline: Timeline, series: readonly Series[], labels: readonly string[], moment: number): string {
  const parts = series
    .map(({ bytes }, index) => ({ label: labels[index] ?? "", bytes: bytes[moment] ?? 0 }))
    .filter(({ bytes }) => bytes > 0)
    .sort((a, b) => b.bytes - a.bytes);
  const total = parts.reduce((sum, { bytes }) => sum + bytes, 0);
  const band = bandOf(timeline, moment);
  const where = [
    `at ${timeText(timeline, moment)}`,
    ...(band ? [bandLabel(band.name)] : []),
    ...(moment === timeline.peak ? ["peak"] : []),
  ];
  return [`${where.join(", ")}: ${formatBytes(total)} in use`, ...parts.map(({ label, bytes }) => `${label} ${formatBytes(bytes)}`)].join(
    "; ",
  );
}

/** All rows; unknown values are null. Rows of one `tensor` are its requested bytes and its rounding. */
export function timelineFile(timeline: Timeline): Table {
  const timeOf = (moment: number | undefined): number | null => timeline.time_ns[moment ?? -1] ?? null;
  return tableOf([...timeline.start.keys()], {
    layer: (row) => ownerOfRow(timeline, row).layer,
    category: (row) => ownerOfRow(timeline, row).category,
    trainable: (row) => ownerOfRow(timeline, row).trainable,
    operation: (row) => opOfRow(timeline, row),
    shape: (row) => sizesOfRow(timeline, row),
    dtype: (row) => shapeOfRow(timeline, row)?.dtype ?? null,
    bytes: (row) => at(timeline.bytes, row),
    // An allocation is counted once, not again with its rounding.
    count: (row) => (ownerOfRow(timeline, row).category === "rounding" ? 0 : at(timeline.count, row)),
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
