/** Ranges, ticks and positions. Pure. */

import {
  UNITS,
  formatCount,
  unitOf,
  formatDuration,
  formatMilliseconds,
  formatWallTime,
  type Unit,
} from "../lib/bytes";

/**
 * Steps, seconds since a start, times of day; in a step's timeline: milliseconds or the index of a
 * moment.
 */
export type XKind = "step" | "relative" | "wall" | "milliseconds" | "event index";
export type YKind = "bytes" | "share";
export type Range = readonly [number, number];

const niceStep = (rough: number): number => {
  const power = 10 ** Math.floor(Math.log10(rough));
  const digit = rough / power;
  return (digit <= 1 ? 1 : digit <= 2 ? 2 : digit <= 5 ? 5 : 10) * power;
};

export interface Ticks {
  values: number[];
  labels: string[];
}

/** Ticks at round figures of one unit, the unit of the highest. */
export function byteTicks(max: number, count: number): Ticks {
  const unit: Unit = unitOf(max);
  const size = 2 ** (10 * UNITS.indexOf(unit));
  const step = Math.max(niceStep(max / size / count), unit === "B" ? 1 : 0.01);
  const decimals = step >= 1 ? 0 : step >= 0.1 ? 1 : 2;
  const values: number[] = [];
  for (let index = 0; index * step * size <= max * 1.0001; index += 1)
    values.push(index * step * size);
  return {
    values,
    labels: values.map((value) =>
      value === 0 ? "0" : `${(value / size).toFixed(decimals)} ${unit}`,
    ),
  };
}

export function shareTicks(): Ticks {
  const values = [0, 0.25, 0.5, 0.75, 1];
  return { values, labels: values.map((value) => `${value * 100} %`) };
}

/** Below this share of the capacity, showing the capacity line would squash the stack. */
const CAPACITY_INSIDE = 0.5;

/** Upper end of the byte axis, and whether the capacity line lies inside. */
export function byteRange(
  peak: number,
  capacity: number | null,
): { max: number; capacityInside: boolean } {
  const top = Math.max(peak, 1) * 1.08;
  if (capacity === null) return { max: top, capacityInside: false };
  // Above the range its label stands in the plot: room for it over the peak.
  if (peak < capacity * CAPACITY_INSIDE) return { max: top * 1.08, capacityInside: false };
  return { max: Math.max(top, capacity * 1.06), capacityInside: true };
}

/**
 * Places on the x-axis; relative times count from `start`. Times never run backwards: a clock that
 * was set back stands still instead.
 */
export function xValues(
  kind: XKind,
  step: Float64Array,
  wallTime: Float64Array,
  start: number,
): Float64Array {
  if (kind !== "relative" && kind !== "wall") return step;
  const origin = kind === "relative" ? start : 0;
  let last = (wallTime.find((value) => !Number.isNaN(value)) ?? origin) - origin;
  return wallTime.map((value) => {
    if (!Number.isNaN(value)) last = Math.max(last, value - origin);
    return last;
  });
}

/** Edges of the cells around `x`: each row's cell ends halfway to its neighbours. */
export function cellEdges(x: ArrayLike<number>): Float64Array {
  const count = x.length;
  const edges = new Float64Array(count + 1);
  for (let index = 1; index < count; index += 1)
    edges[index] = ((x[index - 1] as number) + (x[index] as number)) / 2;
  if (count === 0) return edges;
  const first = x[0] as number;
  const last = x[count - 1] as number;
  edges[0] = first - (count > 1 ? (edges[1] as number) - first || 0.5 : 0.5);
  edges[count] = last + (count > 1 ? last - (edges[count - 1] as number) || 0.5 : 0.5);
  return edges;
}

/** A span without rows, after the row with this index. */
export interface Gap {
  after: number;
  from: number;
  to: number;
}

/** Where steps are missing: more than twice as far apart as steps usually are. */
export function gapsOf(steps: Float64Array): Gap[] {
  const apart = steps.subarray(1).map((step, index) => step - (steps[index] as number));
  const usual = apart.slice().sort()[apart.length >> 1] ?? 0;
  return [...apart].flatMap((width, after) =>
    usual > 0 && width > 2 * usual
      ? [
          {
            after,
            from: (steps[after] as number) + usual / 2,
            to: (steps[after + 1] as number) - usual / 2,
          },
        ]
      : [],
  );
}

/** Edges and values of cells with unknown ones in the gaps. */
export function withGaps(edges: Float64Array, values: Float64Array, gaps: readonly Gap[]) {
  const ends = new Map(gaps.map((gap) => [gap.after, gap]));
  const wide: number[] = [edges[0] as number];
  const known: number[] = [];
  values.forEach((value, row) => {
    const gap = ends.get(row);
    known.push(value, ...(gap ? [NaN] : []));
    wide.push(...(gap ? [gap.from, gap.to] : [edges[row + 1] as number]));
  });
  return [Float64Array.from(wide), Float64Array.from(known)] as const;
}

/**
 * Edges of cells that end at their own row, half a step after it on an axis of steps: for what is
 * measured once, after many steps. `first` is where the first cell begins, null if unknown: it is
 * then as wide as the second one.
 */
export function endingEdges(x: ArrayLike<number>, kind: XKind, first: number | null): Float64Array {
  const count = x.length;
  const edges = new Float64Array(count + 1);
  for (let index = 0; index < count; index += 1)
    edges[index + 1] = (x[index] as number) + (kind === "step" ? 0.5 : 0);
  if (count === 0) return edges;
  const end = edges[1] as number;
  edges[0] =
    first !== null && first < end ? first : end - (count > 1 ? (edges[2] as number) - end || 1 : 1);
  return edges;
}

const UNITS_OF_TIME = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900,
  1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 432000, 864000,
];

export function tickSteps(kind: XKind): number[] {
  if (kind === "relative") return UNITS_OF_TIME;
  const steps: number[] = [];
  for (let power = kind === "milliseconds" ? 1e-6 : 1; power < 1e13; power *= 10)
    steps.push(power, 2 * power, 5 * power);
  return steps;
}

const DAY = 86400;

/**
 * Local times, the date below the first and wherever it changes. `distance` is that of the ticks,
 * in seconds.
 */
export function wallLabels(times: readonly number[], distance: number): string[] {
  let day = "";
  return times.map((time) => {
    const [date, clock] = formatWallTime(time).split(" ") as [string, string];
    if (distance >= DAY) return date;
    const label =
      distance >= 60
        ? clock.slice(0, 5)
        : distance >= 1
          ? clock
          : `${clock}${(time % 1).toFixed(3).slice(1)}`;
    const dated = date === day ? label : `${label}\n${date}`;
    day = date;
    return dated;
  });
}

export function xLabel(kind: XKind, value: number): string {
  if (kind === "milliseconds") return formatMilliseconds(Number(value.toPrecision(9)));
  return kind === "relative" ? formatDuration(value) : formatCount(value);
}
