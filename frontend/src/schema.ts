/** The server's answers and their checks, made by `python -m tb_memplugin.server.answer_types`. */

import { figures, flag, list, maybe, number, numbers, object, oneOf, text } from "./lib/check";

export const OVERVIEW_COLUMNS = ["step", "epoch", "wall_time", "host_resident_bytes", "snapshot", "traced", "in_use_bytes", "peak_bytes", "capacity_bytes", "driver_process_bytes", "driver_used_bytes", "driver_total_bytes", "pool_bytes", "largest_free_bytes"] as const;
export const POOL_COLUMNS = ["step", "wall_time", "session", "in_use_bytes", "peak_bytes", "capacity_bytes", "pool_source", "pool_bytes", "largest_free_bytes", "fragmentation", "rounding_bytes"] as const;
export const HOST_COLUMNS = ["step", "wall_time", "host_resident_bytes", "pinned_pool_bytes", "tf_data_bytes", "cpu_bytes", "other_bytes"] as const;
export const HOST_PARTS = ["pinned_pool_bytes", "tf_data_bytes", "cpu_bytes", "other_bytes"] as const;
export const MAP_COLUMNS = ["address", "bytes", "requested_bytes", "state", "owner", "source", "since", "region"] as const;
export const TIMELINE_COLUMNS = ["start", "end", "bytes", "rounding_bytes", "count", "owner", "op", "address", "shape", "line"] as const;
export const PHASES = [
  "train",
  "validation",
  "predict",
] as const;
export type Phase = (typeof PHASES)[number];
export const MODES = [
  "graph",
  "eager",
  "xla",
] as const;
export type Mode = (typeof MODES)[number];
export const CATEGORIES = [
  "weights",
  "optimizer_state",
  "other_state",
  "held_tensors",
  "inputs",
  "activations",
  "weight_gradients",
  "activation_gradients",
  "workspace",
  "communication",
  "rounding",
  "unattributed",
] as const;
export type Category = (typeof CATEGORIES)[number];
export const RECOMPUTED = [
  "exact",
  "resampled",
] as const;
export type Recomputed = (typeof RECOMPUTED)[number];
export const OWNER_SOURCES = [
  "none",
  "variable",
  "held_tensor",
  "trace",
  "earlier_step",
  "size",
] as const;
export type OwnerSource = (typeof OWNER_SOURCES)[number];
export const BAND_NAMES = [
  "forward",
  "backward",
  "backward_and_update",
  "update",
] as const;
export type BandName = (typeof BAND_NAMES)[number];
export const VERDICTS = [
  "fragmentation",
  "capacity",
] as const;
export type Verdict = (typeof VERDICTS)[number];
export const OOM_STATUSES = [
  "failed",
  "survived",
  "failing",
  "tolerated",
] as const;
export type OomStatus = (typeof OOM_STATUSES)[number];
export const FAILED_DURING = [
  "step",
  "between_steps",
  "building",
] as const;
export type FailedDuring = (typeof FAILED_DURING)[number];
export const FIX_KINDS = [
  "batch",
  "recompute",
  "accumulation",
  "freezing",
  "unfragmented",
  "limit",
  "precision",
] as const;
export type FixKind = (typeof FIX_KINDS)[number];
export const RUN_STATUSES = [
  "failed",
  "growing",
  "fragmented",
  "training",
  "ok",
  "reading",
  "unknown",
] as const;
export type RunStatus = (typeof RUN_STATUSES)[number];
export const ANSWER_NAMES = [
  "fits",
  "growing",
  "fragmented",
  "changed",
] as const;
export type AnswerName = (typeof ANSWER_NAMES)[number];
export const ANSWER_STATUSES = [
  "ok",
  "warning",
  "failed",
  "fact",
  "unknown",
] as const;
export type AnswerStatus = (typeof ANSWER_STATUSES)[number];
export const ANSWER_SOURCES = [
  "measured",
  "inferred",
  "unknown",
] as const;
export type AnswerSource = (typeof ANSWER_SOURCES)[number];
export const EVIDENCE_VIEWS = [
  "overview",
  "fragmentation",
  "oom",
  "compare",
] as const;
export type EvidenceView = (typeof EVIDENCE_VIEWS)[number];
export const MEMORY_PARTS = [
  "in_use",
  "free_largest",
  "free_other",
  "pool_free",
  "process_other",
  "others",
  "unreserved",
  "headroom",
  "device_free",
] as const;
export type MemoryPart = (typeof MEMORY_PARTS)[number];
export const PLAN_KINDS = [
  "none",
  "recompute",
  "accumulate",
  "recompute_and_accumulate",
  "freeze",
  "batch_size",
  "optimizer",
  "precision",
  "xla",
  "graph_optimizer",
  "recompute_and_optimizer",
  "recompute_and_batch_size",
] as const;
export type PlanKind = (typeof PLAN_KINDS)[number];
export const TIME_SOURCES = [
  "measured",
  "estimated",
] as const;
export type TimeSource = (typeof TIME_SOURCES)[number];
export const PEAK_SOURCES = [
  "measured",
  "predicted",
] as const;
export type PeakSource = (typeof PEAK_SOURCES)[number];
export const POOL_SOURCES = [
  "unknown",
  "traced",
  "measured",
  "failed",
] as const;
export type PoolSource = (typeof POOL_SOURCES)[number];
export const METHODS = [
  "recorded",
  "replay",
  "compiled",
  "two_sizes",
  "estimate",
  "unknown",
] as const;
export type Method = (typeof METHODS)[number];
export const FINDING_KINDS = [
  "growth",
  "session_growth",
  "host_growth",
  "unreachable_models",
  "unused",
  "data_set",
  "constants",
  "ready_batches",
  "dense_gradients",
  "recomputed",
] as const;
export type FindingKind = (typeof FINDING_KINDS)[number];
export const CAUSE_KINDS = [
  "models_alive",
  "models_unreachable",
  "models_gone",
  "optimizers_replaced",
  "dataset_cache",
  "kept_arrays",
  "kept_iterators",
  "kept_tensors",
  "compilation",
  "retracing",
] as const;
export type CauseKind = (typeof CAUSE_KINDS)[number];
export const PERSISTENT: readonly Category[] = ["weights", "optimizer_state", "other_state", "held_tensors"];
export const HOST_PART_NAMES = {"pinned_pool_bytes": "pool of pinned memory", "tf_data_bytes": "tf.data buffers", "cpu_bytes": "memory of CPU:0", "other_bytes": "other memory"} as const;

