/**
 * The allocator's pool at every step, and how it grew. Columns are as long as `rows`; NaN means
 * "unknown".
 */

import { formatBytes, formatExact, formatShare, formatKnown, shareOf } from "../lib/bytes";
import { nearestIndex } from "../lib/search";
import { groupLabel, WORDS } from "./categories";
import { at } from "./overview";
import {
  HOST_PARTS,
  type Demand,
  type DeviceMemory,
  type HOST_COLUMNS,
  type HostMemoryHead,
  type MemoryPart,
  type MemorySegment,
  type POOL_COLUMNS,
  type PoolHead,
  type PoolSource,
  type SnapshotSummary,
} from "../schema";

type PoolColumn = (typeof POOL_COLUMNS)[number];
export type PoolSteps = PoolHead & { rows: number } & Record<PoolColumn, Float64Array>;

type Instant = "step end" | "peak" | "failed allocation";

const sourceAt = (pool: PoolSteps, row: number): PoolSource =>
  pool.sources[at(pool.pool_source, row) ?? 0] ?? "unknown";

/**
 * The instant that allocated bytes are shown at where the pool is unknown: that of the
 * measurements, if there are any.
 */
export const usualInstant = ({ pool_source, sources }: PoolSteps): Instant =>
  pool_source.includes(sources.indexOf("measured")) ? "step end" : "peak";

function instantAt(pool: PoolSteps, row: number): Instant {
  const source = sourceAt(pool, row);
  if (source === "unknown") return usualInstant(pool);
  if (source === "failed") return "failed allocation";
  return source === "measured" ? "step end" : "peak";
}

const allocatedAt = (pool: PoolSteps, row: number): number | null =>
  at(instantAt(pool, row) === "step end" ? pool.in_use_bytes : pool.peak_bytes, row);

const minus = (from: number | null, ...others: readonly (number | null)[]): number | null =>
  others.reduce<number | null>(
    (rest, other) => (rest === null || other === null ? null : rest - other),
    from,
  );

/** The pool at one instant, from what was measured then. */
function partsOf(
  pool_bytes: number | null,
  allocated_bytes: number | null,
  free_largest: number | null,
  capacity_bytes: number | null,
) {
  const unreserved = minus(capacity_bytes, pool_bytes);
  return {
    allocated_bytes,
    pool_bytes,
    free_bytes: minus(pool_bytes, allocated_bytes),
    free_largest,
    free_other: minus(pool_bytes, allocated_bytes, free_largest),
    capacity_bytes,
    unreserved: unreserved === null ? null : Math.max(unreserved, 0),
    utilisation: shareOf(allocated_bytes, pool_bytes),
  };
}

/**
 * The pool at one step, every figure at the same instant except for rounding; null where it is
 * unknown.
 */
export const poolFacts = (pool: PoolSteps, row: number) => ({
  step: at(pool.step, row),
  source: sourceAt(pool, row),
  instant: instantAt(pool, row),
  ...partsOf(
    at(pool.pool_bytes, row),
    allocatedAt(pool, row),
    at(pool.largest_free_bytes, row),
    at(pool.capacity_bytes, row),
  ),
  /** 1 − largest free chunk / free bytes; null also when nothing is free. */
  fragmentation: at(pool.fragmentation, row),
  rounding_bytes: at(pool.rounding_bytes, row),
});

export type PoolFacts = ReturnType<typeof poolFacts>;

export const POOL_INSTANTS = ["peak", "step end"] as const;
export type PoolInstant = (typeof POOL_INSTANTS)[number];

/**
 * Whether the pool is known both at the end of steps and, from their traces, at the peak of others.
 */
export const hasInstants = (
  { pool_source, sources }: PoolSteps,
  traced: readonly SnapshotSummary[],
): boolean =>
  pool_source.includes(sources.indexOf("measured")) &&
  traced.some(({ pool_bytes }) => pool_bytes !== null);

/**
 * The pool at one instant of every step: at the peak, as in the answers and the memory map, it is
 * known from traces, at step end from measurements. Failures stay as they are.
 */
