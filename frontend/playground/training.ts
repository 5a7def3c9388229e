/**
 * A made-up training: the answers of every route for one run. The same plan always gives the same
 * figures.
 */

import { totalsOf } from "../src/model/snapshot";
import { devicePlans } from "./device-plans";
import { encodeColumns } from "./encode";
import type * as schema from "../src/schema";
import type {
  Category,
  Group,
  LayerChange,
  LayersAnswer,
  LedgerRow,
  RunInfo,
  Snapshot,
  SnapshotSummary,
} from "../src/schema";

const MIB = 2 ** 20;

export interface Plan {
  run: string;
  steps: number;
  epochSteps: number;
  /** Step at which the last block is unfrozen, null for never. */
  unfreezeAt: number | null;
  traceEvery: number;
  capacity: number | null;
  scale: number;
  layers: readonly string[];
  pool: boolean;
  /**
   * The pool was measured at the end of every step of this many; undefined for never, as in runs of
   * earlier versions.
   */
  measureEvery?: number;
  /** Whether the allocator took its whole limit at once. */
  atOnce?: boolean;
  damage?: string[];
  notes?: string[];
  findings?: schema.Finding[];
  /** Bytes of the largest chunk of a map. */
  chunkBytes?: number;
  /** Moments of a step's timeline for each row of its ledger that moves. */
  momentsEach?: number;
  /** Whether steps run compiled modules. */
  compiled?: boolean;
  /** Whether traced steps have no timelines, as those of earlier versions. */
  bare?: boolean;
  /** Verdicts of the failed steps, and whether their memory maps are missing. */
  failures?: schema.Verdict[];
  mapless?: boolean;
  /**
   * How many layers have activation bytes that the training wrote itself; such a run has no
   * allocator figures.
   */
  recorded?: number;
  /** Steps at which further attempts began. */
  restarts?: number[];
  /**
   * Workers, each with as many devices; one device if undefined. Other routes answer with the
   * figures of the first device.
   */
  workers?: { count: number; devices: number };
}

export const GROUPS: readonly Group[] = [
  { category: "weights", trainable: false },
  { category: "weights", trainable: true },
  { category: "optimizer_state", trainable: null },
  { category: "other_state", trainable: null },
  { category: "held_tensors", trainable: null },
  { category: "inputs", trainable: null },
  { category: "activations", trainable: null },
  { category: "weight_gradients", trainable: null },
  { category: "activation_gradients", trainable: null },
  { category: "workspace", trainable: null },
  { category: "rounding", trainable: null },
  { category: "unattributed", trainable: null },
];

const unfrozen = (plan: Plan, step: number): boolean =>
  plan.unfreezeAt !== null && step >= plan.unfreezeAt;

/** Bytes of each group at a step's peak. */
function bytesAt(plan: Plan, step: number): number[] {
  const free = unfrozen(plan, step);
  const sizes = free
    ? [30, 27, 54, 0.02, 0.5, 6, 90, 31, 27, 40, 0.3, 3.2]
    : [56, 1, 2, 0.02, 0.5, 6, 24, 2, 1, 60, 0.3, 3.2];
  const flutter = 1 + (((step * 7919) % 13) - 6) / 400;
  return sizes.map(
    (size, index) => Math.round((size * MIB * plan.scale * (index > 5 ? flutter : 1)) / 256) * 256,
  );
}

const tracedSteps = (plan: Plan): number[] =>
  Array.from(
    { length: Math.floor((plan.steps - 4) / plan.traceEvery) + 1 },
    (_, index) => 3 + index * plan.traceEvery,
  );

const sum = (values: readonly number[]): number =>
  values.reduce((total, value) => total + value, 0);
const wallTime = (step: number): number => 1790000000 + step * 0.25;

const OF_NO_LAYER: ReadonlySet<Category> = new Set<Category>([
  "other_state",
  "held_tensors",
  "inputs",
  "unattributed",
]);

