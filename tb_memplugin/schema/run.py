"""A run, its sessions, the samples of its steps, the counters of its program, and the summary of
one worker."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from tb_memplugin.schema.chunks import MemoryMap, StepRequests, Timeline
from tb_memplugin.schema.fields import (
    MAX_LAYERS,
    MISSING,
    PHASES,
    Bounds,
    Floats,
    Integers,
    Matrix,
    MaybeSizes,
    Most,
    Name,
    NotStored,
    Phase,
    Size,
    Sizes,
    Step,
    Table,
    missing_rows,
)
from tb_memplugin.schema.layers import LayerTable
from tb_memplugin.schema.oom import Oom
from tb_memplugin.schema.snapshot import Snapshot, TracedPeak
from tb_memplugin.schema.text import clean, counted


@dataclasses.dataclass(frozen=True)
class DeviceSamples:
    """Allocator figures of one device, shape [rows] as in their `Samples`; `MISSING` if unknown.

    Attributes:
        in_use_bytes: Allocated at step end.
        peak_bytes: Highest allocated bytes of the step.
        capacity_bytes: The allocator's limit.
        driver_process_bytes: Device memory of the process, by the driver.
        driver_used_bytes: Device memory of all processes, by the driver.
        driver_total_bytes: Total device memory, by the driver.
        pool_bytes: Reserved by the allocator at step end.
        largest_free_bytes: Largest free chunk at step end."""

    in_use_bytes: MaybeSizes
    peak_bytes: MaybeSizes
    capacity_bytes: MaybeSizes
    driver_process_bytes: MaybeSizes
    driver_used_bytes: MaybeSizes
    driver_total_bytes: MaybeSizes
    pool_bytes: MaybeSizes
    largest_free_bytes: MaybeSizes

    @property
    def least_peak_bytes(self) -> Integers:
        """Lower bounds of the peaks: if an allocator keeps none, the bytes in use at step end."""
        return np.maximum(self.peak_bytes, self.in_use_bytes)


_ROWS = Table("rows", 2**31)


@dataclasses.dataclass(frozen=True)
class Samples:
    """One row for each training step and each validation or prediction batch, in the order of
    recording.

    Attributes:
        step: Training step; a validation batch carries the training step it came after.
        phase: Index into `PHASES`.
        epoch: Epoch from 0, `MISSING` outside an epoch.
        wall_time: Time of the step's end, in seconds since the Unix epoch.
        host_resident_bytes: Host RSS of the process.
        devices: Device name (``GPU:0``) to its figures.
        tf_data_bytes: Elements in buffers and caches of ``tf.data`` by its own model of the
            pipelines, read at some steps.
        pinned_pool_bytes: TensorFlow's pool of host memory that is pinned for transfers to GPUs
            (``gpu_host_bfc``), read at some steps."""

    step: Annotated[Sizes, _ROWS]
    phase: Annotated[Integers, Bounds(0, len(PHASES) - 1), _ROWS]
    epoch: Annotated[Integers, _ROWS]
    wall_time: Annotated[Floats, _ROWS]
    host_resident_bytes: Annotated[MaybeSizes, _ROWS]
    devices: Annotated[Mapping[str, DeviceSamples], Most(256), _ROWS]
    tf_data_bytes: Annotated[MaybeSizes, _ROWS] = None  # type: ignore[assignment]  # unknown
    pinned_pool_bytes: Annotated[MaybeSizes, _ROWS] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if getattr(self, field.name) is None:
                object.__setattr__(
                    self, field.name, np.broadcast_to(np.int64(MISSING), len(self.step))
                )

    def __len__(self) -> int:
        return len(self.step)

    def of(self, device: str) -> DeviceSamples:
        """The figures of a device, all `MISSING` if it was not recorded."""
        found = self.devices.get(device)
        return missing_rows(DeviceSamples, len(self)) if found is None else found

    def is_of(self, phase: Phase) -> npt.NDArray[np.bool_]:
        """Mask of the rows of a phase."""
        mask: npt.NDArray[np.bool_] = self.phase == PHASES.index(phase)
        return mask


SAMPLE_COLUMNS = tuple(
    field.name for field in dataclasses.fields(Samples) if field.name != "devices"
)
"""The columns of `Samples` that belong to no device."""


def one_row_a_step(
    steps: Integers, figures: DeviceSamples, rows: npt.NDArray[np.bool_]
) -> npt.NDArray[np.intp]:
    """Those of some rows with a value of the device, sorted by step; for each step the row of the
    highest peak."""
    known = [figures.peak_bytes, figures.in_use_bytes, figures.driver_process_bytes]
    chosen = np.flatnonzero(rows & np.any([column != MISSING for column in known], axis=0))
    steps, peaks = steps[chosen], figures.peak_bytes[chosen]
    if (np.diff(steps) <= 0).any():
        # Sorted by step and peak, the last row of a step has its highest peak.
        order = np.lexsort((peaks, steps))
        steps = steps[order]
        chosen = chosen[order][np.append(steps[1:] != steps[:-1], True)]
    return chosen


NO_STEPS: Integers = np.empty(0, np.int64)
_NO_TIMES: Floats = np.empty(0, np.float64)
NO_SAMPLES = Samples(NO_STEPS, NO_STEPS, NO_STEPS, _NO_TIMES, NO_STEPS, {})


def measured_pools(figures: DeviceSamples) -> npt.NDArray[np.bool_]:
    """Mask of rows with a measured pool that holds the allocated bytes and the largest free chunk
    at step end."""
    in_use, pool, largest = figures.in_use_bytes, figures.pool_bytes, figures.largest_free_bytes
    measured: npt.NDArray[np.bool_] = (in_use != MISSING) & (pool != MISSING) & (largest != MISSING)
    return measured & (in_use + largest <= pool)


@dataclasses.dataclass(frozen=True)
class LayerActivations:
    """Recorded activation bytes of layers over steps, in order of recording.

    Attributes:
        step: Training step.
        wall_time: Seconds since the epoch.
        layers: Layer paths, one for each column.
        bytes: Shape [rows, layers]; `MISSING` if a layer was not recorded at a step."""

    step: Annotated[Sizes, _ROWS]
    wall_time: Annotated[Floats, _ROWS]
    layers: Annotated[tuple[str, ...], Table("layers", MAX_LAYERS)]
    bytes: Annotated[MaybeSizes, Matrix("step", "layers"), Table("bytes", 2**31)]

    def __len__(self) -> int:
        return len(self.step)

    def faults(self) -> Iterator[str]:
        if len(set(self.layers)) != len(self.layers):
            yield "the layer paths of activations are not unique"


def full_device_name(worker: str, device: str) -> str:
    """A worker's device by its name in the run of all workers: ``worker_0/GPU:0``."""
    return f"{worker}/{device}" if worker else device