export function atInstant(
  pool: PoolSteps,
  traced: readonly SnapshotSummary[],
  instant: PoolInstant,
): PoolSteps {
  if (!hasInstants(pool, traced)) return pool;
  const ofStep = new Map(traced.map((one) => [one.step, one]));
  const sources: PoolSource[] = [...new Set<PoolSource>([...pool.sources, "traced", "unknown"])];
  const put = (column: PoolColumn, figure: (of: SnapshotSummary | undefined) => number | null) =>
    pool[column].map((value, row) => {
      const source = sourceAt(pool, row);
      if (source !== (instant === "peak" ? "measured" : "traced")) return value;
      const found = instant === "peak" ? ofStep.get(pool.step[row] ?? NaN) : undefined;
      return figure(found?.pool_bytes == null ? undefined : found) ?? NaN;
    });
  return {
    ...pool,
    sources,
    pool_source: put("pool_source", (of) => sources.indexOf(of ? "traced" : "unknown")),
    pool_bytes: put("pool_bytes", (of) => of?.pool_bytes ?? null),
    largest_free_bytes: put("largest_free_bytes", (of) => of?.largest_free_bytes ?? null),
    fragmentation: put("fragmentation", (of) => of?.fragmentation ?? null),
    rounding_bytes: put("rounding_bytes", (of) => of?.rounding_bytes ?? null),
    peak_bytes: pool.peak_bytes.map((value, row) =>
      instant === "peak" ? (ofStep.get(pool.step[row] ?? NaN)?.in_use_bytes ?? value) : value,
    ),
  };
}

/**
 * The row of a step, or of the nearest one, in the first of the pools that spans it, else in the
 * last; null without rows.
 */
export function poolRowOf(
  pools: readonly PoolSteps[],
  step: number,
): { pool: PoolSteps; row: number } | null {
  const spans = ({ step: steps, rows }: PoolSteps): boolean =>
    rows > 0 && step >= (steps[0] ?? NaN) && step <= (steps[rows - 1] ?? NaN);
  const pool = pools.find(spans) ?? pools.at(-1);
  return pool && pool.rows > 0 ? { pool, row: nearestIndex(pool.step, step) } : null;
}

/**
 * The pool at rows where it is unknown but equal in the known rows on both sides, within a session;
 * NaN elsewhere.
 */
export function unchangedPool(pool: PoolSteps): Float64Array {
  const unchanged = new Float64Array(pool.rows).fill(NaN);
  let before = -1;
  for (let row = 0; row < pool.rows; row += 1) {
    const bytes = at(pool.pool_bytes, row);
    if (bytes === null) continue;
    if (
      before >= 0 &&
      pool.pool_bytes[before] === bytes &&
      pool.session[before] === pool.session[row]
    )
      unchanged.fill(bytes, before + 1, row);
    before = row;
  }
  // No pool is larger than its limit at that step.
  return unchanged.map((bytes, row) => Math.min(bytes, at(pool.capacity_bytes, row) ?? Infinity));
}

export const instantText = (instant: Instant): string =>
  instant === "step end" ? "at step end" : `at the ${instant}`;

const ofStep = ({ instant, step }: PoolFacts): string =>
  `${instant === "step end" ? "end" : instant} of step ${step ?? "?"}`;

export function poolProvenance({ source, free_largest: largest }: PoolFacts): string {
  if (source === "measured") return "Measured at step end.";
  if (source === "failed")
    return `Measured at the failed allocation of this step.${largest === null ? " Fragmentation unknown." : ""}`;
  if (source === "unknown") return "Fragmentation unknown: the pool was not measured at this step.";
  return `Traced: measured at the peak of this step.${largest === null ? " Fragmentation unknown." : ""}`;
}

