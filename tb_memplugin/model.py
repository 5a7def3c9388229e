"""What a run says, as plain immutable data: no TensorFlow, no TensorBoard, no HTTP.

Sizes are bytes in fields named ``_bytes``. ``None`` means "not known", never zero. Steps count training steps from 0.
"""

import dataclasses
from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

Phase: TypeAlias = Literal["train", "validation", "predict", "build"]
PHASES: tuple[Phase, ...] = ("train", "validation", "predict", "build")

Mode: TypeAlias = Literal["graph", "eager", "xla"]
MODES: tuple[Mode, ...] = ("graph", "eager", "xla")

Category: TypeAlias = Literal[
    "weights",
    "optimizer_state",
    "other_state",
    "inputs",
    "activations",
    "activation_gradients",
    "weight_gradients",
    "workspace",
    "unattributed",
]
CATEGORIES: tuple[Category, ...] = get_args(Category)
"""Every allocated byte is in exactly one. The order is that of the stack: what stays lies at the bottom, what moves on
top."""


@dataclasses.dataclass(frozen=True)
class Layer:
    """One layer of a model, with its own figures: those of layers inside it are theirs.

    Attributes:
        path: Place in the model's tree, e.g. ``sequential/vgg16/block1_conv2``.
        type: Class name, e.g. ``Conv2D``.
        trainable: Whether it has trainable weights; of a layer without weights, its own flag.
        parameters: Number of elements of its weights.
        weight_bytes: Bytes of its weights (elements × size of the dtype), frozen and trainable.
        trainable_weight_bytes: The part of `weight_bytes` that training changes through gradients.
        optimizer_bytes: Bytes of the optimizer's slots for its weights.
        output_shape: Shape of its (first) output with -1 for unknown dimensions such as the batch; None if not built.
        output_dtype: Name of the dtype of its output.
        output_bytes: Bytes of its outputs for one batch, None where a dimension is unknown.
    """

    path: str
    type: str
    trainable: bool
    parameters: int
    weight_bytes: int
    trainable_weight_bytes: int
    optimizer_bytes: int
    output_shape: tuple[int, ...] | None
    output_dtype: str | None
    output_bytes: int | None


@dataclasses.dataclass(frozen=True)
class LayerTable:
    """The model's layers from `step` on, until the next table of the session.

    Attributes:
        step: First step for which it holds.
        wall_time: Seconds since the epoch at which it was taken.
        reason: A sentence: what made it be taken, e.g. "block5_conv1 and 2 more became trainable".
        layers: In the order of the model.
        optimizer: Class name of the optimizer, None if there is none yet.
        other_optimizer_bytes: Bytes of optimizer variables that belong to no layer (step counter, learning rate).
        other_state_bytes: Bytes of metrics, seeds and other variables of the model that are not weights.
    """

    step: int
    wall_time: float
    reason: str
    layers: tuple[Layer, ...]
    optimizer: str | None
    other_optimizer_bytes: int
    other_state_bytes: int


@dataclasses.dataclass(frozen=True)
class DeviceSamples:
    """Allocator figures of one device; arrays as long as the `Samples` they are in, `codec.MISSING` where not known.

    Attributes:
        in_use_bytes: Allocated at the end of the step (allocator's `bytes_in_use`).
        peak_bytes: Maximum of `in_use_bytes` during the step (allocator's peak, reset at the step's start).
        capacity_bytes: The allocator's limit.
        driver_process_bytes: What the driver says this process has on the card.
        driver_used_bytes: What the driver says all processes have on the card.
        driver_total_bytes: The card's memory.
    """

    in_use_bytes: Integers
    peak_bytes: Integers
    capacity_bytes: Integers
    driver_process_bytes: Integers
    driver_used_bytes: Integers
    driver_total_bytes: Integers


