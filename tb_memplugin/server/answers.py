"""The answers of all routes, and the objects in them that no other room declares.

A ``…Head`` goes with columns. The page's types (`answer_types`) and the tables of ``http_api.md``
follow from these. Parts of predictions are JSON objects of `fit`, of the types declared here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tb_memplugin import analysis, fit, schema

_Texts: TypeAlias = Sequence[str]
_Size: TypeAlias = int | None


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """A run with its key figures; `rank` is its place in the order in which to open them, `frozen`
    says whether it had frozen layers at any step, None if that is unknown."""

    run: str
    version: str
    sessions: int
    workers: _Texts
    steps: int
    first_step: _Size
    last_step: _Size
    started: float | None
    status: schema.RunStatus
    ended: bool | None
    recorded_until: float | None
    rank: int = 0
    phases: Sequence[schema.Phase]
    devices: Sequence[analysis.DeviceFacts]
    most_loaded: str | None
    ooms: int
    activation_layers: int
    frozen: bool | None
    findings: Sequence[schema.Finding]
    notes: _Texts
    damage: _Texts
    largest_at_failure: analysis.LargestLayer | None


@dataclass(frozen=True)
class RunsAnswer:
    plugin_version: str
    runs: Sequence[RunInfo]


@dataclass(frozen=True)
class OfRun:
    run: str


@dataclass(frozen=True)
class OfDevice(OfRun):
    device: str


@dataclass(frozen=True)
class OfPhase(OfDevice):
    phase: schema.Phase


@dataclass(frozen=True)
class AnswersAnswer(OfRun):
    device: str | None
    phase: schema.Phase
    answers: Sequence[analysis.Answer]
    largest_layer: analysis.LargestLayer | None


@dataclass(frozen=True)
class Group:
    category: schema.Category
    trainable: bool | None


@dataclass(frozen=True)
class SnapshotRef:
    """A snapshot that describes steps from `first_step` on."""

    step: int
    phase: schema.Phase
    mode: schema.Mode | None
    batch_size: _Size
    at_failure: bool
    first_step: int
    earlier_slots_bytes: int


@dataclass(frozen=True)
class Failure:
    """A failed allocation in a step; `oom` is its index in the run's failures."""

    oom: int
    step: int
    reason: str
    requested_bytes: _Size
    in_use_bytes: _Size


@dataclass(frozen=True)
class SessionStart:
    session: str
    first_step: _Size


@dataclass(frozen=True)
class OverviewHead(OfPhase):
    total_rows: int
    groups: Sequence[Group]
    snapshots: Sequence[SnapshotRef]
    changes: Sequence[analysis.LayerChange]
    epochs: Sequence[analysis.Epoch]
    validations: Sequence[analysis.ValidationPass]
    failures: Sequence[Failure]
    sessions: Sequence[SessionStart]


@dataclass(frozen=True)
class LedgerTotalsHead(OfPhase):
    layer: str | None
    groups: Sequence[Group]


@dataclass(frozen=True)
class PoolHead(OfPhase):
    total_rows: int
    sources: Sequence[analysis.PoolSource]
    growths: Sequence[analysis.PoolGrowth]
    sentences: _Texts


@dataclass(frozen=True)
class HostMemoryHead(OfPhase):
    worker: str
    total_rows: int
    summary: analysis.HostSummary | None


@dataclass(frozen=True)
class ActivationsHead(OfRun):
    total_rows: int
    layers: _Texts


@dataclass(frozen=True)
class LayersAnswer(OfRun):
    step: int
    reason: str
    layers: Sequence[schema.Layer]
    optimizer: str | None
    other_optimizer_bytes: int
    other_state_bytes: int


@dataclass(frozen=True)
class SnapshotSummary:
    """A `Snapshot` of `schema` without its lists."""

    step: int
    phase: schema.Phase
    device: str
    wall_time: float
    mode: schema.Mode | None
    in_use_bytes: int
    pool_bytes: _Size
    largest_free_bytes: _Size
    capacity_bytes: _Size
    fragmentation: float | None
    rounding_bytes: _Size
    not_available: _Texts
    replay: schema.Replay | None
    batch_size: _Size
    at_failure: bool


@dataclass(frozen=True)
class SnapshotsAnswer(OfRun):
    snapshots: Sequence[SnapshotSummary]


@dataclass(frozen=True)
class Snapshot(schema.Snapshot, OfRun):
    """A snapshot with the run's name."""


@dataclass(frozen=True)
class _Map:
    """Fields of a memory map."""

    step: _Size
    phase: schema.Phase | None
    device: str
    wall_time: float
    in_use_bytes: _Size
    pool_bytes: _Size
    capacity_bytes: _Size
    complete: bool
    not_available: _Texts


@dataclass(frozen=True)
class MapRef(_Map):
    chunks: int
    regions: Sequence[int]


@dataclass(frozen=True)
class MapsAnswer(OfRun):
    maps: Sequence[MapRef]


@dataclass(frozen=True)
class Region:
    address: int
    bytes: int


@dataclass(frozen=True)
class Bin:
    bin_bytes: int
    chunks: int
    free_bytes: int


@dataclass(frozen=True)
class BlockingChunks:
    owner: int
    chunks: int
    bytes: int
    joined_bytes: int