export function figureSource(name: keyof PoolFacts, facts: PoolFacts): string {
  const step = `step ${facts.step ?? "?"}`;
  if (name === "rounding_bytes")
    return facts[name] === null
      ? `unknown: ${step} was not traced`
      : facts.instant === "failed allocation"
        ? `the owners at the failed allocation of ${step}`
        : `traced at the peak of ${step}`;
  if (name === "capacity_bytes") return `the allocator's own figure, ${step}`;
  if (name === "allocated_bytes" || facts.source !== "unknown")
    return `the allocator's own figure, at the ${ofStep(facts)}`;
  return `unknown: the allocator's pool was not measured at ${step}`;
}

export function fragmentationText({ fragmentation, free_bytes: free }: PoolFacts): string {
  if (free === 0) return "0/0";
  return fragmentation === null ? "–" : formatShare(fragmentation);
}

/** "step 3, measured: allocated at step end 1.0 GiB; …", for a screen reader. */
export function poolSentence(facts: PoolFacts): string {
  const text = (bytes: number | null): string => formatKnown(bytes);
  const figures = [
    `allocated ${instantText(facts.instant)} ${text(facts.allocated_bytes)}`,
    `pool ${text(facts.pool_bytes)}`,
    `free: largest chunk ${text(facts.free_largest)}`,
    `free: other chunks ${text(facts.free_other)}`,
    `unreserved ${text(facts.unreserved)}`,
    `fragmentation ${facts.fragmentation === null && facts.free_bytes !== 0 ? "unknown" : fragmentationText(facts)}`,
  ];
  return `step ${facts.step ?? "unknown"}, ${facts.source}: ${figures.join("; ")}`;
}

export function poolFinding(facts: PoolFacts): string | null {
  const { free_largest: largest, free_bytes: free, unreserved } = facts;
  if (largest === null || free === null) return null;
  const when = `At the ${ofStep(facts)}`;
  if (free === 0) return `${when}, the whole pool is allocated.`;
  const where = `${when}, ${formatBytes(free)} of the pool are free; the largest free chunk is ${formatBytes(largest)}`;
  if (unreserved === null) return `${where}.`;
  if (unreserved > 0) return `${where}, and the pool can still grow by ${formatBytes(unreserved)}.`;
  return `${where}, so a tensor above ${formatBytes(largest)} (${formatExact(largest)}) does not fit.`;
}

export function poolGrows(pool: PoolSteps): boolean | null {
  const first = pool.growths[0];
  if (first === undefined) return null;
  if (pool.growths.length > 1) return true;
  const capacity = pool.capacity_bytes.find((value) => !Number.isNaN(value));
  // The allocator rounds its limit down to a multiple of 256 bytes.
  return capacity === undefined ? null : capacity - first.pool_bytes >= 256;
}

const SEGMENTS: Record<MemoryPart, readonly [label: string, meaning: string]> = {
  in_use: ["in use", "allocated to tensors"],
  free_largest: [
    WORDS.free_largest.label,
    "reserved by TensorFlow, not in use: the largest free chunk",
  ],
  free_other: [WORDS.free_other.label, "reserved by TensorFlow, not in use: all other free chunks"],
  pool_free: [WORDS.free_bytes.label, "reserved by TensorFlow, not in use"],
  process_other: [
    "this process, outside pool",
    "CUDA context and libraries: the driver's figure for this process − pool",
  ],
  others: [
    "other memory in use",
    "the driver's figure for the GPU − this process, or − the pool if the driver does not report processes",
  ],
  device_free: ["free on device", "free, the driver's figure"],
  unreserved: [WORDS.unreserved.label, WORDS.unreserved.meaning],
  headroom: [WORDS.headroom.label, "capacity − in use: free in the pool or unreserved"],
};

export function segmentLabel({ part, category, trainable }: MemorySegment): string {
  return part === "in_use" && category !== null
    ? groupLabel({ category, trainable })
    : SEGMENTS[part][0];
}

export const segmentMeaning = ({ part }: MemorySegment): string => SEGMENTS[part][1];

export const segmentKey = ({ part, category, trainable }: MemorySegment): string =>
  [part, category, trainable].filter((one) => one !== null).join(":");