@dataclasses.dataclass(frozen=True)
class Samples:
    """The cheap record of every step, one row a step (or a validation or prediction batch), in the order of recording.

    Attributes:
        step: Training step; a validation batch carries the training step it came after.
        phase: Index into `PHASES`.
        epoch: Epoch from 0, `codec.MISSING` outside of one.
        wall_time: Seconds since the epoch at the step's end.
        host_resident_bytes: Resident memory of the process (operating system), `codec.MISSING` if not known.
        devices: Device name (``GPU:0``) to its figures.
    """

    step: Integers
    phase: Integers
    epoch: Integers
    wall_time: Floats
    host_resident_bytes: Integers
    devices: Mapping[str, DeviceSamples]

    def __len__(self) -> int:
        return len(self.step)


@dataclasses.dataclass(frozen=True)
class LayerActivations:
    """Recorded activation bytes of layers over steps.

    Attributes:
        step: Steps in order of recording, shape [rows].
        wall_time: Seconds since the epoch, shape [rows].
        layers: Layer paths, one a column.
        bytes: Shape [rows, layers]; `codec.MISSING` where a layer was not recorded at a step.
    """

    step: Integers
    wall_time: Floats
    layers: tuple[str, ...]
    bytes: Integers

    def __len__(self) -> int:
        return len(self.step)


@dataclasses.dataclass(frozen=True)
class LedgerRow:
    """Bytes of one owner at one instant. `bytes` are allocated bytes; `rounding_bytes` of them were not asked for.

    `trainable` is None where it means nothing, and for rests of chunks of which only that weights lie in them is known.
    """

    layer: str | None
    category: Category
    trainable: bool | None
    bytes: int
    rounding_bytes: int | None


@dataclasses.dataclass(frozen=True)
class HeldRow:
    """Requested bytes of a layer's forward results that live at the end of the forward pass and that the backward pass
    reads."""

    layer: str | None
    bytes: int


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """The deep record of one traced step on one device.

    Attributes:
        step, phase, device: What was traced.
        wall_time: Seconds since the epoch.
        mode: How the step ran; ``xla`` where most bytes are inside compiled modules.
        in_use_bytes: Allocated at the step's peak; the ledger sums to it exactly.
        pool_bytes: Taken from the device by the allocator at the peak.
        largest_free_bytes: The largest free block of the pool at the peak.
        capacity_bytes: The allocator's limit.
        fragmentation: The allocator's own figure at the peak: (free - largest free) / free over the pool.
        rounding_bytes: Part of `in_use_bytes` that was allocated but not requested.
        ledger: Rows at the peak, one for each (layer, category, trainable), largest first.
        held_for_backward: Rows at the end of the forward pass, largest first.
        not_available: Sentences "X is not available, because …".
    """

    step: int
    phase: Phase
    device: str
    wall_time: float
    mode: Mode
    in_use_bytes: int
    pool_bytes: int | None
    largest_free_bytes: int | None
    capacity_bytes: int | None
    fragmentation: float | None
    rounding_bytes: int | None
    ledger: tuple[LedgerRow, ...]
    held_for_backward: tuple[HeldRow, ...]
    not_available: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class ChunkOwner:
    """Whose a chunk is, and what for."""

    layer: str | None
    category: Category
    trainable: bool | None


FREE, IN_USE, UNKNOWN_STATE = 0, 1, 2
"""States of a chunk in an `AllocatorMap`; the last is a stretch of addresses about which nothing was learned."""

OwnerSource: TypeAlias = Literal["none", "variable", "held_tensor", "trace", "earlier_step", "size"]
OWNER_SOURCES: tuple[OwnerSource, ...] = get_args(OwnerSource)
"""How the owner of a chunk is known, the surest first: not at all; a variable's value lies there; a tensor that Python
holds lies there; its allocation was traced; in an earlier traced step a chunk of that size lay there at the same point;
in earlier traced steps all chunks of that size had that owner."""