export const activationsHead = object({
  run: text,
  total_rows: number,
  layers: list(text),
});
export type ActivationsHead = ReturnType<typeof activationsHead>;

export const answerEvidence = object({
  view: oneOf(EVIDENCE_VIEWS),
  step: maybe(number),
  phase: maybe(oneOf(PHASES)),
  other_step: maybe(number),
  category: maybe(oneOf(CATEGORIES)),
  layer: maybe(text),
  zoom: maybe(list(number)),
  oom: maybe(number),
});
export type AnswerEvidence = ReturnType<typeof answerEvidence>;

export const askedConditions = object({
  batch_size: maybe(number),
  capacity_bytes: maybe(number),
  freeze: maybe(text),
  unfreeze: maybe(text),
  optimizer: maybe(text),
  precision: maybe(text),
});
export type AskedConditions = ReturnType<typeof askedConditions>;

export const band = object({
  name: oneOf(BAND_NAMES),
  start: number,
  end: number,
});
export type Band = ReturnType<typeof band>;

export const batchLimit = object({
  run: text,
  device: text,
  capacity_bytes: maybe(number),
  largest_batch_size: maybe(number),
  may_fit_batch_size: maybe(number),
  peak_bytes: maybe(number),
  low_bytes: maybe(number),
  high_bytes: maybe(number),
  reason: maybe(text),
});
export type BatchLimit = ReturnType<typeof batchLimit>;

export const bin = object({
  bin_bytes: number,
  chunks: number,
  free_bytes: number,
});
export type Bin = ReturnType<typeof bin>;

export const blockingChunks = object({
  owner: number,
  chunks: number,
  bytes: number,
  joined_bytes: number,
});
export type BlockingChunks = ReturnType<typeof blockingChunks>;

export const cause = object({
  kind: oneOf(CAUSE_KINDS),
  text: text,
  short: text,
  count: number,
  bytes: maybe(number),
});
export type Cause = ReturnType<typeof cause>;

export const chunkOwner = object({
  layer: maybe(text),
  category: oneOf(CATEGORIES),
  trainable: maybe(flag),
});
export type ChunkOwner = ReturnType<typeof chunkOwner>;

