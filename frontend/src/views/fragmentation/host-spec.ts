/** Host memory over the steps: RSS, and its parts, lighter where they are those of an earlier step. Pure. */

import { byteRange, xValues } from "../../charts/axis";
import { barsPainter, betweenPainter } from "../../charts/band-paint";
import { stepPainter, type Painter } from "../../charts/paint";
import type { PlotSpec } from "../../charts/plot";
import { isMeasured, measuredRows, shownParts, type HostMemory, type HostPart } from "../../model/host-memory";
import type { Choices } from "../../state/address";
import { INKS, type Fill, type Scheme } from "../../theme/palette";
import { AXIS_INKS, cellAt, edgesOf, highest, rangeOf, rangeOfSome } from "../shared/frame";

const COLOURS: Record<Scheme, Record<HostPart, string>> = {
  light: {
    file_bytes: "#6f7a8c",
    shared_memory_bytes: "#1d8a99",
    python_objects_bytes: "#2453b8",
    cpu_pool_bytes: "#0f8a60",
    other_bytes: "#b9650b",
  },
  dark: {
    file_bytes: "#9aa5b8",
    shared_memory_bytes: "#5cc4d2",
    python_objects_bytes: "#7ba2f5",
    cpu_pool_bytes: "#4fd0a0",
    other_bytes: "#f7b552",
  },
};

const INFERRED = 0.45;

export const hostFill = (name: HostPart, scheme: Scheme): Fill => ({
  colour: COLOURS[scheme][name],
  pattern: name === "other_bytes" ? "diagonal" : "plain",
});

/** The upper edge of each part, from the bottom up; no part reaches above the RSS of its row, and the remainder fills up to it. */
export function boundaries(host: HostMemory, parts: readonly HostPart[]): Float64Array[] {
  const from = measuredRows(host);
  const below = new Float64Array(host.rows);
  return parts.map((name) =>
    below.map((low, row) => {
      const [source, resident] = [from[row] ?? -1, host.host_resident_bytes[row] as number];
      if (source < 0) return (below[row] = NaN);
      const bytes = host[name][source] as number;
      return (below[row] = name === "other_bytes" ? resident : Math.min(low + (Number.isNaN(bytes) ? 0 : bytes), resident));
    }),
  );
}

export function hostSpec(host: HostMemory, choices: Choices, scheme: Scheme, span: readonly [number, number] | null): PlotSpec {
  const x = xValues(choices.axis, host.step, host.wall_time, host.wall_time.find((time) => !Number.isNaN(time)) ?? 0);
  const edges = edgesOf(x, choices.axis, host.phase, null);
  const range = rangeOfSome(host.step, x, choices, span) ?? rangeOf(edges);
  const { background, line } = INKS[scheme];
  const parts = shownParts(host);
  const tops = boundaries(host, parts);
  const measured = Array.from(x.keys()).filter((row) => isMeasured(host, row));
  const painters = parts.flatMap((name, index): Painter[] => {
    const [low, high] = [tops[index - 1] ?? new Float64Array(host.rows), tops[index] as Float64Array];
    const band = { ...hostFill(name, scheme), muted: false };
    return [betweenPainter(edges, low, high, band, background, INFERRED), barsPainter(edges, measured, low, high, band, background)];
  });
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
