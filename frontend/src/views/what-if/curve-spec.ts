/** The predicted peak over the batch size. Pure. */

import { byteRange, type Range } from "../../charts/axis";
import { bandPainter, linePainter, diamondsPainter, pointsPainter } from "../../charts/paint";
import type { PlotSpec } from "../../charts/plot";
import { capacityPainter, ruleAcross } from "../../charts/rules";
import { formatBytes, formatCount } from "../../lib/bytes";
import type { WhatIf } from "../../model/what-if";
import { INKS, type Scheme } from "../../theme/palette";
import type { ChartMark } from "../shared/chart";
import { AXIS_INKS } from "../shared/frame";

const COLOUR: Record<Scheme, string> = { light: "#2453b8", dark: "#7ba2f5" };
const BAND = 0.22;

export const curveColour = (scheme: Scheme): string => COLOUR[scheme];

/** All batch sizes of the curve, from 0. */
export const wholeRange = ({ curve }: WhatIf): Range => [0, Math.max(curve.at(-1)?.batch_size ?? 1, 1) * 1.02];

/** The batch size that was measured and its peak; null if either is unknown. */
export function measuredPoint({ recorded: { batch_sizes, peak_bytes } }: WhatIf): { x: number; y: number } | null {
  const x = batch_sizes.at(-1);
  return x === undefined || peak_bytes === null ? null : { x, y: peak_bytes };
}

/** The largest batch size that fits. */
export function largestMark({ largest_batch_size: largest, capacity_bytes: capacity }: WhatIf): ChartMark[] {
  if (!largest) return [];
  const room = capacity === null ? "" : ` in ${formatBytes(capacity)}`;
  const sentence = `${formatCount(largest)} is the largest batch size at which every simulated step fits${room}.`;
  return [{ x: largest, step: largest, label: `largest: ${formatCount(largest)}`, sentence }];
}

/** The range of a zoom inside the whole one; null if it is narrower than from one batch size to the next. */
export function zoomedRange(from: number, to: number, whole: Range): Range | null {
  const [least, most] = [Math.max(from, whole[0]), Math.min(to, whole[1])];
  return most - least >= 1 ? [least, most] : null;
}

export function curveSpec(answer: WhatIf, range: Range, scheme: Scheme): PlotSpec {
  const { curve, capacity_bytes: capacity, largest_batch_size: largest } = answer;
  const ink = INKS[scheme];
  const x = Float64Array.from(curve, ({ batch_size }) => batch_size);
  const [low, peak, high] = (["low_bytes", "peak_bytes", "high_bytes"] as const).map((name) =>
    Float64Array.from(curve, (one) => one[name]),
  ) as [Float64Array, Float64Array, Float64Array];
  const measured = measuredPoint(answer);
  // The first point right of the range counts: the curve leads up to it.
  const beyond = curve.findIndex(({ batch_size }) => batch_size >= range[1]);
  const seen = curve.slice(0, beyond < 0 ? undefined : beyond + 1);
  const top = Math.max(measured?.y ?? 0, ...seen.map(({ high_bytes }) => high_bytes));
  // The label stands away from where the curve meets the line.
  const end = largest !== null && 2 * largest > range[0] + range[1] ? "left" : "right";
  const { max, capacityInside } = byteRange(top, capacity);
  return {
    x,
    xKind: "step",
    range,
    yKind: "bytes",
    yMax: max,
    headroom: 34,
    inks: AXIS_INKS[scheme],
    painters: [
      bandPainter(x, low, high, COLOUR[scheme], BAND),
      ...(largest ? [ruleAcross(largest, ink.accent, [3, 3])] : []),
      ...(capacity === null ? [] : [capacityPainter(capacity, `capacity ${formatBytes(capacity)}`, capacityInside, ink, end)]),
      linePainter(x, peak, COLOUR[scheme], 1.75),
      pointsPainter(x, peak, COLOUR[scheme], { rows: (row) => curve[row]?.fits !== true, ground: ink.background }),
    ],
    lanes: measured && measured.x <= range[1] && measured.x >= range[0] ? [diamondsPainter([measured], ink.line, ink.background)] : [],
  };
}
