/** The chart of one stack of bytes. Pure. */

import type { Range, XKind } from "../../charts/axis";
import type { StackLayout } from "../../charts/layout";
import { stackPainter, type BandFill } from "../../charts/paint";
import type { PlotSpec } from "../../charts/plot";
import { INKS, type Scheme } from "../../theme/palette";
import { AXIS_INKS } from "./frame";

interface Stack {
  x: Float64Array;
  xKind: XKind;
  range: Range;
  layout: StackLayout;
  fills: readonly BandFill[];
  /** Where it was measured. */
  full: Parameters<typeof stackPainter>[2];
}

export function stackSpec({ x, xKind, range, layout, fills, full }: Stack, scheme: Scheme): PlotSpec {
  const top = layout.tops.at(-1)?.reduce((most, value) => Math.max(most, value), 1) ?? 1;
  return {
    x,
    xKind,
    range,
    yKind: "bytes",
    yMax: top * 1.08,
    headroom: 8,
    inks: AXIS_INKS[scheme],
    painters: [stackPainter(layout, fills, full, INKS[scheme].background)],
    lanes: [],
  };
}