export const comparedSteps = object({
  step: list(number),
  max_peak_bytes: list(maybe(number)),
  min_peak_bytes: list(maybe(number)),
  sum_in_use_bytes: maybe(list(maybe(number))),
});
export type ComparedSteps = ReturnType<typeof comparedSteps>;

export const compiledSpan = object({
  start: number,
  end: number,
});
export type CompiledSpan = ReturnType<typeof compiledSpan>;

export const failedRequest = object({
  op: maybe(text),
  layer: maybe(text),
  requested_bytes: number,
  step: number,
  free_bytes: number,
  largest_free_bytes: number,
});
export type FailedRequest = ReturnType<typeof failedRequest>;

export const demand = object({
  step: number,
  phase: oneOf(PHASES),
  peak_bytes: number,
  demand_bytes: number,
  rounding_bytes: number,
  unsplit_bytes: number,
  pool_bytes: number,
  one_region_bytes: maybe(number),
  growing_bytes: maybe(number),
  sentences: list(text),
});
export type Demand = ReturnType<typeof demand>;

export const deviceFacts = object({
  device: text,
  capacity_bytes: maybe(number),
  peak_bytes: maybe(number),
  peak_step: maybe(number),
  snapshots: number,
});
export type DeviceFacts = ReturnType<typeof deviceFacts>;

export const memorySegment = object({
  part: oneOf(MEMORY_PARTS),
  category: maybe(oneOf(CATEGORIES)),
  trainable: maybe(flag),
  bytes: number,
});
export type MemorySegment = ReturnType<typeof memorySegment>;

export const imbalance = object({
  largest: text,
  smallest: text,
  bytes: number,
  sentence: text,
});
export type Imbalance = ReturnType<typeof imbalance>;

export const workerInfo = object({
  worker: text,
  sessions: number,
  first_step: maybe(number),
  last_step: maybe(number),
  last_wall_time: maybe(number),
  status: oneOf(RUN_STATUSES),
  ended: maybe(flag),
  rows: maybe(number),
  stopped_early: maybe(text),
  clock_offset_seconds: maybe(number),
});
export type WorkerInfo = ReturnType<typeof workerInfo>;

export const epoch = object({
  epoch: number,
  first_step: number,
  last_step: number,
});
export type Epoch = ReturnType<typeof epoch>;

export const equalTensors = object({
  shape: list(number),
  dtype: text,
  count: number,
  bytes: number,
  layers: list(text),
});
export type EqualTensors = ReturnType<typeof equalTensors>;

export const failure = object({
  oom: number,
  step: number,
  reason: text,
  requested_bytes: maybe(number),
  in_use_bytes: maybe(number),
});
export type Failure = ReturnType<typeof failure>;

export const finding = object({
  kind: oneOf(FINDING_KINDS),
  worker: text,
  device: maybe(text),
  since_step: maybe(number),
  step: maybe(number),
  bytes: maybe(number),
  share: maybe(number),
  minor: flag,
  sentence: text,
});
export type Finding = ReturnType<typeof finding>;

export const fix = object({
  kind: oneOf(FIX_KINDS),
  change: text,
  sentence: text,
  enough: maybe(flag),
  batch_size: maybe(number),
  capacity_bytes: maybe(number),
  freeze: maybe(text),
  budget_bytes: maybe(number),
  peak_bytes: maybe(number),
  low_bytes: maybe(number),
  high_bytes: maybe(number),
  code: maybe(text),
});
export type Fix = ReturnType<typeof fix>;

export const simulatedPeak = object({
  peak_bytes: number,
  low_bytes: number,
  high_bytes: number,
});
export type SimulatedPeak = ReturnType<typeof simulatedPeak>;

export const group = object({
  category: oneOf(CATEGORIES),
  trainable: maybe(flag),
});
export type Group = ReturnType<typeof group>;

export const groupBytes = object({
  category: oneOf(CATEGORIES),
  trainable: maybe(flag),
  bytes: number,
});
export type GroupBytes = ReturnType<typeof groupBytes>;

export const heldTensorGroup = object({
  shape: list(number),
  dtype: text,
  count: number,
  bytes: number,
  held_by: maybe(text),
  line: maybe(text),
  retaining_path: maybe(text),
  category: oneOf(CATEGORIES),
});
export type HeldTensorGroup = ReturnType<typeof heldTensorGroup>;

export const trend = object({
  since_step: number,
  last_step: number,
  bytes_per_step: number,
  from_bytes: number,
  to_bytes: number,
});
export type Trend = ReturnType<typeof trend>;

