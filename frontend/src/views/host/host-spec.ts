/** Host memory over the steps: RSS, and its parts where they were measured. Pure. */

import { byteRange, xValues } from "../../charts/axis";
import { barsPainter, betweenPainter, stepPainter, type Painter } from "../../charts/paint";
import type { PlotSpec } from "../../charts/plot";
import { isMeasured, shownParts, type HostMemory, type HostPart } from "../../model/host-memory";
import { at } from "../../model/overview";
import type { Choices } from "../../state/address";
import { INKS, type Fill, type Scheme } from "../../theme/palette";
import { AXIS_INKS, cellAt, edgesOf, highest, rangeOf, rangeOfSome } from "../shared/frame";

const COLOURS: Record<Scheme, Record<HostPart, string>> = {
  light: {
    pinned_pool_bytes: "#8a4fb0",
    tf_data_bytes: "#2453b8",
    cpu_bytes: "#0f8a60",
    other_bytes: "#b9650b",
  },
  dark: {
    pinned_pool_bytes: "#c79bea",
    tf_data_bytes: "#7ba2f5",
    cpu_bytes: "#4fd0a0",
    other_bytes: "#f7b552",
  },
};

export const hostFill = (name: HostPart, scheme: Scheme): Fill => ({
  colour: COLOURS[scheme][name],
  pattern: name === "other_bytes" ? "diagonal" : "plain",
});

/** The upper edge of each part from the bottom up, NaN where the parts were not measured. */
export function boundaries(host: HostMemory, parts: readonly HostPart[]): Float64Array[] {
  let below = host.other_bytes.map((bytes) => bytes * 0);
  return parts.map((name) => {
    below = below.map((low, row) => low + (at(host[name], row) ?? 0));
    return below;
  });
}

export function hostSpec(host: HostMemory, choices: Choices, scheme: Scheme, span: readonly [number, number] | null): PlotSpec {
  const x = xValues(choices.axis, host.step, host.wall_time, host.wall_time.find((time) => !Number.isNaN(time)) ?? 0);
  const edges = edgesOf(x, choices.axis, host.phase, null);
  const range = rangeOfSome(host.step, x, choices, span) ?? rangeOf(edges);
  const { background, faint, line } = INKS[scheme];
  const parts = shownParts(host);
  const tops = boundaries(host, parts);
  const measured = Array.from(x.keys()).filter((row) => isMeasured(host, row));
  const zero = new Float64Array(host.rows);
  const painters: Painter[] = [
    betweenPainter(edges, zero, host.host_resident_bytes, { colour: faint, pattern: "hatched", muted: false }, background, 0.3),
    ...parts.map((name, index) => {
      const band = { ...hostFill(name, scheme), muted: false };
      return barsPainter(edges, measured, tops[index - 1] ?? zero, tops[index] ?? zero, band, background);
    }),
  ];
  painters.push(stepPainter(edges, host.host_resident_bytes, { colour: line, width: 1.75, dash: [] }));
  const { max } = byteRange(highest(host.host_resident_bytes, x, range), null);
  return {
    x,
    xKind: choices.axis,
    range,
    headroom: 8,
    inks: AXIS_INKS[scheme],
    lanes: [],
    yKind: "bytes",
    yMax: max,
    painters,
    ...(host.phase === "validation" && { rowAt: cellAt(edges) }),
  };
}