CounterKind: TypeAlias = Literal[
    "models_built",
    "models_alive",
    "models_unreachable",
    "models_gone",
    "slots_without_model",
    "optimizers_replaced",
    "traces",
    "compiled_shapes",
    "dataset_caches",
    "kept_arrays",
    "kept_iterators",
    "kept_tensors",
    "kept_models",
    "earlier_sessions",
]
"""Of a row:

- `models_built`: Keras models built so far; no name.
- `models_alive`: by device, models that exist, and the bytes of their variables and of their
  optimizers' slots.
- `models_unreachable`: by device, models that the program can no longer reach but Python's garbage
  collector has not freed yet, and the bytes of those of their variables and slots that it would
  free.
- `models_gone`: by device, models that the program dropped while something else keeps variables or
  slots of them, and these bytes.
- `slots_without_model`: by device, optimizers that exist without their model, and the bytes of
  their slots.
- `optimizers_replaced`: by device, optimizers of existing models that another optimizer has
  replaced, while something keeps their slots, and the bytes of these.
- `traces`: by function, calls so far that traced a `tf.function`.
- `compiled_shapes`: by function, different signatures that a function with `jit_compile=True` was
  called with so far, for each of which XLA compiles it.
- `dataset_caches`: datasets that are read and cached in memory, and the bytes that they cache for
  one batch until all of their elements are cached; no name.
- `kept_arrays`: by holder, NumPy arrays that an object of the program keeps, and their bytes; for
  the largest holders, at few steps.
- `kept_iterators`: by holder, iterators over data sets that it keeps.
- `kept_tensors`: by holder, tensors and variables of no model that it keeps, and their bytes.
- `kept_models`: by holder, earlier models that it keeps, and their bytes.
- `earlier_sessions`: by device, one row for each earlier session of the process: its number, and
  the bytes in use at its end without the variables of its own model."""


_COUNTED = Table("counters", 4096)