export const hostState = object({
  step: number,
  resident_bytes: number,
  parts: figures,
});
export type HostState = ReturnType<typeof hostState>;

export const layer = object({
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
  unit: maybe(number),
  recomputed: maybe(oneOf(RECOMPUTED)),
});
export type Layer = ReturnType<typeof layer>;

export const layerChange = object({
  step: number,
  reason: text,
  became_trainable: list(text),
  became_frozen: list(text),
  peak_before_bytes: maybe(number),
  peak_before_step: maybe(number),
  peak_after_bytes: maybe(number),
  peak_after_step: maybe(number),
  stayed_slots_bytes: number,
  frozen_weight_bytes: number,
  trainable_weight_bytes: number,
  statistics_bytes: number,
  unfreezing_weight_bytes: number,
  optimizer_bytes: number,
  other_optimizer_bytes: number,
  frozen_layers: number,
  trainable_layers: number,
});
export type LayerChange = ReturnType<typeof layerChange>;

export const ledgerRow = object({
  layer: maybe(text),
  category: oneOf(CATEGORIES),
  trainable: maybe(flag),
  bytes: number,
  rounding_bytes: maybe(number),
});
export type LedgerRow = ReturnType<typeof ledgerRow>;

export const region = object({
  address: number,
  bytes: number,
});
export type Region = ReturnType<typeof region>;

export const mapRef = object({
  step: maybe(number),
  phase: maybe(oneOf(PHASES)),
  device: text,
  wall_time: number,
  in_use_bytes: maybe(number),
  pool_bytes: maybe(number),
  capacity_bytes: maybe(number),
  complete: flag,
  not_available: list(text),
  chunks: number,
  regions: list(number),
});
export type MapRef = ReturnType<typeof mapRef>;

export const tensorGroup = object({
  layer: maybe(text),
  category: oneOf(CATEGORIES),
  shape: list(number),
  dtype: text,
  count: number,
  bytes: number,
});
export type TensorGroup = ReturnType<typeof tensorGroup>;

export const sessionStart = object({
  session: text,
  first_step: maybe(number),
});
export type SessionStart = ReturnType<typeof sessionStart>;

export const snapshotRef = object({
  step: number,
  phase: oneOf(PHASES),
  mode: maybe(oneOf(MODES)),
  batch_size: maybe(number),
  at_failure: flag,
  first_step: number,
  earlier_slots_bytes: number,
});
export type SnapshotRef = ReturnType<typeof snapshotRef>;

export const validationPass = object({
  after_step: number,
  batches: number,
  peak_bytes: maybe(number),
});
export type ValidationPass = ReturnType<typeof validationPass>;

export const planOption = object({
  kind: oneOf(PLAN_KINDS),
  sentence: text,
  segments: list(list(text)),
  batch_size: maybe(number),
  accumulation: number,
  peak_bytes: maybe(number),
  low_bytes: maybe(number),
  high_bytes: maybe(number),
  fits: maybe(flag),
  extra_time: maybe(number),
  frozen: list(text),
  reason: maybe(text),
  peak_source: oneOf(PEAK_SOURCES),
  time_source: oneOf(TIME_SOURCES),
});
export type PlanOption = ReturnType<typeof planOption>;

export const planPoint = object({
  peak_bytes: number,
  low_bytes: number,
  high_bytes: number,
  extra_time: number,
  segments: number,
});
export type PlanPoint = ReturnType<typeof planPoint>;

export const poolGrowth = object({
  after_step: maybe(number),
  by_step: number,
  bytes: number,
  pool_bytes: number,
  peak_rise_bytes: maybe(number),
});
export type PoolGrowth = ReturnType<typeof poolGrowth>;

export const recordedSteps = object({
  batch_sizes: list(number),
  steps: list(number),
  peak_bytes: maybe(number),
});
export type RecordedSteps = ReturnType<typeof recordedSteps>;

export const replay = object({
  addresses: number,
  of_addresses: number,
  chunks: number,
  of_chunks: number,
  peak_bytes: number,
});
export type Replay = ReturnType<typeof replay>;

export const reproduced = object({
  addresses: number,
  of: number,
});
export type Reproduced = ReturnType<typeof reproduced>;

export const savedRow = object({
  layer: maybe(text),
  bytes: number,
});
export type SavedRow = ReturnType<typeof savedRow>;