export const inPool = ({ part }: MemorySegment): boolean =>
  ["in_use", "free_largest", "free_other", "pool_free"].includes(part);

/**
 * "TensorFlow's pool holds 256 MiB: 167 MiB in use, 89.0 MiB free. …", from the pool to other
 * processes.
 */
export function deviceMemorySentence(
  memory: DeviceMemory,
  format: (bytes: number) => string,
): string {
  const {
    pool_bytes: pool,
    in_use_bytes: used,
    driver_process_bytes: process,
    driver_used_bytes: all,
  } = memory;
  if (pool === null) return `${format(used)} are in use.${othersSentence(process, all, format)}`;
  const own =
    process !== null && process > pool
      ? ` This process uses another ${format(process - pool)} (CUDA context, libraries).`
      : "";
  const summary = `TensorFlow's pool holds ${format(pool)}: ${format(used)} in use, ${format(Math.max(pool - used, 0))} free.`;
  return summary + own + othersSentence(process, all, format);
}

const othersSentence = (
  process: number | null,
  all: number | null,
  format: (bytes: number) => string,
): string =>
  all !== null && process !== null && all > process
    ? ` Outside this process, ${format(all - process)} are in use.`
    : "";

export function demandParts({ peak_bytes, demand_bytes, rounding_bytes, unsplit_bytes }: Demand) {
  const parts = [
    { name: "demand", label: "live at once", bytes: demand_bytes },
    { name: "rounding", label: "rounding to 256 bytes", bytes: rounding_bytes },
    { name: "unsplit", label: "unsplit remainders", bytes: unsplit_bytes },
  ] as const;
  return parts.map((part) => ({ ...part, share: shareOf(part.bytes, peak_bytes) ?? 0 }));
}

export type HostPart = (typeof HOST_PARTS)[number];

export type HostMemory = HostMemoryHead & { rows: number } & Record<
    (typeof HOST_COLUMNS)[number],
    Float64Array
  >;

/** Whether the parts were measured at a row. The remainder is known exactly then. */
export const isMeasured = (host: HostMemory, row: number): boolean =>
  at(host.other_bytes, row) !== null;

/** For each row the last row up to it at which the parts were measured, −1 before the first. */
export function measuredRows(host: HostMemory): Int32Array {
  const rows = new Int32Array(host.rows);
  let last = -1;
  for (let row = 0; row < host.rows; row += 1) {
    if (isMeasured(host, row)) last = row;
    rows[row] = last;
  }
  return rows;
}

/**
 * Host memory at one step; the parts are those of the last step up to it at which they were
 * measured, null before the first one.
 */
export function hostFacts(host: HostMemory, row: number) {
  const from = measuredRows(host)[row] ?? -1;
  return {
    step: at(host.step, row),
    host_resident_bytes: at(host.host_resident_bytes, row),
    measured_step: from < 0 ? null : at(host.step, from),
    measured_bytes: from < 0 ? null : at(host.host_resident_bytes, from),
    parts: Object.fromEntries(
      HOST_PARTS.map((name) => [name, from < 0 ? null : at(host[name], from)]),
    ) as Record<HostPart, number | null>,
  };
}

export type HostFacts = ReturnType<typeof hostFacts>;

export const shownParts = (host: HostMemory): HostPart[] =>
  HOST_PARTS.filter((name) => host[name].some((bytes) => bytes > 0));

/**
 * The parts in a list, the highest of the stack first. Pinned memory needs a GPU, and `CPU:0` must
 * be recorded: no rows say "unknown" for them.
 */
export const listedParts = (host: HostMemory): HostPart[] =>
  [...HOST_PARTS]
    .reverse()
    .filter(
      (name) =>
        host[name].some((bytes) => !Number.isNaN(bytes)) ||
        name === "tf_data_bytes" ||
        name === "other_bytes",
    );

export function hostSentence(host: HostMemory, row: number): string {
  const bytes = at(host.host_resident_bytes, row);
  return `step ${at(host.step, row) ?? "unknown"}: host RSS ${formatKnown(bytes)}`;
}