export function ledgerAt(plan: Plan, step: number): LedgerRow[] {
  const bytes = bytesAt(plan, step);
  const rows = GROUPS.flatMap(({ category, trainable }, index): LedgerRow[] => {
    const total = bytes[index] as number;
    if (OF_NO_LAYER.has(category)) {
      return [{ layer: null, category, trainable: null, bytes: total, rounding_bytes: 0 }];
    }
    // The last layer, which is trainable, has a third of the bytes of all layers.
    const last = Math.floor(total / 3 / 256) * 256;
    const owned =
      trainable ??
      (category === "optimizer_state" || category === "weight_gradients" ? true : null);
    const parts = [
      { layer: plan.layers[0] ?? null, category, trainable: owned ?? false, bytes: total - last },
      { layer: plan.layers.at(-1) ?? null, category, trainable: owned ?? true, bytes: last },
    ];
    return parts.map((part) => ({
      ...part,
      rounding_bytes: category === "rounding" ? part.bytes : 0,
    }));
  });
  return rows.filter(({ bytes: size }) => size > 0).sort((a, b) => b.bytes - a.bytes);
}

function summaryAt(plan: Plan, step: number): SnapshotSummary {
  const used = sum(bytesAt(plan, step));
  const grown = Math.min(2 ** Math.ceil(Math.log2(used * 1.1)), plan.capacity ?? Infinity);
  const pool = !plan.pool ? null : plan.atOnce ? plan.capacity : grown;
  const largest = pool === null ? null : Math.floor(((pool - used) * (80 - (step % 37))) / 100);
  return {
    step,
    phase: "train",
    device: "GPU:0",
    mode: "graph",
    batch_size: 32,
    at_failure: false,
    replay: null,
    wall_time: wallTime(step),
    in_use_bytes: used,
    pool_bytes: pool,
    largest_free_bytes: largest,
    capacity_bytes: plan.capacity,
    fragmentation:
      pool === null || largest === null || pool === used
        ? null
        : (pool - used - largest) / (pool - used),
    rounding_bytes:
      bytesAt(plan, step)[GROUPS.findIndex(({ category }) => category === "rounding")] ?? null,
    not_available: plan.pool
      ? []
      : [
          "The pool is not available, because TF_GPU_ALLOCATOR=cuda_malloc_async does not report it.",
        ],
  };
}

/** Groups of tensors that Python keeps alive, one more in each traced step. */
function heldAt(plan: Plan, step: number): schema.HeldTensorGroup[] {
  const count = 1 + Math.floor(step / plan.traceEvery);
  const total =
    ledgerAt(plan, step).find(({ category }) => category === "held_tensors")?.bytes ?? 0;
  const each = Math.floor(total / count / 4);
  return Array.from({ length: count }, (_, index) => {
    const known =
      index % 2 === 0
        ? { held_by: "list `history` in module __main__", line: "train.py:42" }
        : { held_by: null, line: null };
    const owner = { category: "held_tensors" as const, retaining_path: null, ...known };
    return { shape: [each], dtype: "float32", count: 1, bytes: 4 * each, ...owner };
  });
}

export const snapshotAt = (plan: Plan, step: number): Snapshot => ({
  ...summaryAt(plan, step),
  run: plan.run,
  ledger: ledgerAt(plan, step),
  replay: plan.pool
    ? {
        addresses: 3079,
        of_addresses: 3080,
        chunks: 659,
        of_chunks: 659,
        peak_bytes: sum(bytesAt(plan, step)),
      }
    : null,
  saved_for_backward: [],
  held_tensors: heldAt(plan, step),
  largest_tensors: [],
});

export const snapshotsOf = (plan: Plan): SnapshotSummary[] =>
  tracedSteps(plan).map((step) => summaryAt(plan, step));

export function ledgerTotalsOf(plan: Plan, layer: string | null): Uint8Array<ArrayBuffer> {
  const place = { run: plan.run, device: "GPU:0", phase: "train" } as const;
  const snapshots = tracedSteps(plan).map((step) => snapshotAt(plan, step));
  const totals = totalsOf(snapshots, layer, place);
  const { step, wall_time, in_use_bytes, groups } = totals;
  return encodeColumns(
    { ...place, layer, groups },
    {
      step,
      wall_time,
      in_use_bytes,
      ...Object.fromEntries(totals.bytes.map((column, index) => [`group/${index}`, column])),
    },
  );
}