export const tensorShape = object({
  shape: list(number),
  dtype: text,
});
export type TensorShape = ReturnType<typeof tensorShape>;

export const timelineRef = object({
  step: number,
  phase: oneOf(PHASES),
  device: text,
  wall_time: number,
  mode: oneOf(MODES),
  in_use_bytes: number,
  peak: number,
  events: number,
  duration_ns: number,
  not_available: list(text),
  allocations: number,
  moments: number,
});
export type TimelineRef = ReturnType<typeof timelineRef>;

export const answer = object({
  question: text,
  name: oneOf(ANSWER_NAMES),
  device: maybe(text),
  sentence: text,
  status: oneOf(ANSWER_STATUSES),
  source: oneOf(ANSWER_SOURCES),
  evidence: answerEvidence,
  figures: figures,
  details: list(text),
});
export type Answer = ReturnType<typeof answer>;

export const mapSummary = object({
  free_bytes: number,
  largest_free_bytes: number,
  unreserved_bytes: maybe(number),
  rounding_bytes: number,
  owned_bytes: number,
  owner_unknown_bytes: number,
  unknown_bytes: number,
  bins: list(bin),
  blocking_chunks: list(blockingChunks),
});
export type MapSummary = ReturnType<typeof mapSummary>;

export const curvePoint = object({
  batch_size: number,
  peak_bytes: number,
  low_bytes: number,
  high_bytes: number,
  fits: maybe(flag),
  fails_at: maybe(failedRequest),
});
export type CurvePoint = ReturnType<typeof curvePoint>;

export const demandAnswer = object({
  run: text,
  device: text,
  demand: maybe(demand),
});
export type DemandAnswer = ReturnType<typeof demandAnswer>;

export const deviceMemory = object({
  step: number,
  phase: oneOf(PHASES),
  at_failure: flag,
  in_use_bytes: number,
  pool_bytes: maybe(number),
  capacity_bytes: maybe(number),
  run: text,
  device: text,
  total_bytes: maybe(number),
  segments: list(memorySegment),
  notes: list(text),
  driver_process_bytes: maybe(number),
  driver_used_bytes: maybe(number),
  driver_total_bytes: maybe(number),
});
export type DeviceMemory = ReturnType<typeof deviceMemory>;

export const largestLayer = object({
  step: maybe(number),
  phase: maybe(oneOf(PHASES)),
  at_failure: flag,
  layer: maybe(text),
  name: text,
  bytes: number,
  share: number,
  tensors: list(equalTensors),
  sentence: text,
});
export type LargestLayer = ReturnType<typeof largestLayer>;

export const requestContents = object({
  tensors: list(equalTensors),
  sentence: text,
});
export type RequestContents = ReturnType<typeof requestContents>;

export const fixes = object({
  run: text,
  oom: number,
  fixes: list(fix),
  note: maybe(text),
  unchanged: maybe(simulatedPeak),
});
export type Fixes = ReturnType<typeof fixes>;

export const ledgerTotalsHead = object({
  run: text,
  device: text,
  phase: oneOf(PHASES),
  layer: maybe(text),
  groups: list(group),
});
export type LedgerTotalsHead = ReturnType<typeof ledgerTotalsHead>;

export const tracedPeak = object({
  step: number,
  peak_bytes: number,
  parts: list(groupBytes),
});
export type TracedPeak = ReturnType<typeof tracedPeak>;

export const hostGrowth = object({
  worker: text,
  trend: trend,
  jumps: list(list(number)),
  first_step: maybe(number),
  last_step: maybe(number),
  parts: figures,
  cpu_bytes_per_step: number,
  cause: maybe(cause),
});
export type HostGrowth = ReturnType<typeof hostGrowth>;

export const layersAnswer = object({
  run: text,
  step: number,
  reason: text,
  layers: list(layer),
  optimizer: maybe(text),
  other_optimizer_bytes: number,
  other_state_bytes: number,
});
export type LayersAnswer = ReturnType<typeof layersAnswer>;

export const measuredStep = object({
  step: number,
  in_use_bytes: number,
  ledger: list(ledgerRow),
});
export type MeasuredStep = ReturnType<typeof measuredStep>;

export const mapsAnswer = object({
  run: text,
  maps: list(mapRef),
});
export type MapsAnswer = ReturnType<typeof mapsAnswer>;