@dataclasses.dataclass(frozen=True)
class Counters:
    """Rows in the order of recording: one for each counter at the session's start and whenever it
    changed.

    Attributes:
        step: Training step at whose end the counter had the value.
        name: Device or function; None for other kinds.
        bytes: `MISSING` for kinds without bytes, or if they are unknown.
        worker: Worker of the session in a merged run."""

    step: Annotated[Sizes, _COUNTED]
    kind: Annotated[tuple[CounterKind, ...], _COUNTED]
    name: Annotated[tuple[str | None, ...], _COUNTED]
    count: Annotated[Sizes, _COUNTED]
    bytes: Annotated[MaybeSizes, _COUNTED]
    worker: Annotated[str, NotStored] = ""

    def __len__(self) -> int:
        return len(self.step)


NO_COUNTERS = Counters(NO_STEPS, (), (), NO_STEPS, NO_STEPS)


@dataclasses.dataclass(frozen=True)
class SessionInfo:
    """One process's recording into a run.

    Attributes:
        session: Identifier; sorts by start time.
        started: Seconds since the epoch.
        versions: Package name to version, for tb_memplugin, tensorflow and keras.
        notes: Sentences on what was not recorded, and why.
        ended: When the recorder was closed, in seconds since the epoch; None if it did not say so.
        analyzing: The traced step that is being analyzed, as long as there is no breakdown; None
            otherwise.
        earlier: Number of sessions in its directory that had ended when it began, whatever the
            clocks say; None where locks do not show that."""

    session: Annotated[str, NotStored]
    started: float
    producer: Literal["recorder", "summary", "import"]
    versions: Mapping[str, str]
    notes: tuple[str, ...]
    ended: float | None = None
    analyzing: Size | None = None
    earlier: Size | None = None


