/** The predicted peak over the batch size. Pure. */

import { byteRange, type Range } from "../../charts/axis";
import { bandPainter, linePainter } from "../../charts/curve-paint";
import { diamondsPainter, pointsPainter } from "../../charts/paint";
import type { PlotSpec } from "../../charts/plot";
import { capacityPainter, ruleAcross } from "../../charts/rules";
import { formatBytes, formatCount } from "../../lib/bytes";
import type { WhatIf } from "../../model/what-if";
import { INKS, type Scheme } from "../../theme/palette";
import type { ChartMark } from "../shared/chart";
import { AXIS_INKS } from "../shared/frame";

const COLOUR: Record<Scheme, string> = { light: "#2453b8", dark: "#7ba2f5" };
const BAND = 0.22;
/** Beside the curve, in doublings of the batch size. */
const ROOM = 0.15;

export const curveColour = (scheme: Scheme): string => COLOUR[scheme];

/** The places of all batch sizes of the curve, with some room at both ends. */
export const wholeRange = ({ curve }: WhatIf): Range => [
  Math.log2(curve[0]?.batch_size ?? 1) - ROOM,
  Math.log2(curve.at(-1)?.batch_size ?? 1) + ROOM,
];

/** The batch size that was measured and its peak; null if either is unknown. */
export function measuredPoint({ recorded: { batch_sizes, peak_bytes } }: WhatIf): { batchSize: number; peak: number } | null {
  const batchSize = batch_sizes.at(-1);
  return batchSize === undefined || peak_bytes === null ? null : { batchSize, peak: peak_bytes };
}

/** The largest batch size that passes. */
export function largestMark({ largest_batch_size: largest, capacity_bytes: capacity }: WhatIf): ChartMark[] {
  if (largest === null) return [];
  const room = capacity === null ? "" : ` in ${formatBytes(capacity)}`;
  const sentence = `${formatCount(largest)} is the largest batch size of which every simulated step passes${room}.`;
  return [{ x: Math.log2(largest), step: largest, label: `largest: ${formatCount(largest)}`, sentence }];
}

export function curveSpec(answer: WhatIf, range: Range, scheme: Scheme): PlotSpec {
  const { curve, capacity_bytes: capacity, largest_batch_size: largest } = answer;
  const ink = INKS[scheme];
  const x = Float64Array.from(curve, ({ batch_size }) => Math.log2(batch_size));
  const [low, peak, high] = (["low_bytes", "peak_bytes", "high_bytes"] as const).map((name) =>
    Float64Array.from(curve, (one) => one[name]),
  ) as [Float64Array, Float64Array, Float64Array];
  const measured = measuredPoint(answer);
  // The first point right of the range counts: the curve leads up to it.
  const end = x.findIndex((place) => place >= range[1]);
  const seen = curve.slice(0, end < 0 ? undefined : end + 1);
  const top = Math.max(measured?.peak ?? 0, ...seen.map(({ high_bytes }) => high_bytes));
  const { max, capacityInside } = byteRange(top, capacity);
  return {
    x,
    xKind: "batch size",
    range,
    yKind: "bytes",
    yMax: max,
    headroom: 34,
    inks: AXIS_INKS[scheme],
    painters: [
      bandPainter(x, low, high, COLOUR[scheme], BAND),
      ...(largest === null ? [] : [ruleAcross(Math.log2(largest), ink.accent, [3, 3])]),
      ...(capacity === null ? [] : [capacityPainter(capacity, `capacity ${formatBytes(capacity)}`, capacityInside, ink.capacity)]),
      linePainter(x, peak, COLOUR[scheme], 1.75),
      pointsPainter(x, peak, COLOUR[scheme]),
    ],
    lanes: measured ? [diamondsPainter([{ x: Math.log2(measured.batchSize), y: measured.peak }], ink.line, ink.background)] : [],
  };
}