export const overviewHead = object({
  run: text,
  device: text,
  phase: oneOf(PHASES),
  total_rows: number,
  groups: list(group),
  snapshots: list(snapshotRef),
  changes: list(layerChange),
  epochs: list(epoch),
  validations: list(validationPass),
  failures: list(failure),
  sessions: list(sessionStart),
});
export type OverviewHead = ReturnType<typeof overviewHead>;

export const plan = object({
  device: text,
  budget_bytes: number,
  fits: maybe(flag),
  segments: list(list(text)),
  batch_size: maybe(number),
  accumulation: number,
  peak_bytes: maybe(number),
  low_bytes: maybe(number),
  high_bytes: maybe(number),
  peak_source: oneOf(PEAK_SOURCES),
  unchanged_peak_bytes: maybe(number),
  demand_bytes: maybe(number),
  extra_time: maybe(number),
  time_source: oneOf(TIME_SOURCES),
  code: text,
  options: list(planOption),
  curve: list(planPoint),
  ledger: list(ledgerRow),
  sentences: list(text),
  model: text,
  run: text,
});
export type Plan = ReturnType<typeof plan>;

export const poolHead = object({
  run: text,
  device: text,
  phase: oneOf(PHASES),
  total_rows: number,
  sources: list(oneOf(POOL_SOURCES)),
  growths: list(poolGrowth),
  sentences: list(text),
});
export type PoolHead = ReturnType<typeof poolHead>;

export const snapshotSummary = object({
  step: number,
  phase: oneOf(PHASES),
  device: text,
  wall_time: number,
  mode: maybe(oneOf(MODES)),
  in_use_bytes: number,
  pool_bytes: maybe(number),
  largest_free_bytes: maybe(number),
  capacity_bytes: maybe(number),
  fragmentation: maybe(number),
  rounding_bytes: maybe(number),
  not_available: list(text),
  replay: maybe(replay),
  batch_size: maybe(number),
  at_failure: flag,
});
export type SnapshotSummary = ReturnType<typeof snapshotSummary>;

export const snapshot = object({
  run: text,
  step: number,
  phase: oneOf(PHASES),
  device: text,
  wall_time: number,
  mode: maybe(oneOf(MODES)),
  in_use_bytes: number,
  pool_bytes: maybe(number),
  largest_free_bytes: maybe(number),
  capacity_bytes: maybe(number),
  fragmentation: maybe(number),
  rounding_bytes: maybe(number),
  ledger: list(ledgerRow),
  saved_for_backward: list(savedRow),
  not_available: list(text),
  replay: maybe(replay),
  held_tensors: list(heldTensorGroup),
  batch_size: maybe(number),
  at_failure: flag,
  largest_tensors: list(tensorGroup),
});
export type Snapshot = ReturnType<typeof snapshot>;

export const timelineHead = object({
  step: number,
  phase: oneOf(PHASES),
  device: text,
  wall_time: number,
  mode: oneOf(MODES),
  in_use_bytes: number,
  peak: number,
  events: number,
  duration_ns: number,
  not_available: list(text),
  allocations: number,
  moments: number,
  owners: list(chunkOwner),
  ops: list(text),
  shapes: list(tensorShape),
  lines: list(text),
  bands: list(band),
  compiled: list(compiledSpan),
  run: text,
  time_ns: numbers,
  event: numbers,
});
export type TimelineHead = ReturnType<typeof timelineHead>;

export const timelinesAnswer = object({
  run: text,
  timelines: list(timelineRef),
});
export type TimelinesAnswer = ReturnType<typeof timelinesAnswer>;

export const mapHead = object({
  step: maybe(number),
  phase: maybe(oneOf(PHASES)),
  device: text,
  wall_time: number,
  in_use_bytes: maybe(number),
  pool_bytes: maybe(number),
  capacity_bytes: maybe(number),
  complete: flag,
  not_available: list(text),
  run: text,
  chunks: number,
  states: list(text),
  sources: list(text),
  owners: list(chunkOwner),
  regions: list(region),
  summary: mapSummary,
});
export type MapHead = ReturnType<typeof mapHead>;

export const curve = object({
  run: text,
  device: text,
  curve: list(curvePoint),
});
export type Curve = ReturnType<typeof curve>;

export const answersAnswer = object({
  run: text,
  device: maybe(text),
  phase: oneOf(PHASES),
  answers: list(answer),
  largest_layer: maybe(largestLayer),
});
export type AnswersAnswer = ReturnType<typeof answersAnswer>;