/** Bytes that a training wrote itself, of each layer, from one step to another. */
export function activationsOf(
  plan: Plan,
  first: number,
  last: number,
  points: number,
): Uint8Array<ArrayBuffer> {
  const steps = rowsOf(plan, Math.max(first, 0), Math.min(last, plan.steps - 1), points);
  const layers = Array.from(
    { length: plan.recorded ?? 0 },
    (_, index) => `encoder/layer_${index}/attention`,
  );
  const bytes = layers.map((_, index) =>
    steps.map((step) => ((layers.length - index) * 3 + (step % 7)) * MIB),
  );
  return encodeColumns(
    { run: plan.run, total_rows: last - first + 1, layers },
    {
      step: steps,
      wall_time: steps.map(wallTime),
      ...Object.fromEntries(bytes.map((column, index) => [`layer/${index}`, column])),
    },
  );
}

type PeaksAround = Pick<
  LayerChange,
  "peak_before_bytes" | "peak_before_step" | "peak_after_bytes" | "peak_after_step"
>;
const UNKNOWN: PeaksAround = {
  peak_before_bytes: null,
  peak_before_step: null,
  peak_after_bytes: null,
  peak_after_step: null,
};

/** The highest peaks of the 20 steps before and after a change. */
function peaksAround(plan: Plan, step: number): PeaksAround {
  const highest = (first: number, end: number): [number, number] => {
    const peaks = Array.from({ length: end - first }, (_, index) =>
      sum(bytesAt(plan, first + index)),
    );
    const most = Math.max(...peaks);
    return [most, first + peaks.indexOf(most)];
  };
  const [before, beforeStep] = highest(Math.max(0, step - 20), step);
  const [after, afterStep] = highest(step, Math.min(plan.steps, step + 20));
  return {
    peak_before_bytes: before,
    peak_before_step: beforeStep,
    peak_after_bytes: after,
    peak_after_step: afterStep,
  };
}

function changesOf(plan: Plan): LayerChange[] {
  const table = (step: number, reason: string, became: string[]): LayerChange => {
    const [frozen = 0, trainable = 0, slots = 0] = bytesAt(plan, step);
    return {
      step,
      reason,
      ...{ frozen_weight_bytes: frozen, unfreezing_weight_bytes: frozen, statistics_bytes: 0 },
      trainable_weight_bytes: trainable,
      optimizer_bytes: slots,
      other_optimizer_bytes: 0,
      frozen_layers: 10,
      trainable_layers: 2,
      became_trainable: became,
      became_frozen: [],
      stayed_slots_bytes: 0,
      ...(step === 0 ? UNKNOWN : peaksAround(plan, step)),
    };
  };
  const began = table(0, "recording began", []);
  if (plan.unfreezeAt === null) return [began];
  return [
    began,
    table(plan.unfreezeAt, `${plan.layers.at(-1) ?? "a layer"} became trainable`, [
      plan.layers.at(-1) ?? "a layer",
    ]),
  ];
}

/**
 * Rows that an overview keeps: all up to twice `points`, else evenly chosen ones and every traced
 * one.
 */
function rowsOf(plan: Plan, first: number, last: number, points: number): number[] {
  const all = Array.from({ length: last - first + 1 }, (_, index) => first + index);
  if (all.length <= 2 * points) return all;
  const traced = new Set(tracedSteps(plan));
  const every = Math.ceil(all.length / points);
  return all.filter(
    (step, index) => index % every === 0 || traced.has(step) || index === all.length - 1,
  );
}