@dataclasses.dataclass(frozen=True)
class Session:
    """The records of one session.

    Attributes:
        lost_steps: Ranges (first, last) of trained steps whose samples were recorded and cannot be
            read.
        lost_activation_steps: The same for recorded activations."""

    info: SessionInfo
    layer_tables: tuple[LayerTable, ...]
    samples: Samples
    activations: LayerActivations
    snapshots: tuple[Snapshot, ...]
    maps: tuple[MemoryMap, ...] = ()
    ooms: tuple[Oom, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    requests: tuple[StepRequests, ...] = ()
    lost_steps: tuple[tuple[int, int], ...] = ()
    lost_activation_steps: tuple[tuple[int, int], ...] = ()
    counters: Counters | None = None


FindingKind: TypeAlias = Literal[
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
]


@dataclasses.dataclass(frozen=True)
class Finding:
    """What is worth knowing of a run's memory, with the facts that its sentence tells.

    Attributes:
        kind: What it is on.
        worker: Worker that it is on.
        device: Device by its name in the whole run; None for what is on all of the worker, such as
            its host memory.
        since_step: Step since which memory grows; None if it does not grow over steps.
        step: The last step of the growth, or that of the bytes; None where they are of no step.
        bytes: Bytes that were added, or that could be freed or saved; None if unknown.
        share: The same as a share of the device's peak; None if unknown.
        minor: Whether the share is too small for a warning.
        sentence: All of it as text, with the device's name."""

    kind: FindingKind
    worker: str
    device: str | None
    since_step: int | None
    step: int | None
    bytes: int | None
    share: float | None
    minor: bool
    sentence: str


@dataclasses.dataclass(frozen=True, repr=False)
class Run:
    """One run: its sessions in order of their start, merged.

    Attributes:
        name: As TensorBoard shows it.
        sessions: Identifiers, in order.
        workers: Worker names; ``("",)`` for a run of one process.
        layer_tables, samples, activations, snapshots: Of all sessions; a later session replaces the
            steps it repeats. The layer tables are those of the first worker that has any;
            `with_layers_of` has those of another.
        notes: Sentences on what was not recorded.
        damage: Sentences on what could not be read, with the missing steps.
        maps: Memory maps, if requested.
        ooms: Post-mortems in order of time, without withdrawn ones.
        findings: Findings on all devices and host memory, if requested.
        session_starts: Starts of the sessions, in seconds since the epoch; each session has a new
            pool.
        timelines: Timelines of traced steps, if requested.
        requests: Requests of traced steps for replay, if requested.
        counters: Of each session that recorded them, in order of their start.
        ended: Whether the last session said that it ended; None if none of a recorder can say so.
        thinning: Recorded samples for each one in `samples`: above 1 for a run with too many of
            them."""

    name: str
    sessions: tuple[str, ...]
    workers: tuple[str, ...]
    layer_tables: tuple[LayerTable, ...]
    samples: Samples
    activations: LayerActivations
    snapshots: tuple[Snapshot, ...]
    notes: tuple[str, ...]
    damage: tuple[str, ...]
    maps: tuple[MemoryMap, ...] = ()
    ooms: tuple[Oom, ...] = ()
    findings: tuple[Finding, ...] = ()
    session_starts: tuple[float, ...] = ()
    timelines: tuple[Timeline, ...] = ()
    requests: tuple[StepRequests, ...] = ()
    counters: tuple[Counters, ...] = ()
    ended: bool | None = None
    thinning: int = 1

    def __repr__(self) -> str:
        devices = ", ".join(self.samples.devices) or "no device"
        figures = [counted(len(self.samples), "sample"), counted(len(self.snapshots), "snapshot")]
        figures += [counted(len(self.ooms), "failure")] if self.ooms else []
        return clean(f"<{type(self).__name__} {self.name!r}: {', '.join(figures)} of {devices}>")


def with_layers_of(run: Run, by_worker: Mapping[str, Run], device: str | None) -> Run:
    """The run with the layer tables of the worker of a device, called ``worker_1/GPU:0``; unchanged
    for other names."""
    workers = [worker for worker in by_worker if worker and (device or "").startswith(f"{worker}/")]
    if not workers:
        return run
    return dataclasses.replace(run, layer_tables=by_worker[max(workers, key=len)].layer_tables)


RunStatus: TypeAlias = Literal[
    "failed", "growing", "fragmented", "training", "ok", "reading", "unknown"
]


@dataclasses.dataclass(frozen=True)
class DeviceSummary:
    """One device of a worker in one phase.

    Attributes:
        peak_bytes, peak_step: The same as in the answer `fits`; see `fitting_peak`.
        last_in_use_bytes, pool_bytes: As last recorded in the phase, None if unknown.
        ooms, snapshots: Numbers of failed allocations and of traced steps, in any phase.
        traced: The traced steps of the phase, one of each step, ascending; of a stored summary the
            highest.
        rows: Number of its steps in the phase; None in a stored summary.
        step, step_peak_bytes, step_in_use_bytes: One row a step, ascending, shape [rows]; `MISSING`
            if unknown. Empty in a summary without steps."""

    name: Name
    phase: Phase
    peak_bytes: Size
    peak_step: Step
    capacity_bytes: Size | None
    last_in_use_bytes: Size | None
    pool_bytes: Size | None
    ooms: Size
    snapshots: Size
    traced: tuple[TracedPeak, ...]
    rows: Annotated[int | None, NotStored] = None
    step: Annotated[Integers, NotStored] = dataclasses.field(default_factory=lambda: NO_STEPS)
    step_peak_bytes: Annotated[Integers, NotStored] = dataclasses.field(
        default_factory=lambda: NO_STEPS
    )
    step_in_use_bytes: Annotated[Integers, NotStored] = dataclasses.field(
        default_factory=lambda: NO_STEPS
    )

    @property
    def headroom_bytes(self) -> int | None:
        """Capacity − peak; None if the capacity is unknown, or after a failed allocation, which
        leaves no headroom."""
        return (
            None
            if self.capacity_bytes is None or self.ooms
            else self.capacity_bytes - self.peak_bytes
        )


@dataclasses.dataclass(frozen=True)
class WorkerSummary:
    """One worker of a run.

    Attributes:
        worker: Its name, ``""`` in a run of one process and in a stored summary.
        started: Start of its last session in seconds since the epoch, None if unknown.
        ended: As in `Run`.
        status: What is wrong with it; host memory is not examined.
        first_step, last_step, last_wall_time: Of the samples of any phase, None without any.
        devices: Its devices with figures in a phase, accelerators first.
        rows: Number of samples in any phase; None in a stored summary.
        step, wall_time: Step and time of the samples of training steps, ascending, each step once;
            empty in a summary without steps."""

    worker: Annotated[str, NotStored]
    sessions: Annotated[int, NotStored]
    started: float | None
    ended: bool | None
    status: RunStatus
    first_step: Step | None
    last_step: Step | None
    last_wall_time: float | None
    devices: Annotated[tuple[DeviceSummary, ...], Most(1024 * len(PHASES))]
    rows: Annotated[int | None, NotStored] = None
    step: Annotated[Integers, NotStored] = dataclasses.field(default_factory=lambda: NO_STEPS)
    wall_time: Annotated[Floats, NotStored] = dataclasses.field(default_factory=lambda: _NO_TIMES)