export const runInfo = object({
  run: text,
  version: text,
  sessions: number,
  workers: list(text),
  steps: number,
  first_step: maybe(number),
  last_step: maybe(number),
  started: maybe(number),
  status: oneOf(RUN_STATUSES),
  ended: maybe(flag),
  recorded_until: maybe(number),
  rank: number,
  phases: list(oneOf(PHASES)),
  devices: list(deviceFacts),
  most_loaded: maybe(text),
  ooms: number,
  activation_layers: number,
  frozen: maybe(flag),
  findings: list(finding),
  notes: list(text),
  damage: list(text),
  largest_at_failure: maybe(largestLayer),
});
export type RunInfo = ReturnType<typeof runInfo>;

export const oom = object({
  chunks: maybe(number),
  request: maybe(requestContents),
  status: oneOf(OOM_STATUSES),
  step: maybe(number),
  phase: maybe(oneOf(PHASES)),
  device: text,
  wall_time: number,
  requested_bytes: maybe(number),
  free_bytes: maybe(number),
  largest_free_bytes: maybe(number),
  in_use_bytes: maybe(number),
  pool_bytes: maybe(number),
  capacity_bytes: maybe(number),
  verdict: maybe(oneOf(VERDICTS)),
  reason: text,
  op: maybe(text),
  layer: maybe(text),
  shape: maybe(text),
  ledger: list(ledgerRow),
  not_available: list(text),
  line: maybe(text),
  batch_size: maybe(number),
  during: maybe(oneOf(FAILED_DURING)),
  request_ledger: list(ledgerRow),
  largest_tensors: list(tensorGroup),
});
export type Oom = ReturnType<typeof oom>;

export const deviceRow = object({
  name: text,
  peak_bytes: number,
  peak_step: number,
  last_in_use_bytes: maybe(number),
  capacity_bytes: maybe(number),
  pool_bytes: maybe(number),
  rows: maybe(number),
  ooms: number,
  device: text,
  worker: text,
  headroom_bytes: maybe(number),
  breakdown: maybe(tracedPeak),
});
export type DeviceRow = ReturnType<typeof deviceRow>;

export const hostSummary = object({
  sentence: text,
  resident_bytes: number,
  peak_bytes: number,
  peak_step: number,
  state: maybe(hostState),
  steps: number,
  bound_bytes: number,
  growth: maybe(hostGrowth),
});
export type HostSummary = ReturnType<typeof hostSummary>;

export const whatIf = object({
  run: text,
  device: text,
  conditions: askedConditions,
  batch_size: maybe(number),
  capacity_bytes: maybe(number),
  peak_bytes: maybe(number),
  low_bytes: maybe(number),
  high_bytes: maybe(number),
  recorded_peak_bytes: maybe(number),
  fits: maybe(flag),
  sentence: text,
  fails_at: maybe(failedRequest),
  enough_capacity_bytes: maybe(number),
  largest_batch_size: maybe(number),
  method: oneOf(METHODS),
  reproduced: reproduced,
  assumptions: list(text),
  recorded: recordedSteps,
  ledger: list(ledgerRow),
  measured: maybe(measuredStep),
});
export type WhatIf = ReturnType<typeof whatIf>;

export const snapshotsAnswer = object({
  run: text,
  snapshots: list(snapshotSummary),
});
export type SnapshotsAnswer = ReturnType<typeof snapshotsAnswer>;

export const runsAnswer = object({
  plugin_version: text,
  runs: list(runInfo),
});
export type RunsAnswer = ReturnType<typeof runsAnswer>;

export const oomsAnswer = object({
  run: text,
  ooms: list(oom),
});
export type OomsAnswer = ReturnType<typeof oomsAnswer>;

export const devicesAnswer = object({
  run: text,
  rolled_up: flag,
  phase: oneOf(PHASES),
  workers: list(workerInfo),
  devices: list(deviceRow),
  most_loaded: maybe(text),
  imbalance: maybe(imbalance),
  sum_peak_bytes: number,
  steps: comparedSteps,
  damage: list(text),
});
export type DevicesAnswer = ReturnType<typeof devicesAnswer>;

export const hostMemoryHead = object({
  run: text,
  device: text,
  phase: oneOf(PHASES),
  worker: text,
  total_rows: number,
  summary: maybe(hostSummary),
});
export type HostMemoryHead = ReturnType<typeof hostMemoryHead>;