@dataclasses.dataclass(frozen=True)
class AllocatorMap:
    """A device's address space at one instant: chunks in the order of their addresses, region after region.

    Attributes:
        step, phase, device, wall_time: When and where it was taken; the step is None for an imported file.
        address, bytes: Of the chunks.
        requested_bytes: Asked for of a chunk in use, `codec.MISSING` where not known.
        state: `FREE`, `IN_USE` or `UNKNOWN_STATE`.
        owner: Index into `owners`, -1 where it was not seen and for free chunks.
        source: Index into `OWNER_SOURCES`.
        since: Step of the first snapshot that saw the chunk, `codec.MISSING` where not known.
        region: Index of the chunk's region.
        owners: What `owner` points to.
        region_address, region_bytes: The regions; of a region that is not known whole, the stretch that is.
        in_use_bytes, pool_bytes, capacity_bytes: The allocator's figures.
        complete: Whether every chunk of the pool is there.
        not_available: Sentences "X is not available, because …".
    """

    step: int | None
    phase: Phase | None
    device: str
    wall_time: float
    address: Integers
    bytes: Integers
    requested_bytes: Integers
    state: Integers
    owner: Integers
    source: Integers
    since: Integers
    region: Integers
    owners: tuple[ChunkOwner, ...]
    region_address: Integers
    region_bytes: Integers
    in_use_bytes: int | None
    pool_bytes: int | None
    capacity_bytes: int | None
    complete: bool
    not_available: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.address)


BandName: TypeAlias = Literal["forward", "backward", "backward_and_update", "update"]
BAND_NAMES: tuple[BandName, ...] = get_args(BandName)
"""Parts of a step in their order. TensorFlow updates a weight as soon as its gradient is there: from the first update
to the end of the backward pass, both run."""


@dataclasses.dataclass(frozen=True)
class Band:
    """A part of a step: from a moment of its `Timeline` up to before another."""

    name: BandName
    start: int
    end: int


@dataclasses.dataclass(frozen=True)
class PlannedSpan:
    """Moments of a `Timeline`, from one up to before another, at which a compiled module runs: what is in its blocks
    then is the compiler's plan, its order known, its times not."""

    start: int
    end: int


@dataclasses.dataclass(frozen=True)
class Timeline:
    """What was live when inside one traced step on one device.

    A moment is a state between two changes, numbered from 0, the step's start. At every moment the allocations that are
    live sum to the allocator's bytes in use; at `peak`, by layer and category, to the ledger of the step's snapshot.

    Attributes:
        step, phase, device, wall_time, mode: As in the snapshot.
        in_use_bytes: At the peak.
        peak: Moment at which most bytes are in use.
        events: Allocator events of the step.
        duration_ns: From the first to the last thing that the trace saw.
        time_ns: When each moment began, since the first; shape [moments]. Inside a `PlannedSpan` spread evenly.
        event: Allocator events up to each moment; shape [moments].
        start, end: Of the allocations: moments from which on they are live, and are no more; 0 for what was there
            before, the number of moments for what was there afterwards. Columns of equal length, one row for the bytes
            that have one owner for one span.
        bytes: Allocated bytes.
        rounding_bytes: How many of them were not asked for, `codec.MISSING` where not known.
        count: Allocations in the row: 1, or of smaller ones that were merged, how many; 0 for what is not told apart.
        owner: Index into `owners`.
        op: Index into `ops`: what asked for it, -1 where it is not known.
        bands: Parts of the step, in order; none where they are not known.
        planned: Where a compiler's plan says what is live.
        not_available: Sentences "X is not available, because …".
    """

    step: int
    phase: Phase
    device: str
    wall_time: float
    mode: Mode
    in_use_bytes: int
    peak: int
    events: int
    duration_ns: int
    time_ns: Integers
    event: Integers
    start: Integers
    end: Integers
    bytes: Integers
    rounding_bytes: Integers
    count: Integers
    owner: Integers
    op: Integers
    owners: tuple[ChunkOwner, ...]
    ops: tuple[str, ...]
    bands: tuple[Band, ...]
    planned: tuple[PlannedSpan, ...]
    not_available: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.start)