export function overviewOf(
  plan: Plan,
  first: number,
  last: number,
  points: number,
): Uint8Array<ArrayBuffer> {
  const steps = rowsOf(plan, Math.max(first, 0), Math.min(last, plan.steps - 1), points);
  const traced = tracedSteps(plan);
  const snapshots = traced.map((step): schema.SnapshotRef => ({
    ...summaryAt(plan, step),
    first_step: step,
    earlier_slots_bytes: 0,
  }));
  const bytes = steps.map((step) => bytesAt(plan, step));
  const peaks = bytes.map(sum);
  const unknown = steps.map(() => NaN);
  const epochs = Array.from({ length: Math.ceil(plan.steps / plan.epochSteps) }, (_, epoch) => ({
    epoch,
    first_step: epoch * plan.epochSteps,
    last_step: Math.min((epoch + 1) * plan.epochSteps, plan.steps) - 1,
  }));
  const head = {
    run: plan.run,
    device: "GPU:0",
    phase: "train",
    total_rows: last - first + 1,
    groups: GROUPS,
    snapshots,
    changes: changesOf(plan),
    epochs,
    failures: [],
    validations: epochs.map(({ last_step }) => ({
      after_step: last_step,
      batches: 4,
      peak_bytes: Math.round(sum(bytesAt(plan, last_step)) * 0.7),
    })),
    sessions: [0, ...(plan.restarts ?? [])].map((first_step, index) => ({
      session: `s${index}`,
      first_step,
    })),
  };
  return encodeColumns(head, {
    step: steps,
    epoch: steps.map((step) => Math.floor(step / plan.epochSteps)),
    wall_time: steps.map(wallTime),
    in_use_bytes: steps.map((step) => allocatedAtEnd(plan, step)),
    peak_bytes: peaks,
    capacity_bytes: steps.map(() => plan.capacity ?? NaN),
    host_resident_bytes: steps.map(() => 1400 * MIB),
    driver_process_bytes: unknown,
    driver_used_bytes: unknown,
    driver_total_bytes: unknown,
    pool_bytes: steps.map((step) => measuredAt(plan, step)?.pool ?? NaN),
    largest_free_bytes: steps.map((step) => measuredAt(plan, step)?.largest ?? NaN),
    snapshot: steps.map((step) =>
      Math.max(
        traced.findLastIndex((at) => at <= step),
        0,
      ),
    ),
    traced: steps.map((step) => (traced.includes(step) ? 1 : 0)),
    ...Object.fromEntries(
      GROUPS.map((_, index) => [`group/${index}`, bytes.map((row) => row[index] as number)]),
    ),
  });
}

/** Pool and largest free chunk at the end of a measured step, null at others. */
function measuredAt(plan: Plan, step: number): { pool: number; largest: number } | null {
  const pool = summaryAt(plan, step).pool_bytes;
  if (pool === null || plan.measureEvery === undefined || step % plan.measureEvery > 0) return null;
  return {
    pool,
    largest: Math.floor(((pool - allocatedAtEnd(plan, step)) * (90 - (step % 41))) / 100),
  };
}

export const allocatedAtEnd = (plan: Plan, step: number): number =>
  Math.floor(sum(bytesAt(plan, step)) * 0.4);

