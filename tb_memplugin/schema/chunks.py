"""What a device's memory holds: its chunks at one instant, and all requests and lifetimes inside
one traced step."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Annotated, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from tb_memplugin.schema.fields import (
    MAX_BYTES,
    MAX_TOTAL_BYTES,
    Addresses,
    Bounds,
    Floats,
    IndexOf,
    Integers,
    MaybeSizes,
    Mode,
    Most,
    Name,
    Phase,
    Size,
    Sizes,
    Step,
    Table,
    is_cpu,
)
from tb_memplugin.schema.layers import TensorShape
from tb_memplugin.schema.snapshot import Category


@dataclasses.dataclass(frozen=True)
class ChunkOwner:
    layer: str | None
    category: Category
    trainable: bool | None


FREE, IN_USE, UNKNOWN_STATE = 0, 1, 2
"""States of a chunk in a `MemoryMap`; the last marks a stretch of addresses with unknown
contents."""


OwnerSource: TypeAlias = Literal["none", "variable", "held_tensor", "trace", "earlier_step", "size"]
OWNER_SOURCES: tuple[OwnerSource, ...] = get_args(OwnerSource)
"""How the owner of a chunk is known, most certain first: not at all; by the address of a variable;
by the address of a tensor that Python holds; by its traced allocation; by a chunk of an earlier
traced step with the same address and size at the same point; by the size alone, as all such chunks
of earlier traced steps had that owner."""


_MAPPED = Table("chunks", 500_000)
_REGIONS = Table("regions", 10_000)


@dataclasses.dataclass(frozen=True)
class MemoryMap:
    """A device's address space at one instant: chunks in address order, region after region.

    Attributes:
        step, phase, device, wall_time: Time and device of the map; step and phase are None for an
            imported file.
        address, bytes: Of the chunks, shape [chunks], as are the following columns.
        requested_bytes: Requested bytes of a chunk in use, `MISSING` if unknown.
        state: `FREE`, `IN_USE` or `UNKNOWN_STATE`.
        owner: -1 for free chunks and unknown owners.
        source: Index into `OWNER_SOURCES`.
        since: Step of the first snapshot with the chunk, `MISSING` if unknown.
        region_address, region_bytes: Known extents of the regions, shape [regions].
        complete: Whether the map contains every chunk of the pool."""

    step: Step | None
    phase: Phase | None
    device: Name
    wall_time: float
    address: Annotated[Addresses, _MAPPED]
    bytes: Annotated[Sizes, _MAPPED]
    requested_bytes: Annotated[MaybeSizes, _MAPPED]
    state: Annotated[Integers, Bounds(FREE, UNKNOWN_STATE), _MAPPED]
    owner: Annotated[Integers, IndexOf("owners"), _MAPPED]
    source: Annotated[Integers, Bounds(0, len(OWNER_SOURCES) - 1), _MAPPED]
    since: Annotated[MaybeSizes, _MAPPED]
    region: Annotated[Integers, IndexOf("region_address", unknown=False), _MAPPED]
    owners: tuple[ChunkOwner, ...]
    region_address: Annotated[Addresses, _REGIONS]
    region_bytes: Annotated[Sizes, _REGIONS]
    in_use_bytes: Size | None
    pool_bytes: Size | None
    capacity_bytes: Size | None
    complete: bool
    not_available: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.address)


GRADIENT_OPS = "gradient_tape/"
"""Part of the names of a backward pass's ops."""
UNKNOWN_POWER = -1
"""Marks sizes in `StepRequests.batch_power` whose dependence on the batch size is unknown."""
SCRATCH_POWER = -2
"""Marks there the scratch space of a GPU's kernel, such as cuDNN's for a convolution: roughly
proportional to the batch, but with another algorithm it takes another size."""

SQUARE_POWER = -3
"""Marks there sizes that grow with the batch or with its square: it is unknown whether one of their
dimensions, as large as the batch or a multiple of it, holds the batch as well."""
ANY_POWER = -4
"""Marks there sizes with two such dimensions, of which either may hold the batch, both or none."""