Verdict: TypeAlias = Literal["fragmentation", "capacity"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

OomStatus: TypeAlias = Literal["died", "failing", "tolerated"]
OOM_STATUSES: tuple[OomStatus, ...] = get_args(OomStatus)


@dataclasses.dataclass(frozen=True)
class Remedy:
    """Something that would have let a failed request pass.

    Attributes:
        kind: ``one_piece``, ``batch``, ``freezing``, ``limit``.
        sentence, bytes: What, with its figures; what it frees or adds.
        enough: Whether it alone is enough.
    """

    kind: Literal["one_piece", "batch", "freezing", "limit"]
    sentence: str
    bytes: int
    enough: bool


@dataclasses.dataclass(frozen=True)
class Oom:
    """The post-mortem of a step that died because an allocation failed.

    Attributes:
        identifier: Of the failure within its session; a later record of the same one replaces it.
        status: ``failing`` is written while TensorFlow still waits for memory and stays if the process is then killed;
            ``tolerated`` takes it back: the step went on.
        step, phase, device, wall_time: What died, where and when; no step and phase for an imported file.
        requested_bytes: What was asked for; `op` asked for it, which `layer` made; `shape` of the tensor.
        free_bytes, largest_free_bytes: Free in the pool, and the largest block of it.
        in_use_bytes, pool_bytes, capacity_bytes: The allocator's figures.
        verdict: None where a figure for it is missing.
        reason: The figures behind the verdict, in a sentence.
        ledger: Who held what is in use; sums to `in_use_bytes`; empty if that is not known.
        remedies: What would have let the request pass.
        map: The chunks at the failure.
        not_available: Sentences "X is not available, because …".
    """

    identifier: str
    status: OomStatus
    step: int | None
    phase: Phase | None
    device: str
    wall_time: float
    requested_bytes: int | None
    free_bytes: int | None
    largest_free_bytes: int | None
    in_use_bytes: int | None
    pool_bytes: int | None
    capacity_bytes: int | None
    verdict: Verdict | None
    reason: str
    op: str | None
    layer: str | None
    shape: str | None
    ledger: tuple[LedgerRow, ...]
    remedies: tuple[Remedy, ...]
    map: AllocatorMap | None
    not_available: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class SessionInfo:
    """Facts about one process's recording into a run.

    Attributes:
        session: Identifier; sorts by start time.
        started: Seconds since the epoch.
        producer: ``recorder``, ``summary`` or ``import``.
        versions: Package name to version, of those that matter (tb_memplugin, tensorflow, keras).
        notes: Sentences: what was not recorded and why.
    """

    session: str
    started: float
    producer: Literal["recorder", "summary", "import"]
    versions: Mapping[str, str]
    notes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Session:
    """Everything that was read of one session."""

    info: SessionInfo
    layer_tables: tuple[LayerTable, ...]
    samples: Samples
    activations: LayerActivations
    snapshots: tuple[Snapshot, ...]
    maps: tuple[AllocatorMap, ...] = ()
    ooms: tuple[Oom, ...] = ()
    timelines: tuple[Timeline, ...] = ()


@dataclasses.dataclass(frozen=True)
class Run:
    """One run: its sessions in order of their start, merged by `store.merge`.

    Attributes:
        name: As TensorBoard shows it.
        sessions: Identifiers, in order.
        workers: Worker names; ``("",)`` for a run of one process.
        layer_tables, samples, activations, snapshots: Of all sessions; a later session replaces the steps it repeats.
        notes: Sentences about what was not recorded.
        damage: Sentences about what could not be read, naming the steps that are missing.
        maps: Allocator maps, where they were asked for.
        ooms: Post-mortems, in order of time; those that were taken back are left out.
        findings: Sentences on memory that grows over the steps, where they were asked for.
        session_starts: Seconds since the epoch at which the sessions began: with each, a pool begins anew.
        timelines: What was live inside traced steps, where they were asked for.
    """

    name: str
    sessions: tuple[str, ...]
    workers: tuple[str, ...]
    layer_tables: tuple[LayerTable, ...]
    samples: Samples
    activations: LayerActivations
    snapshots: tuple[Snapshot, ...]
    notes: tuple[str, ...]
    damage: tuple[str, ...]
    maps: tuple[AllocatorMap, ...] = ()
    ooms: tuple[Oom, ...] = ()
    findings: tuple[str, ...] = ()
    session_starts: tuple[float, ...] = ()
    timelines: tuple[Timeline, ...] = ()
