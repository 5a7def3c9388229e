/** A made-up training: the answers of every route for one run. The same plan always gives the same figures. */

import type { Group } from "../src/model/categories";
import type { LayersAnswer } from "../src/model/layers";
import { totalsOf } from "../src/model/ledger-totals";
import type { Verdict } from "../src/model/oom";
import type { LayerChange, SnapshotRef } from "../src/model/overview";
import type { RunInfo } from "../src/model/run";
import type { LedgerRow, Snapshot, SnapshotSummary } from "../src/model/snapshot";
import { encodeColumns } from "./encode";

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
  /** Whether the allocator took its whole limit at once. */
  atOnce?: boolean;
  damage?: string[];
  notes?: string[];
  findings?: string[];
  /** Bytes of the largest chunk of a map. */
  chunkBytes?: number;
  /** Moments inside a step for each row of its ledger that moves. */
  momentsEach?: number;
  /** Whether steps are a compiler's plan inside. */
  planned?: boolean;
  /** Whether traced steps have no timelines, as those of earlier versions. */
  bare?: boolean;
  /** Verdicts of the steps that died, and whether their chunks are not known. */
  deaths?: Verdict[];
  mapless?: boolean;
  /** How many layers have activation bytes that the training wrote itself; such a run has no allocator figures. */
  recorded?: number;
  /** Steps at which further attempts began. */
  restarts?: number[];
}

export const GROUPS: readonly Group[] = [
  { category: "weights", trainable: false },
  { category: "weights", trainable: true },
  { category: "optimizer_state", trainable: null },
  { category: "other_state", trainable: null },
  { category: "inputs", trainable: null },
  { category: "activations", trainable: null },
  { category: "activation_gradients", trainable: null },
  { category: "weight_gradients", trainable: null },
  { category: "workspace", trainable: null },
  { category: "unattributed", trainable: null },
];

const unfrozen = (plan: Plan, step: number): boolean => plan.unfreezeAt !== null && step >= plan.unfreezeAt;

/** Bytes of each group at a step's peak. */
function bytesAt(plan: Plan, step: number): number[] {
  const free = unfrozen(plan, step);
  const sizes = free ? [30, 27, 54, 0.02, 6, 90, 31, 27, 40, 4] : [56, 1, 2, 0.02, 6, 24, 2, 1, 60, 4];
  const flutter = 1 + (((step * 7919) % 13) - 6) / 400;
  return sizes.map((size, index) => Math.round((size * MIB * plan.scale * (index > 4 ? flutter : 1)) / 256) * 256);
}

const tracedSteps = (plan: Plan): number[] =>
  Array.from({ length: Math.floor((plan.steps - 4) / plan.traceEvery) + 1 }, (_, index) => 3 + index * plan.traceEvery);

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
const wallTime = (step: number): number => 1790000000 + step * 0.25;