_CHUNKS, _OPS, _LAYERS = Table("chunks"), Table("ops"), Table("unrepeatable")
_ADDED = Table("added_regions", 10_000)


@dataclasses.dataclass(frozen=True)
class ModuleMoment:
    """What is live in the chunk of a compiled module at a moment of its schedule.

    Attributes:
        chunk: Index into the step's chunks.
        fixed_bytes: Bytes of buffers that are the same for every batch size.
        batch_bytes: Bytes of buffers in proportion to the batch."""

    chunk: Size
    fixed_bytes: Size
    batch_bytes: Size


# columns do not compare; a step is a key by its identity
@dataclasses.dataclass(frozen=True, eq=False)
class StepRequests:
    """The chunks of one traced step on one device, with all that its replay needs.

    Attributes:
        step, phase, device, wall_time, mode, batch_size: As in the snapshot.
        replicas: Replicas that trained together; null for one.
        first: Whether the step is the first after a change of the program: it makes long-lived
            chunks, such as the optimizer's slots.
        events: Number of the step's allocations and deallocations.
        address, allocated, requested: Place and sizes of each chunk, shape [chunks], as are the
            following columns.
        birth, death: Numbers of the events; -1 for older chunks, `events` for chunks that outlive
            the step.
        batch_power: 0 for a size that does not depend on the batch, 1 for one that is proportional
            to it, 2 for its square, `SCRATCH_POWER` for scratch space, `SQUARE_POWER` for 1 or 2,
            `UNKNOWN_POWER` for 0 or 1, `ANY_POWER` for 0 to 2.
        op: Index into `ops`, the requesting op; -1 for older chunks and unknown ops.
        region_address, region_bytes: The pool's regions when the step began, shape [regions].
        added_address, added_bytes: Regions that the pool grew by during the step, shape [added
            regions].
        unrepeatable: Paths of layers that a second pass may not repeat, as
            `GraphFacts.unrepeatable`.
        module_moments: Of each compiled module's chunk those moments of its schedule at which most
            bytes are live at one batch size or another."""

    step: Step
    phase: Phase
    device: Name
    wall_time: float
    mode: Mode
    first: bool
    batch_size: Size | None
    capacity_bytes: Size | None
    events: Size
    address: Annotated[Addresses, _CHUNKS]
    allocated: Annotated[Sizes, _CHUNKS]
    requested: Annotated[Sizes, _CHUNKS]
    birth: Annotated[Integers, Bounds(-1, MAX_BYTES), _CHUNKS]
    death: Annotated[Sizes, _CHUNKS]
    batch_power: Annotated[Integers, Bounds(ANY_POWER, 2), _CHUNKS]
    owner: Annotated[Integers, IndexOf("owners", unknown=False), _CHUNKS]
    op: Annotated[Integers, IndexOf("ops"), _CHUNKS]
    owners: tuple[ChunkOwner, ...]
    ops: Annotated[tuple[str, ...], _OPS]
    region_address: Annotated[Addresses, _REGIONS]
    region_bytes: Annotated[Sizes, _REGIONS]
    added_address: Annotated[Addresses, _ADDED]
    added_bytes: Annotated[Sizes, _ADDED]
    unrepeatable: Annotated[tuple[str, ...], _LAYERS] = ()
    module_moments: tuple[ModuleMoment, ...] = ()
    replicas: Size | None = None

    @property
    def examples(self) -> int | None:
        """The examples of the batch on the device. Logical CPUs have one allocator for all."""
        if self.batch_size is None or is_cpu(self.device):
            return self.batch_size
        return self.batch_size // (self.replicas or 1)

    def __len__(self) -> int:
        return len(self.address)

    @property
    def planned(self) -> bool:
        """Whether the compiled module's requests, at address 0, are what its compiler planned:
        of a step that a failed allocation ended, beside the chunks at the failure, and of Keras's
        steps on JAX, without regions."""
        return bool(self.events) and not self.address[self.birth >= 0].any()

    def faults(self) -> Iterator[str]:
        """What no step can be, as sentences: each event allocates or frees one chunk, and none
        overlap at its start."""
        birth, death, events = self.birth, self.death, self.events
        if float(self.allocated.astype(np.float64).sum()) > MAX_TOTAL_BYTES:
            yield f"chunks of a step sum to over {MAX_TOTAL_BYTES:.0f} bytes"
        if (self.requested > self.allocated).any():
            yield "a chunk of a step has more requested than allocated bytes"
        if (death <= birth).any() or (death > events).any():
            yield (
                "a chunk of a step is freed before it is allocated, or after the step's last event"
            )
        of_events = np.concatenate([birth[birth >= 0], death[death < events]])
        if len(of_events) != events or len(np.unique(of_events)) != events:
            yield (
                f"{len(of_events)} allocations and deallocations do not match a step of {events} "
                "events"
            )
        if any(moment.chunk >= len(self) for moment in self.module_moments):
            yield "a moment of a compiled module is one of a chunk that the step does not have"
        old = np.flatnonzero(birth < 0)
        old = old[np.argsort(self.address[old], kind="stable")]
        ends = self.address[old] + self.allocated[old]
        if (self.address[old][1:] < ends[:-1]).any():
            yield "chunks at the start of a step overlap"


