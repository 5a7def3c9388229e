/** The measured peaks of two runs over each other. Pure. */

import { byteRange, cellEdges, xValues, type Range } from "../../charts/axis";
import { stepPainter } from "../../charts/paint";
import type { PlotSpec } from "../../charts/plot";
import { capacityPainter, ruleAcross } from "../../charts/rules";
import { formatBytes } from "../../lib/bytes";
import { lowerBound } from "../../lib/search";
import type { Overview } from "../../model/overview";
import type { Choices } from "../../state/address";
import { INKS, type Scheme } from "../../theme/palette";
import { AXIS_INKS, highest, lastKnown, placesOf, rangeOf, startOf } from "../shared/frame";

export interface Curve {
  overview: Overview;
  colour: string;
  dash: readonly number[];
  /** The row that is compared. */
  row: number;
}

export function compareSpec(a: Curve, b: Curve, choices: Choices, scheme: Scheme): PlotSpec {
  const ink = INKS[scheme];
  const places = placesOf(a.overview, startOf(a.overview), choices);
  const others = xValues(choices.axis, b.overview.step, b.overview.wall_time, startOf(b.overview));
  const edges = cellEdges(others);
  const whole = rangeOf(edges);
  const range: Range = choices.zoom === null ? [Math.min(places.range[0], whole[0]), Math.max(places.range[1], whole[1])] : places.range;
  const peak = Math.max(highest(a.overview.peak_bytes, places.x, range), highest(b.overview.peak_bytes, others, range));
  const capacity = lastKnown(a.overview.capacity_bytes);
  const { max, capacityInside } = byteRange(peak, capacity);
  const rule = (x: Float64Array, row: number, colour: string) => (x[row] === undefined ? [] : [ruleAcross(x[row], colour, [2, 3])]);
  return {
    x: places.x,
    xKind: choices.axis,
    range,
    yKind: "bytes",
    yMax: max,
    headroom: 8,
    inks: AXIS_INKS[scheme],
    painters: [
      ...rule(others, b.row, b.colour),
      ...rule(places.x, a.row, a.colour),
      stepPainter(edges, b.overview.peak_bytes, { colour: b.colour, width: 1.75, dash: b.dash }),
      stepPainter(places.edges, a.overview.peak_bytes, { colour: a.colour, width: 1.75, dash: a.dash }),
      ...(capacity === null ? [] : [capacityPainter(capacity, `capacity ${formatBytes(capacity)}`, capacityInside, ink)]),
    ],
    lanes: [],
  };
}

/** The row of a step, of the highest peak for null; the last row before it where the step is past the end. */
export function rowFor(overview: Overview, step: number | null, peak: number): number {
  if (step === null) return peak;
  return Math.min(lowerBound(overview.step, step), overview.rows - 1);
}
