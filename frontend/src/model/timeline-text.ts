/** A step's timeline in words: passes, times, rows and moments. */

import { formatBytes } from "../lib/bytes";
import { formatMilliseconds, plural } from "../lib/format";
import { groupLabel } from "./categories";
import { NOT_TIED } from "./names";
import { shapeText, type Tensor } from "./timeline-tensor";
import { bandOf, groupOfOwner, isLive, opOfRow, ownerOfRow, type BandName, type Series, type Timeline } from "./timeline";

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

/** The operation of a row, or the number of its allocations. */
export function whatText(timeline: Timeline, row: number): string {
  const count = timeline.count[row] ?? 1;
  if (count > 1) return plural(count, "smaller allocation");
  if (count === 0) return "allocations unknown";
  const op = opOfRow(timeline, row);
  if (op !== null) return op;
  return (timeline.start[row] ?? 0) === 0 ? "allocated before the step" : "operation unknown";
}

/** Facts of a row besides its bytes, as lines. */
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

/** A tensor in a few lines: bytes, owner, shape, operation, lifetime, Python line. Unknown parts are left out. */
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

/** "yes", or "no". */
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
