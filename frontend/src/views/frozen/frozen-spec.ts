/** The chart of frozen layers, trainable layers and the rest. Pure. */

import { byteRange } from "../../charts/axis";
import { stackLayout } from "../../charts/layout";
import { stackPainter, stepPainter, type Painter } from "../../charts/paint";
import { platePainter } from "../../charts/rules";
import { lowerBound } from "../../lib/search";
import { isPersistent, type SidePart } from "../../model/frozen";
import { effects, type Overview } from "../../model/overview";
import type { Choices } from "../../state/address";
import { INKS, fillOf, type Fill, type Ink, type Scheme } from "../../theme/palette";
import { isMuted, type Focus } from "../shared/focus";
import {
  AXIS_INKS,
  capacityPainters,
  changeRules,
  epochLane,
  headroom,
  highest,
  placesOf,
  tracedSpans,
  type Picture,
  type Places,
} from "../shared/frame";

/** A category keeps its colour; the frozen layers' part has the diagonal pattern. */
export const sideFill = (part: SidePart, scheme: Scheme): Fill => fillOf(part.category, part.side === "frozen" ? false : null, scheme);

export const sideKey = (part: SidePart): string => `${part.side}:${part.category}`;

/** Upper boundary of the persistent parts of some sides. */
function boundary(parts: readonly SidePart[], sides: readonly string[], rows: number): Float64Array {
  const sum = new Float64Array(rows);
  for (const part of parts.filter((one) => isPersistent(one) && sides.includes(one.side)))
    part.bytes.forEach((value, row) => (sum[row] = (sum[row] ?? 0) + value));
  return sum;
}

/** The labels "frozen layers" and "trainable layers" at the left end of their persistent areas. */
function plates(frozen: Float64Array, both: Float64Array, overview: Overview, places: Places, ink: Ink): Painter[] {
  const row = Math.min(lowerBound(places.x, places.range[0]), overview.rows - 1);
  const [low, high] = [frozen[row] ?? 0, both[row] ?? 0];
  return [
    platePainter(0, low, "frozen layers", ink.text, ink.background),
    platePainter(low, high - low, "trainable layers", ink.text, ink.background),
  ];
}

export function frozenPicture(
  overview: Overview,
  parts: readonly SidePart[],
  start: number,
  choices: Choices,
  scheme: Scheme,
  focus: Focus,
): Picture {
  const ink = INKS[scheme];
  const places = placesOf(overview, start, choices);
  const stack = stackLayout(
    places.x,
    parts.map(({ bytes }) => bytes),
  );
  const layout = { ...stack, edges: places.edges };
  const fills = parts.map((part) => ({
    ...sideFill(part, scheme),
    muted: isMuted(focus, [sideKey(part), part.side], part.category),
  }));
  const capacity = highest(overview.capacity_bytes, places.x, places.range) || null;
  const { max, capacityInside } = byteRange(highest(overview.peak_bytes, places.x, places.range), capacity);
  const frozen = boundary(parts, ["frozen"], overview.rows);
  const both = boundary(parts, ["frozen", "trainable"], overview.rows);
  const edge = { colour: ink.line, width: 1, dash: [2, 2] };
  const painters: Painter[] = [
    stackPainter(layout, fills, tracedSpans(places, overview.traced), ink.background),
    stepPainter(places.edges, frozen, edge),
    stepPainter(places.edges, both, edge),
    ...changeRules(overview, places, choices.axis, ink),
    ...plates(frozen, both, overview, places, ink),
    stepPainter(places.edges, overview.peak_bytes, { colour: ink.line, width: 1.5, dash: [] }),
  ];
  painters.push(...capacityPainters(places.edges, overview.capacity_bytes, capacityInside, ink));
  const lane = overview.epochs.length > 0;
  return {
    places,
    layout,
    spec: {
      x: places.x,
      xKind: choices.axis,
      range: places.range,
      yKind: "bytes",
      yMax: max,
      headroom: headroom(effects(overview).length + overview.failures.length > 0, lane),
      inks: AXIS_INKS[scheme],
      ...(places.rowAt && { rowAt: places.rowAt }),
      painters,
      lanes: lane ? [epochLane(overview, places, choices.axis, ink, ink.text)] : [],
    },
  };
}