def owned(requests: StepRequests, wanted: Callable[[ChunkOwner], bool]) -> npt.NDArray[np.bool_]:
    return np.asarray([wanted(owner) for owner in requests.owners], bool)[requests.owner]


BandName: TypeAlias = Literal["forward", "backward", "backward_and_update", "update"]
"""Parts of a step, in order. TensorFlow updates a weight as soon as its gradient is computed, so
updates begin within the backward pass."""


@dataclasses.dataclass(frozen=True)
class Band:
    """A part of a step, from moment `start` of its `Timeline` up to before `end`."""

    name: BandName
    start: Size
    end: Size


@dataclasses.dataclass(frozen=True)
class CompiledSpan:
    """Moments of a `Timeline` from `start` up to before `end`, in which a compiled module runs.

    The contents of its chunks are the compiler's plan, with known order but without times."""

    start: Size
    end: Size


MAX_MOMENTS = 100_000
"""Most moments, and most allocations, of a timeline."""
_MOMENTS, _ALLOCATIONS = Table("moments", MAX_MOMENTS), Table("allocations", MAX_MOMENTS)
_NAMES, _LINES = Table("ops", MAX_MOMENTS), Table("lines", MAX_MOMENTS)


@dataclasses.dataclass(frozen=True)
class Timeline:
    """The allocations inside one traced step on one device, with their lifetimes.

    A moment is a state between two changes, numbered from 0, the step's start. At every moment the
    live allocations sum to the allocator's bytes in use. At `peak` they sum by layer and category
    to the ledger of the step's snapshot.

    Attributes:
        step, phase, device, wall_time, mode: As in the snapshot.
        in_use_bytes: At the peak.
        peak: Moment with the most bytes in use.
        events: Number of allocator events in the step.
        duration_ns: Time between the first and the last entry of the trace.
        time_ns: Start of each moment since the first, shape [moments]; spread evenly inside a
            `CompiledSpan`.
        event: Number of allocator events before each moment, shape [moments].
        start, end: First moment of each row, and first moment after it, shape [rows], as are the
            following columns; 0 for older allocations, the number of moments for those that outlive
            the step. A row has one owner.
        bytes: Allocated bytes, rounding included, of one chunk or several.
        rounding_bytes: The part of `bytes` that was not requested, `MISSING` if unknown.
        count: Number of allocations in the row: several for merged small ones, 0 for bytes without
            known chunks.
        op, address, shape, line: The requesting op; the address as in memory maps; the tensor's
            shape, whose product times the size of the dtype equals the requested bytes; the user's
            line that called the layer or op. -1 if unknown, as the address in rows of several
            allocations.
        lines: File and line, e.g. ``train.py:42``. Files are relative to the working directory of
            the training, or a name without directory if they are outside it.
        bands: Parts of the step, in order; empty if unknown."""

    step: Step
    phase: Phase
    device: Name
    wall_time: float
    mode: Mode
    in_use_bytes: Size
    peak: Size
    events: Size
    duration_ns: Size
    time_ns: Annotated[Sizes, _MOMENTS]
    event: Annotated[Sizes, _MOMENTS]
    start: Annotated[Sizes, _ALLOCATIONS]
    end: Annotated[Sizes, _ALLOCATIONS]
    bytes: Annotated[Sizes, _ALLOCATIONS]
    rounding_bytes: Annotated[MaybeSizes, _ALLOCATIONS]
    count: Annotated[Sizes, _ALLOCATIONS]
    owner: Annotated[Integers, IndexOf("owners", unknown=False), _ALLOCATIONS]
    op: Annotated[Integers, IndexOf("ops"), _ALLOCATIONS]
    address: Annotated[Integers, Bounds(-1, MAX_BYTES), _ALLOCATIONS]
    shape: Annotated[Integers, IndexOf("shapes"), _ALLOCATIONS]
    line: Annotated[Integers, IndexOf("lines"), _ALLOCATIONS]
    owners: tuple[ChunkOwner, ...]
    ops: Annotated[tuple[str, ...], _NAMES]
    shapes: Annotated[tuple[TensorShape, ...], Most(MAX_MOMENTS)]
    lines: Annotated[tuple[str, ...], _LINES]
    bands: Annotated[tuple[Band, ...], Most(10_000)]
    compiled: Annotated[tuple[CompiledSpan, ...], Most(10_000)]
    not_available: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.start)

    def faults(self) -> Iterator[str]:
        """What no timeline can be, as sentences: its rows sum to `in_use_bytes` at the peak, and
        never to more."""
        moments = len(self.time_ns)
        if self.peak >= moments:
            yield f"the peak of a timeline is moment {self.peak}, but it has {moments} moments"
        if any((np.diff(column) < 0).any() for column in (self.time_ns, self.event)):
            yield "the moments of a timeline decrease"
        spans = [(one.start, one.end) for one in self.bands] + [
            (one.start, one.end) for one in self.compiled
        ]
        if (self.end <= self.start).any() or (self.end > moments).any():
            yield "an allocation of a timeline ends before it starts, or after the last moment"
        if any(not start < end <= moments for start, end in spans):
            yield "a span of a timeline ends before it starts, or after the last moment"
        if float(self.bytes.astype(np.float64).sum()) > MAX_TOTAL_BYTES:
            yield f"allocations of a timeline sum to over {MAX_TOTAL_BYTES:.0f} bytes"
        levels = live_sums(self.start, self.end, self.bytes, moments)
        if int(levels[self.peak]) != self.in_use_bytes or int(levels.max()) > self.in_use_bytes:
            yield (
                f"the allocations of a timeline sum to {int(levels[self.peak])} bytes at its peak "
                f"and to {int(levels.max())} at most, not to its {self.in_use_bytes} bytes in use"
            )

    def seconds_at(self, events: Integers) -> Floats:
        """Seconds from the step's start to the moments after so many allocator events, in between
        linearly."""
        ends = (*self.event.tolist(), max(self.events, int(self.event[-1])))
        seconds: Floats = np.interp(events, ends, (*self.time_ns.tolist(), self.duration_ns)) * 1e-9
        return seconds


def live_sums(start: Integers, end: Integers, amount: Integers, moments: int) -> Integers:
    """At each moment, the sum of the amounts that are live from `start` up to before `end`."""
    changes = np.zeros(moments + 1, np.int64)
    np.add.at(changes, start, amount)
    np.subtract.at(changes, end, amount)
    return np.cumsum(changes)[:-1]