export function ledgerAt(plan: Plan, step: number): LedgerRow[] {
  const bytes = bytesAt(plan, step);
  const rows = GROUPS.flatMap(({ category, trainable }, index): LedgerRow[] => {
    const total = bytes[index] as number;
    if (category === "inputs" || category === "other_state" || category === "unattributed") {
      return [{ layer: null, category, trainable: null, bytes: total, rounding_bytes: 0 }];
    }
    // Of what belongs to layers, the last layer holds a third and is the one that is trainable.
    const last = Math.floor(total / 3 / 256) * 256;
    const owned = trainable ?? (category === "optimizer_state" || category === "weight_gradients" ? true : null);
    return [
      { layer: plan.layers[0] ?? null, category, trainable: owned ?? false, bytes: total - last, rounding_bytes: 0 },
      { layer: plan.layers.at(-1) ?? null, category, trainable: owned ?? true, bytes: last, rounding_bytes: 128 },
    ];
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
    wall_time: wallTime(step),
    in_use_bytes: used,
    pool_bytes: pool,
    largest_free_bytes: largest,
    capacity_bytes: plan.capacity,
    fragmentation: pool === null || largest === null || pool === used ? null : (pool - used - largest) / (pool - used),
    rounding_bytes: 128,
    not_available: plan.pool ? [] : ["The pool is not available, because TF_GPU_ALLOCATOR=cuda_malloc_async does not report it."],
  };
}

export const snapshotAt = (plan: Plan, step: number): Snapshot => ({
  ...summaryAt(plan, step),
  run: plan.run,
  ledger: ledgerAt(plan, step),
  held_for_backward: [],
});

export const snapshotsOf = (plan: Plan): SnapshotSummary[] => tracedSteps(plan).map((step) => summaryAt(plan, step));

export function ledgerTotalsOf(plan: Plan, layer: string | null): Uint8Array<ArrayBuffer> {
  const place = { run: plan.run, device: "GPU:0", phase: "train" } as const;
  const taken = tracedSteps(plan).map((step) => snapshotAt(plan, step));
  const totals = totalsOf(taken, layer, place);
  const { step, wall_time, in_use_bytes, groups } = totals;
  return encodeColumns(
    { ...place, layer, groups },
    {
      step,
      wall_time,
      in_use_bytes,
      ...Object.fromEntries(totals.bytes.map((column, index) => [`group/${index}`, column])),
      ...Object.fromEntries(totals.rounding_bytes.map((column, index) => [`rounding/${index}`, column])),
    },
  );
}

/** Bytes that a training wrote itself, of each layer, from one step to another. */
export function activationsOf(plan: Plan, first: number, last: number, points: number): Uint8Array<ArrayBuffer> {
  const steps = rowsOf(plan, Math.max(first, 0), Math.min(last, plan.steps - 1), points);
  const layers = Array.from({ length: plan.recorded ?? 0 }, (_, index) => `encoder/layer_${index}/attention`);
  const bytes = layers.map((_, index) => steps.map((step) => ((layers.length - index) * 3 + (step % 7)) * MIB));
  return encodeColumns(
    { run: plan.run, total_rows: last - first + 1, layers },
    {
      step: steps,
      wall_time: steps.map(wallTime),
      ...Object.fromEntries(bytes.map((column, index) => [`layer/${index}`, column])),
    },
  );
}

function changesOf(plan: Plan): LayerChange[] {
  const table = (step: number, reason: string, became: string[]): LayerChange => {
    const [frozen = 0, trainable = 0, slots = 0] = bytesAt(plan, step);
    return {
      step,
      reason,
      frozen_weight_bytes: frozen,
      trainable_weight_bytes: trainable,
      optimizer_bytes: slots,
      frozen_layers: 10,
      trainable_layers: 2,
      became_trainable: became,
      became_frozen: [],
    };
  };
  const began = table(0, "recording began", []);
  if (plan.unfreezeAt === null) return [began];
  return [began, table(plan.unfreezeAt, `${plan.layers.at(-1) ?? "a layer"} became trainable`, [plan.layers.at(-1) ?? "a layer"])];
}

/** Rows that an overview keeps: all up to twice `points`, else evenly chosen ones and every traced one. */
function rowsOf(plan: Plan, first: number, last: number, points: number): number[] {
  const all = Array.from({ length: last - first + 1 }, (_, index) => first + index);
  if (all.length <= 2 * points) return all;
  const traced = new Set(tracedSteps(plan));
  const every = Math.ceil(all.length / points);
  return all.filter((step, index) => index % every === 0 || traced.has(step) || index === all.length - 1);
}

export function overviewOf(plan: Plan, first: number, last: number, points: number): Uint8Array<ArrayBuffer> {
  const steps = rowsOf(plan, Math.max(first, 0), Math.min(last, plan.steps - 1), points);
  const traced = tracedSteps(plan);
  const snapshots = traced.map((step): SnapshotRef => ({ step, phase: "train", mode: "graph" }));
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
    validations: epochs.map(({ last_step }) => ({
      after_step: last_step,
      batches: 4,
      peak_bytes: Math.round(sum(bytesAt(plan, last_step)) * 0.7),
    })),
    sessions: [0, ...(plan.restarts ?? [])].map((first_step, index) => ({ session: `s${index}`, first_step })),
  };
  return encodeColumns(head, {
    step: steps,
    epoch: steps.map((step) => Math.floor(step / plan.epochSteps)),
    wall_time: steps.map(wallTime),
    in_use_bytes: peaks.map((peak) => Math.floor(peak * 0.4)),
    peak_bytes: peaks,
    capacity_bytes: steps.map(() => plan.capacity ?? NaN),
    host_resident_bytes: steps.map(() => 1400 * MIB),
    driver_process_bytes: unknown,
    driver_used_bytes: unknown,
    driver_total_bytes: unknown,
    snapshot: steps.map((step) =>
      Math.max(
        traced.findLastIndex((at) => at <= step),
        0,
      ),
    ),
    traced: steps.map((step) => (traced.includes(step) ? 1 : 0)),
    ...Object.fromEntries(GROUPS.map((_, index) => [`group/${index}`, bytes.map((row) => row[index] as number)])),
  });
}