@dataclass(frozen=True)
class MapSummary:
    free_bytes: int
    largest_free_bytes: int
    unreserved_bytes: _Size
    rounding_bytes: int
    owned_bytes: int
    owner_unknown_bytes: int
    unknown_bytes: int
    bins: Sequence[Bin]
    blocking_chunks: Sequence[BlockingChunks]


@dataclass(frozen=True)
class MapHead(_Map):
    run: str
    chunks: int
    states: _Texts
    sources: _Texts
    owners: Sequence[schema.ChunkOwner]
    regions: Sequence[Region]
    summary: MapSummary


@dataclass(frozen=True)
class TimelineRef:
    step: int
    phase: schema.Phase
    device: str
    wall_time: float
    mode: schema.Mode
    in_use_bytes: int
    peak: int
    events: int
    duration_ns: int
    not_available: _Texts
    allocations: int
    moments: int


@dataclass(frozen=True)
class TimelinesAnswer(OfRun):
    timelines: Sequence[TimelineRef]


@dataclass(frozen=True)
class TimelineHead(TimelineRef):
    owners: Sequence[schema.ChunkOwner]
    ops: _Texts
    shapes: Sequence[schema.TensorShape]
    lines: _Texts
    bands: Sequence[schema.Band]
    compiled: Sequence[schema.CompiledSpan]
    run: str
    time_ns: schema.Integers
    event: schema.Integers


@dataclass(frozen=True)
class Oom:
    """A failed allocation without its chunks, requests and fixes; `request` is what its request
    holds."""

    chunks: _Size
    request: analysis.RequestContents | None
    status: schema.OomStatus
    step: _Size
    phase: schema.Phase | None
    device: str
    wall_time: float
    requested_bytes: _Size
    free_bytes: _Size
    largest_free_bytes: _Size
    in_use_bytes: _Size
    pool_bytes: _Size
    capacity_bytes: _Size
    verdict: schema.Verdict | None
    reason: str
    op: str | None
    layer: str | None
    shape: str | None
    ledger: Sequence[schema.LedgerRow]
    not_available: _Texts
    line: str | None
    batch_size: _Size
    during: schema.FailedDuring | None
    request_ledger: Sequence[schema.LedgerRow]
    largest_tensors: Sequence[schema.TensorGroup]


@dataclass(frozen=True)
class OomsAnswer(OfRun):
    ooms: Sequence[Oom]


@dataclass(frozen=True)
class SimulatedPeak:
    peak_bytes: int
    low_bytes: int
    high_bytes: int


@dataclass(frozen=True)
class Fixes(OfRun):
    oom: int
    fixes: Sequence[schema.Fix]
    note: str | None
    unchanged: SimulatedPeak | None


@dataclass(frozen=True)
class DeviceMemory:
    """The division of a device's memory at a step."""

    step: int
    phase: schema.Phase
    at_failure: bool
    in_use_bytes: int
    pool_bytes: _Size
    capacity_bytes: _Size
    run: str
    device: str
    total_bytes: _Size
    segments: Sequence[analysis.MemorySegment]
    notes: _Texts
    driver_process_bytes: _Size
    driver_used_bytes: _Size
    driver_total_bytes: _Size


@dataclass(frozen=True)
class DevicesAnswer(OfRun):
    rolled_up: bool
    phase: schema.Phase
    workers: Sequence[analysis.WorkerInfo]
    devices: Sequence[analysis.DeviceRow]
    most_loaded: str | None
    imbalance: analysis.Imbalance | None
    sum_peak_bytes: int
    steps: analysis.ComparedSteps
    damage: _Texts


@dataclass(frozen=True)
class MeasuredStep:
    step: int
    in_use_bytes: int
    ledger: Sequence[schema.LedgerRow]


@dataclass(frozen=True)
class CurvePoint:
    batch_size: int
    peak_bytes: int
    low_bytes: int
    high_bytes: int
    fits: bool | None
    fails_at: fit.FailedRequest | None


@dataclass(frozen=True)
class Curve(OfDevice):
    curve: Sequence[CurvePoint]


@dataclass(frozen=True)
class BatchLimit(OfDevice):
    capacity_bytes: _Size
    largest_batch_size: _Size
    may_fit_batch_size: _Size
    peak_bytes: _Size
    low_bytes: _Size
    high_bytes: _Size
    reason: str | None


@dataclass(frozen=True)
class RecordedSteps:
    batch_sizes: Sequence[int]
    steps: Sequence[int]
    peak_bytes: _Size


@dataclass(frozen=True)
class AskedConditions:
    batch_size: _Size
    capacity_bytes: _Size
    freeze: str | None
    unfreeze: str | None
    optimizer: str | None
    precision: str | None


@dataclass(frozen=True)
class WhatIf(OfDevice):
    conditions: AskedConditions
    batch_size: _Size
    capacity_bytes: _Size
    peak_bytes: _Size
    low_bytes: _Size
    high_bytes: _Size
    recorded_peak_bytes: _Size
    fits: bool | None
    sentence: str
    fails_at: fit.FailedRequest | None
    enough_capacity_bytes: _Size
    largest_batch_size: _Size
    method: fit.Method
    reproduced: fit.Reproduced
    assumptions: _Texts
    recorded: RecordedSteps
    ledger: Sequence[schema.LedgerRow]
    measured: MeasuredStep | None


@dataclass(frozen=True)
class DemandAnswer(OfDevice):
    demand: fit.Demand | None


@dataclass(frozen=True, kw_only=True)
class Plan(fit.Plan):
    """A plan of `fit` with the run's name."""

    run: str
