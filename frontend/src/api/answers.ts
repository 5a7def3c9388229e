/** Each route's answer, checked and turned into the model. */

import type { Activations } from "../model/activations";
import { ANSWER_NAMES, ANSWER_SOURCES, ANSWER_STATUSES, EVIDENCE_VIEWS, type Answer, type Evidence } from "../model/answer";
import { CATEGORIES, type Group } from "../model/categories";
import type { DeviceBreakdown, DevicePart, DeviceRow, Devices, DeviceSteps, Imbalance, WorkerInfo } from "../model/devices";
import { RECOMPUTED, type LayerRow, type LayersAnswer } from "../model/layers";
import type { Epoch, Failure, LayerChange, Mode, Overview, SessionStart, SnapshotRef, Validation } from "../model/overview";
import type { Demand } from "../model/pool";
import { PHASES, RUN_STATUSES, type DeviceInfo, type RunInfo, type RunsAnswer } from "../model/run";
import type { LedgerTotals, SavedRow, HeldTensorGroup, LedgerRow, Replay, Snapshot, SnapshotSummary } from "../model/snapshot";
import {
  METHODS,
  TIME_SOURCES,
  type CurvePoint,
  type FailedRequest,
  type PlainRow,
  type WhatIf,
  type Plan,
  type PlanOption,
  type PlanPoint,
} from "../model/what-if";
import { flag, list, maybe, number, object, oneOf, text, readColumns, type Check } from "./check";

export const MODES: readonly Mode[] = ["graph", "eager", "xla"];
const phase = oneOf(PHASES);
const category = oneOf(CATEGORIES);

const deviceInfo = object<DeviceInfo>({
  device: text,
  capacity_bytes: maybe(number),
  peak_bytes: maybe(number),
  peak_step: maybe(number),
  snapshots: number,
});

const runInfo = object<RunInfo>({
  run: text,
  status: oneOf(RUN_STATUSES),
  rank: number,
  version: text,
  sessions: number,
  workers: list(text),
  steps: number,
  first_step: maybe(number),
  last_step: maybe(number),
  started: maybe(number),
  phases: list(phase),
  devices: list(deviceInfo),
  most_loaded: maybe(text),
  activation_layers: number,
  ooms: number,
  findings: list(text),
  notes: list(text),
  damage: list(text),
});

const runsAnswer = object<RunsAnswer>({ plugin_version: text, runs: list(runInfo) });
export const parseRuns = (json: unknown): RunsAnswer => runsAnswer(json, "runs");

interface OverviewHead {
  run: string;
  device: string;
  phase: Overview["phase"];
  total_rows: number;
  groups: Group[];
  snapshots: SnapshotRef[];
  changes: LayerChange[];
  epochs: Epoch[];
  validations: Validation[];
  failures: Failure[];
  sessions: SessionStart[];
}

const overviewHead = object<OverviewHead>({
  run: text,
  device: text,
  phase,
  total_rows: number,
  groups: list(object<Group>({ category, trainable: maybe(flag) })),
  snapshots: list(
    object<SnapshotRef>({
      step: number,
      phase,
      mode: maybe(oneOf(MODES)),
      batch_size: maybe(number),
      at_failure: flag,
      first_step: number,
    }),
  ),
  changes: list(
    object<LayerChange>({
      step: number,
      reason: text,
      frozen_weight_bytes: number,
      trainable_weight_bytes: number,
      statistics_bytes: number,
      unfreezing_weight_bytes: number,
      optimizer_bytes: number,
      other_optimizer_bytes: number,
      frozen_layers: number,
      trainable_layers: number,
      became_trainable: list(text),
      became_frozen: list(text),
      peak_before_bytes: maybe(number),
      peak_before_step: maybe(number),
      peak_after_bytes: maybe(number),
      peak_after_step: maybe(number),
    }),
  ),
  epochs: list(object<Epoch>({ epoch: number, first_step: number, last_step: number })),
  validations: list(object<Validation>({ after_step: number, batches: number, peak_bytes: maybe(number) })),
  failures: list(object<Failure>({ oom: number, step: number, reason: text })),
  sessions: list(object<SessionStart>({ session: text, first_step: number })),
});

export function parseOverview(buffer: ArrayBuffer): Overview {
  const { answer, numbered } = readColumns(buffer, "overview", overviewHead, [
    "step",
    "epoch",
    "wall_time",
    "in_use_bytes",
    "peak_bytes",
    "capacity_bytes",
    "host_resident_bytes",
    "driver_process_bytes",
    "driver_used_bytes",
    "driver_total_bytes",
    "snapshot",
    "traced",
  ]);
  return { ...answer, bytes: numbered("group", answer.groups) };
}