/** What is known of the pool: the traced steps' until the next one with the same, else between both. */
export function poolOf(plan: Plan, first: number, last: number, points: number): Uint8Array<ArrayBuffer> {
  const steps = rowsOf(plan, Math.max(first, 0), Math.min(last, plan.steps - 1), points);
  const traced = tracedSteps(plan);
  const pools = traced.map((step) => summaryAt(plan, step).pool_bytes ?? NaN);
  const changes = plan.pool ? traced.flatMap((_, index) => (index === 0 || pools[index] !== pools[index - 1] ? [index] : [])) : [];
  const growths = changes.map((index) => ({
    after_step: traced[index - 1] ?? null,
    by_step: traced[index] as number,
    bytes: (pools[index] as number) - (pools[index - 1] ?? 0),
    pool_bytes: pools[index] as number,
  }));
  const bands = growths.map(({ bytes }, growth) => ({ bytes, region: growth > 0, growth }));
  const known = (value: number | null | undefined): number => value ?? NaN;
  const around = steps.map((step): [number, number] => {
    const after = traced.findIndex((at) => at >= step);
    const before = traced.findLastIndex((at) => at <= step);
    return [known(pools[before]), after < 0 ? known(plan.capacity) : known(pools[after])];
  });
  const used = steps.map((step) => sum(bytesAt(plan, step)));
  const low = around.map(([before], row) => (plan.pool ? Math.max(Number.isNaN(before) ? 0 : before, used[row] as number) : NaN));
  const high = around.map(([, after]) => (plan.pool ? after : NaN));
  const isTraced = (step: number): boolean => plan.pool && traced.includes(step);
  const ofTraced = (step: number, figure: (taken: SnapshotSummary) => number | null): number =>
    isTraced(step) ? known(figure(summaryAt(plan, step))) : NaN;
  const head = {
    run: plan.run,
    device: "GPU:0",
    phase: "train",
    total_rows: last - first + 1,
    sources: ["none", "bounded", "inferred", "traced"],
    bands,
    growths,
    sentences: growths.map(({ by_step, pool_bytes }) => `The pool had ${Math.round(pool_bytes / MIB)} MiB at step ${by_step}.`),
  };
  return encodeColumns(head, {
    step: steps,
    wall_time: steps.map(wallTime),
    in_use_bytes: used.map((bytes) => Math.floor(bytes * 0.4)),
    peak_bytes: used,
    capacity_bytes: steps.map(() => plan.capacity ?? NaN),
    pool_low_bytes: low,
    pool_high_bytes: high,
    pool_source: steps.map((step, row) => (isTraced(step) ? 3 : !plan.pool ? 0 : low[row] === high[row] ? 2 : 1)),
    largest_free_bytes: steps.map((step) => ofTraced(step, ({ largest_free_bytes }) => largest_free_bytes)),
    rounding_bytes: steps.map((step) => ofTraced(step, ({ rounding_bytes }) => rounding_bytes)),
    fragmentation: steps.map((step) => ofTraced(step, ({ fragmentation }) => fragmentation)),
    ...Object.fromEntries(
      growths.map(({ after_step, by_step }, index) => [
        `band/${index}`,
        steps.map((step) => (step >= by_step ? 2 : step > (after_step ?? -1) ? 1 : 0)),
      ]),
    ),
  });
}

export function infoOf(plan: Plan): RunInfo {
  const peaks = Array.from({ length: plan.steps }, (_, step) => sum(bytesAt(plan, step)));
  const peak = peaks.reduce((most, value) => Math.max(most, value), 0);
  return {
    run: plan.run,
    version: "1",
    sessions: 1 + (plan.restarts ?? []).length,
    workers: [""],
    steps: plan.steps,
    first_step: 0,
    last_step: plan.steps - 1,
    started: wallTime(0),
    phases: ["train"],
    devices:
      plan.recorded !== undefined
        ? []
        : [
            {
              device: "GPU:0",
              capacity_bytes: plan.capacity,
              peak_bytes: peak,
              peak_step: peaks.indexOf(peak),
              snapshots: tracedSteps(plan).length,
            },
          ],
    activation_layers: plan.recorded ?? 0,
    ooms: (plan.deaths ?? []).length,
    findings: plan.findings ?? [],
    notes: plan.notes ?? [],
    damage: plan.damage ?? [],
  };
}

export function layersOf(plan: Plan, step: number): LayersAnswer {
  const weights = ledgerAt(plan, step).filter(({ category }) => category === "weights");
  const slots = ledgerAt(plan, step).filter(({ category }) => category === "optimizer_state");
  const held = (rows: readonly LedgerRow[], path: string): number =>
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
      parameters: held(weights, path) / 4,
      weight_bytes: held(weights, path),
      trainable_weight_bytes: index === plan.layers.length - 1 ? held(weights, path) : 0,
      optimizer_bytes: held(slots, path),
      output_shape: [-1, 64, 64, 64],
      output_dtype: "float32",
      // As of a layer whose table was written before the size of the batch was known.
      output_bytes: index === 0 ? null : 4 * 16 * 64 ** 3,
    })),
  };
}