/** The pool: measured at some steps, else traced, else unknown. */
export function poolOf(
  plan: Plan,
  first: number,
  last: number,
  points: number,
): Uint8Array<ArrayBuffer> {
  const steps = rowsOf(plan, Math.max(first, 0), Math.min(last, plan.steps - 1), points);
  const traced = new Set(tracedSteps(plan));
  const rows = steps.map((step) => {
    const [end, snapshot] = [measuredAt(plan, step), summaryAt(plan, step)];
    const isTraced = traced.has(step);
    const rounding = isTraced ? (snapshot.rounding_bytes ?? NaN) : NaN;
    if (end) {
      const free = end.pool - allocatedAtEnd(plan, step);
      return {
        source: 2,
        pool: end.pool,
        largest: end.largest,
        fragmentation: 1 - end.largest / free,
        rounding,
      };
    }
    if (!isTraced || snapshot.pool_bytes === null)
      return { source: 0, pool: NaN, largest: NaN, fragmentation: NaN, rounding };
    return {
      source: 1,
      pool: snapshot.pool_bytes,
      largest: snapshot.largest_free_bytes ?? NaN,
      fragmentation: snapshot.fragmentation ?? NaN,
      rounding,
    };
  });
  const known = rows.flatMap(({ pool }, row) =>
    Number.isNaN(pool) ? [] : [{ pool, step: steps[row] as number }],
  );
  const growths = known.flatMap(({ pool, step }, index) => {
    const before = known[index - 1];
    if (before?.pool === pool) return [];
    return [
      {
        after_step: before?.step ?? null,
        by_step: step,
        bytes: pool - (before?.pool ?? 0),
        pool_bytes: pool,
        peak_rise_bytes: MIB,
      },
    ];
  });
  const used = steps.map((step) => sum(bytesAt(plan, step)));
  const head = {
    run: plan.run,
    device: "GPU:0",
    phase: "train",
    total_rows: last - first + 1,
    sources: ["unknown", "traced", "measured"],
    growths,
    sentences: growths.map(
      ({ by_step, pool_bytes }) =>
        `The pool was ${Math.round(pool_bytes / MIB)} MiB at step ${by_step}.`,
    ),
  };
  return encodeColumns(head, {
    step: steps,
    wall_time: steps.map(wallTime),
    session: steps.map((step) => (plan.restarts ?? []).filter((at) => at <= step).length),
    in_use_bytes: steps.map((step) => allocatedAtEnd(plan, step)),
    peak_bytes: used,
    capacity_bytes: steps.map(() => plan.capacity ?? NaN),
    pool_source: rows.map(({ source }) => source),
    pool_bytes: rows.map(({ pool }) => pool),
    largest_free_bytes: rows.map(({ largest }) => largest),
    fragmentation: rows.map(({ fragmentation }) => fragmentation),
    rounding_bytes: rows.map(({ rounding }) => rounding),
  });
}

export const peaksOf = (plan: Plan): number[] =>
  Array.from({ length: plan.steps }, (_, step) => sum(bytesAt(plan, step)));

export function infoOf(plan: Plan): RunInfo {
  const planned = devicePlans(plan);
  const devices = planned.map(({ device, plan: own }) => {
    const peaks = peaksOf(own);
    const peak = Math.max(...peaks);
    const snapshots = tracedSteps(own).length;
    return {
      device,
      capacity_bytes: plan.capacity,
      peak_bytes: peak,
      peak_step: peaks.indexOf(peak),
      snapshots,
    };
  });
  return {
    run: plan.run,
    version: "1",
    sessions: 1 + (plan.restarts ?? []).length,
    workers: [...new Set(planned.map(({ worker }) => worker))],
    steps: plan.steps,
    first_step: 0,
    last_step: plan.steps - 1,
    started: wallTime(0),
    phases: ["train"],
    devices,
    most_loaded: [...devices].sort((a, b) => b.peak_bytes - a.peak_bytes)[0]?.device ?? null,
    activation_layers: plan.recorded ?? 0,
    frozen: true,
    ooms: (plan.failures ?? []).length,
    ...({ status: "ok", rank: 0, ended: null, recorded_until: null } as const),
    findings: plan.findings ?? [],
    notes: plan.notes ?? [],
    largest_at_failure: null,
    damage: plan.damage ?? [],
  };
}

export function layersOf(plan: Plan, step: number): LayersAnswer {
  const weights = ledgerAt(plan, step).filter(({ category }) => category === "weights");
  const slots = ledgerAt(plan, step).filter(({ category }) => category === "optimizer_state");
  const bytesOf = (rows: readonly LedgerRow[], path: string): number =>
    sum(rows.filter(({ layer }) => layer === path).map(({ bytes }) => bytes));
  return {
    run: plan.run,
    step,
    reason: "recording began",
    optimizer: "Adam",
    other_optimizer_bytes: 12,
    other_state_bytes: 16,
    layers: plan.layers.map((path, index) => ({
      path,
      type: "Conv2D",
      trainable: index === plan.layers.length - 1,
      parameters: bytesOf(weights, path) / 4,
      weight_bytes: bytesOf(weights, path),
      trainable_weight_bytes: index === plan.layers.length - 1 ? bytesOf(weights, path) : 0,
      optimizer_bytes: bytesOf(slots, path),
      output_shape: [-1, 64, 64, 64],
      output_dtype: "float32",
      output_bytes: index === 0 ? null : 4 * 16 * 64 ** 3, // null: the table was written before the batch size was known
      unit: null,
      recomputed: null,
    })),
  };
}