const summaryFields: { [K in keyof SnapshotSummary]: Check<SnapshotSummary[K]> } = {
  step: number,
  phase,
  device: text,
  mode: maybe(oneOf(MODES)),
  batch_size: maybe(number),
  at_failure: flag,
  wall_time: number,
  in_use_bytes: number,
  pool_bytes: maybe(number),
  largest_free_bytes: maybe(number),
  capacity_bytes: maybe(number),
  fragmentation: maybe(number),
  rounding_bytes: maybe(number),
  not_available: list(text),
};

const snapshotsAnswer = object<{ snapshots: SnapshotSummary[] }>({ snapshots: list(object<SnapshotSummary>(summaryFields)) });
export const parseSnapshots = (json: unknown): SnapshotSummary[] => snapshotsAnswer(json, "snapshots").snapshots;

export const ledgerRow = object<LedgerRow>({
  layer: maybe(text),
  category,
  trainable: maybe(flag),
  bytes: number,
  rounding_bytes: maybe(number),
});

const snapshotAnswer = object<Snapshot>({
  ...summaryFields,
  run: text,
  ledger: list(ledgerRow),
  replay: maybe(object<Replay>({ addresses: number, of_addresses: number, chunks: number, of_chunks: number, peak_bytes: number })),
  saved_for_backward: list(object<SavedRow>({ layer: maybe(text), bytes: number })),
  held_tensors: list(
    object<HeldTensorGroup>({
      shape: list(number),
      dtype: text,
      count: number,
      bytes: number,
      held_by: maybe(text),
      line: maybe(text),
      retaining_path: maybe(text),
      category,
    }),
  ),
});
export const parseSnapshot = (json: unknown): Snapshot => snapshotAnswer(json, "snapshot");

const layersAnswer = object<LayersAnswer>({
  run: text,
  step: number,
  reason: text,
  optimizer: maybe(text),
  other_optimizer_bytes: number,
  other_state_bytes: number,
  layers: list(
    object<LayerRow>({
      path: text,
      type: text,
      trainable: flag,
      parameters: number,
      weight_bytes: number,
      trainable_weight_bytes: number,
      optimizer_bytes: number,
      output_shape: maybe(list(number)),
      output_dtype: maybe(text),
      output_bytes: maybe(number),
      recomputed: maybe(oneOf(RECOMPUTED)),
    }),
  ),
});
export const parseLayers = (json: unknown): LayersAnswer => layersAnswer(json, "layers");

const activationsHead = object<{ run: string; total_rows: number; layers: string[] }>({
  run: text,
  total_rows: number,
  layers: list(text),
});

export function parseActivations(buffer: ArrayBuffer): Activations {
  const { answer, numbered } = readColumns(buffer, "activations", activationsHead, ["step", "wall_time"]);
  return { ...answer, bytes: numbered("layer", answer.layers) };
}

type TotalsHead = Pick<LedgerTotals, "run" | "device" | "phase" | "layer" | "groups">;
const totalsHead = object<TotalsHead>({
  run: text,
  device: text,
  phase,
  layer: maybe(text),
  groups: list(object<Group>({ category, trainable: maybe(flag) })),
});

export function parseLedgerTotals(buffer: ArrayBuffer): LedgerTotals {
  const { answer, numbered } = readColumns(buffer, "ledger_totals", totalsHead, ["step", "wall_time", "in_use_bytes"]);
  return { ...answer, bytes: numbered("group", answer.groups) };
}

const figures: Check<Record<string, number>> = (value, where) => {
  const given = object<Record<string, number>>({})(value, where);
  for (const [name, one] of Object.entries(value as object)) given[name] = number(one, `${where}.${name}`);
  return given;
};

const answersAnswer = object<{ answers: Answer[] }>({
  answers: list(
    object<Answer>({
      name: oneOf(ANSWER_NAMES),
      question: text,
      sentence: text,
      status: oneOf(ANSWER_STATUSES),
      source: oneOf(ANSWER_SOURCES),
      evidence: object<Evidence>({
        view: oneOf(EVIDENCE_VIEWS),
        step: maybe(number),
        phase: maybe(oneOf(PHASES)),
        other_step: maybe(number),
        category: maybe(oneOf(CATEGORIES)),
        layer: maybe(text),
        zoom: maybe(list(number)),
        oom: maybe(number),
      }),
      figures,
      details: list(text),
    }),
  ),
});
export const parseAnswers = (json: unknown): Answer[] => answersAnswer(json, "answers").answers;

