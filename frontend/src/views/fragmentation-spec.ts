/** The pool and its free blocks at traced steps. Pure. */

import { byteRange, cellEdges, xValues } from "../charts/axis";
import { pointsPainter, type LineStyle } from "../charts/paint";
import type { PlotSpec } from "../charts/plot";
import { capacityPainter } from "../charts/rules";
import { formatBytes, formatExact } from "../lib/bytes";
import { formatShare } from "../lib/format";
import { poolParts, type PoolParts, type SnapshotSummary } from "../model/snapshot";
import { WORDS, type WordName } from "../model/words";
import type { Choices } from "../state/address";
import { INKS, type Scheme } from "../theme/palette";
import { rangeOf, rangeOfSome } from "./frame";
import { AXIS_INKS, highest } from "./overview-spec";

export interface PoolSeries {
  name: keyof PoolParts & WordName;
  label: string;
}

const seriesOf = (name: PoolSeries["name"]): PoolSeries => ({ name, label: WORDS[name].label });

export const SIZES: readonly PoolSeries[] = (["pool_bytes", "in_use_bytes", "free_largest", "free_rest"] as const).map(seriesOf);

export const RATIOS: readonly PoolSeries[] = (["utilisation", "fragmentation"] as const).map(seriesOf);

const LINE_COLOURS: Record<Scheme, Partial<Record<keyof PoolParts, string>>> = {
  light: {
    pool_bytes: "#202124",
    in_use_bytes: "#2453b8",
    free_largest: "#0f8a60",
    free_rest: "#b9650b",
    utilisation: "#2453b8",
    fragmentation: "#b9650b",
  },
  dark: {
    pool_bytes: "#ffffff",
    in_use_bytes: "#7ba2f5",
    free_largest: "#4fd0a0",
    free_rest: "#f7b552",
    utilisation: "#7ba2f5",
    fragmentation: "#f7b552",
  },
};

export const lineColour = (name: keyof PoolParts, scheme: Scheme): string => LINE_COLOURS[scheme][name] ?? INKS[scheme].line;

export interface Snapshots {
  list: readonly SnapshotSummary[];
  parts: readonly PoolParts[];
  step: Float64Array;
  wall_time: Float64Array;
}

export function snapshotColumns(list: readonly SnapshotSummary[]): Snapshots {
  const ordered = [...list].sort((a, b) => a.step - b.step || a.wall_time - b.wall_time);
  return {
    list: ordered,
    parts: ordered.map(poolParts),
    step: Float64Array.from(ordered, ({ step }) => step),
    wall_time: Float64Array.from(ordered, ({ wall_time }) => wall_time),
  };
}

const column = (snapshots: Snapshots, name: keyof PoolParts): Float64Array =>
  Float64Array.from(snapshots.parts, (parts) => parts[name] ?? NaN);

function specOf(
  snapshots: Snapshots,
  choices: Choices,
  scheme: Scheme,
  span: readonly [number, number] | null,
): Omit<PlotSpec, "yKind" | "yMax" | "painters"> {
  const x = xValues(choices.axis, snapshots.step, snapshots.wall_time, snapshots.wall_time[0] ?? 0);
  return {
    x,
    xKind: choices.axis,
    range: rangeOfSome(snapshots.step, x, choices, span) ?? rangeOf(cellEdges(x)),
    headroom: 8,
    inks: AXIS_INKS[scheme],
    lanes: [],
  };
}

const style = (name: keyof PoolParts, scheme: Scheme): LineStyle => ({ colour: lineColour(name, scheme), width: 1.5, dash: [] });

export function sizesSpec(snapshots: Snapshots, choices: Choices, scheme: Scheme, span: readonly [number, number] | null): PlotSpec {
  const common = specOf(snapshots, choices, scheme, span);
  const capacity = snapshots.list.at(-1)?.capacity_bytes ?? null;
  const top = Math.max(...SIZES.map(({ name }) => highest(column(snapshots, name), common.x, common.range)));
  const { max, capacityInside } = byteRange(top, capacity);
  const painters = SIZES.map(({ name }) => pointsPainter(common.x, column(snapshots, name), style(name, scheme)));
  if (capacity !== null)
    painters.push(capacityPainter(capacity, `capacity ${formatBytes(capacity)}`, capacityInside, INKS[scheme].capacity));
  return { ...common, yKind: "bytes", yMax: max, painters };
}

export function ratiosSpec(snapshots: Snapshots, choices: Choices, scheme: Scheme, span: readonly [number, number] | null): PlotSpec {
  const common = specOf(snapshots, choices, scheme, span);
  const painters = RATIOS.map(({ name }) => pointsPainter(common.x, column(snapshots, name), style(name, scheme)));
  return { ...common, yKind: "share", yMax: 1.04, painters };
}

/** "step 3: pool 1.0 GiB; in use …", for a screen reader. */
export function poolSentence(snapshots: Snapshots, row: number): string {
  const parts = snapshots.parts[row];
  const snapshot = snapshots.list[row];
  if (!parts || !snapshot) return "no traced step";
  const sizes = SIZES.map(({ name, label }) => `${label} ${parts[name] === null ? "not known" : formatBytes(parts[name])}`);
  const ratios = RATIOS.map(({ name, label }) => `${label} ${parts[name] === null ? "not known" : formatShare(parts[name])}`);
  return `step ${snapshot.step}, ${snapshot.phase}: ${[...sizes, ...ratios].join("; ")}`;
}

/** What the pool's state means for the next allocation. */
export function poolFinding(snapshot: SnapshotSummary): string | null {
  const { free_largest: largest, free_rest: rest, pool_bytes: pool, unreserved } = poolParts(snapshot);
  if (largest === null || rest === null || pool === null) return null;
  const free = largest + rest;
  const where = `At step ${snapshot.step}, ${formatBytes(free)} of the pool lie idle; the largest free block is ${formatBytes(largest)}`;
  if (unreserved === null) return `${where}.`;
  if (unreserved > 0) return `${where}, and the pool can still grow by ${formatBytes(unreserved)}.`;
  return `${where}, so a tensor above ${formatBytes(largest)} (${formatExact(largest)}) fails.`;
}