const row = object<PlainRow>({ layer: maybe(text), category: oneOf(CATEGORIES), trainable: maybe(flag), bytes: number });

const failed = maybe(
  object<FailedRequest>({ op: maybe(text), layer: maybe(text), requested_bytes: number, free_bytes: number, largest_free_bytes: number }),
);

const point = object<CurvePoint>({
  batch_size: number,
  peak_bytes: number,
  low_bytes: number,
  high_bytes: number,
  fits: maybe(flag),
  fails_at: failed,
});

const whatIf = object<WhatIf>({
  run: text,
  device: text,
  batch_size: maybe(number),
  capacity_bytes: maybe(number),
  peak_bytes: maybe(number),
  low_bytes: maybe(number),
  high_bytes: maybe(number),
  fits: maybe(flag),
  sentence: text,
  fails_at: failed,
  enough_capacity_bytes: maybe(number),
  largest_batch_size: maybe(number),
  method: oneOf(METHODS),
  reproduced: object<WhatIf["reproduced"]>({ addresses: number, of: number }),
  assumptions: list(text),
  recorded: object<WhatIf["recorded"]>({ batch_sizes: list(number), steps: list(number), peak_bytes: maybe(number) }),
  ledger: list(row),
  curve: list(point),
  measured: maybe(object<NonNullable<WhatIf["measured"]>>({ step: number, in_use_bytes: number, ledger: list(row) })),
});
export const parseWhatIf = (json: unknown): WhatIf => whatIf(json, "what_if");

const range = { peak_bytes: number, low_bytes: number, high_bytes: number };

const plan = object<Plan>({
  run: text,
  device: text,
  model: text,
  budget_bytes: number,
  fits: maybe(flag),
  segments: list(list(text)),
  peak_bytes: maybe(number),
  low_bytes: maybe(number),
  high_bytes: maybe(number),
  recorded_peak_bytes: maybe(number),
  demand_bytes: maybe(number),
  extra_time: maybe(number),
  time_source: oneOf(TIME_SOURCES),
  code: text,
  options: list(object<PlanOption>({ kind: text, sentence: text, ...range, fits: flag, extra_time: maybe(number) })),
  curve: list(object<PlanPoint>({ ...range, extra_time: number, segments: number })),
  ledger: list(row),
  sentences: list(text),
  measured: maybe(object<NonNullable<Plan["measured"]>>({ step: number, in_use_bytes: number, ledger: list(row) })),
});
export const parsePlan = (json: unknown): Plan => plan(json, "plan");

const answer = object<{ demand: Demand | null }>({
  demand: maybe(
    object<Demand>({
      step: number,
      phase: oneOf(PHASES),
      peak_bytes: number,
      demand_bytes: number,
      rounding_bytes: number,
      unsplit_bytes: number,
      sentences: list(text),
    }),
  ),
});
export const parseDemand = (json: unknown): { demand: Demand | null } => answer(json, "demand");

/** A column of figures; NaN where one is unknown. */
const column: Check<Float64Array> = (value, where) => Float64Array.from(list(maybe(number))(value, where), (one) => one ?? NaN);

const workerInfo = object<WorkerInfo>({
  worker: text,
  sessions: number,
  first_step: maybe(number),
  last_step: maybe(number),
  ended: flag,
  last_wall_time: maybe(number),
  status: maybe(text),
  stopped_early: maybe(text),
  clock_offset_seconds: maybe(number),
});

const devicePart = object<DevicePart>({ category: oneOf(CATEGORIES), trainable: maybe(flag), bytes: number });

const deviceRow = object<DeviceRow>({
  device: text,
  worker: text,
  name: text,
  capacity_bytes: maybe(number),
  peak_bytes: number,
  peak_step: number,
  last_in_use_bytes: maybe(number),
  headroom_bytes: maybe(number),
  pool_bytes: maybe(number),
  breakdown: maybe(
    object<DeviceBreakdown>({
      step: number,
      peak_bytes: number,
      parts: list(devicePart),
    }),
  ),
  ooms: number,
});

const devicesAnswer = object<Devices>({
  run: text,
  rolled_up: flag,
  phase: oneOf(PHASES),
  workers: list(workerInfo),
  devices: list(deviceRow),
  imbalance: maybe(object<Imbalance>({ largest: text, smallest: text, bytes: number, sentence: text })),
  sum_peak_bytes: number,
  steps: object<DeviceSteps>({
    step: column,
    max_peak_bytes: column,
    min_peak_bytes: column,
    sum_in_use_bytes: maybe(column),
  }),
  damage: list(text),
});
export const parseDevices = (json: unknown): Devices => devicesAnswer(json, "devices");
