"""The timeline: what is live inside one traced step."""

import dataclasses
from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias

import numpy as np

from tb_memplugin.schema.basics import Floats, Integers, Mode, Phase
from tb_memplugin.schema.fields import (
    MAX_BYTES,
    MAX_TOTAL_BYTES,
    Bounds,
    IndexOf,
    MaybeSizes,
    Most,
    Name,
    Size,
    Sizes,
    Step,
    Table,
)
from tb_memplugin.schema.layers import TensorShape
from tb_memplugin.schema.memory_map import ChunkOwner

BandName: TypeAlias = Literal["forward", "backward", "backward_and_update", "update"]
"""Parts of a step, in order. TensorFlow updates a weight as soon as its gradient is computed, so updates begin within
the backward pass."""


@dataclasses.dataclass(frozen=True)
class Band:
    """A part of a step, from moment `start` of its `Timeline` up to before `end`."""

    name: BandName
    start: Size
    end: Size


@dataclasses.dataclass(frozen=True)
class CompiledSpan:
    """Moments of a `Timeline` from `start` up to before `end`, in which a compiled module runs.

    The contents of its chunks are the compiler's plan, with known order but without times.
    """

    start: Size
    end: Size


MAX_MOMENTS = 100_000
"""Most moments, and most allocations, of a timeline."""
_MOMENTS, _ALLOCATIONS = Table("moments", MAX_MOMENTS), Table("allocations", MAX_MOMENTS)
_OPS, _LINES = Table("ops", MAX_MOMENTS), Table("lines", MAX_MOMENTS)


@dataclasses.dataclass(frozen=True)
class Timeline:
    """The allocations inside one traced step on one device, with their lifetimes.

    A moment is a state between two changes, numbered from 0, the step's start. At every moment the live allocations sum
    to the allocator's bytes in use. At `peak` they sum by layer and category to the ledger of the step's snapshot.

    Attributes:
        step, phase, device, wall_time, mode: As in the snapshot.
        in_use_bytes: At the peak.
        peak: Moment with the most bytes in use.
        events: Number of allocator events in the step.
        duration_ns: Time between the first and the last entry of the trace.
        time_ns: Start of each moment since the first, shape [moments]; spread evenly inside a `CompiledSpan`.
        event: Number of allocator events before each moment, shape [moments].
        start, end: First moment of each row, and first moment after it, shape [rows], as are the following columns; 0
            for older allocations, the number of moments for those that outlive the step. A row has one owner.
        bytes: Allocated bytes, rounding included, of one chunk or several.
        rounding_bytes: The part of `bytes` that was not requested, `MISSING` if unknown.
        count: Number of allocations in the row: several for merged small ones, 0 for bytes without known chunks.
        op, address, shape, line: The requesting op; the address as in memory maps; the tensor's shape, whose product
            times the size of the dtype equals the requested bytes; the user's line that called the layer or op. -1 if
            unknown, as the address in rows of several allocations.
        lines: File and line, e.g. ``train.py:42``. Files are relative to the working directory of the training, or a
            name without directory if they are outside it.
        bands: Parts of the step, in order; empty if unknown.
    """

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
    ops: Annotated[tuple[str, ...], _OPS]
    shapes: Annotated[tuple[TensorShape, ...], Most(MAX_MOMENTS)]
    lines: Annotated[tuple[str, ...], _LINES]
    bands: Annotated[tuple[Band, ...], Most(10_000)]
    compiled: Annotated[tuple[CompiledSpan, ...], Most(10_000)]
    not_available: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.start)

    def faults(self) -> Iterator[str]:
        """What no timeline can be, as sentences: its rows sum to `in_use_bytes` at the peak, and never to more."""
        moments = len(self.time_ns)
        if self.peak >= moments:
            yield f"the peak of a timeline is moment {self.peak}, but it has {moments} moments"
        if any((np.diff(column) < 0).any() for column in (self.time_ns, self.event)):
            yield "the moments of a timeline decrease"
        spans = [(one.start, one.end) for one in self.bands] + [(one.start, one.end) for one in self.compiled]
        if (self.end <= self.start).any() or (self.end > moments).any():
            yield "an allocation of a timeline ends before it starts, or after the last moment"
        if any(not start < end <= moments for start, end in spans):
            yield "a span of a timeline ends before it starts, or after the last moment"
        if float(self.bytes.astype(np.float64).sum()) > MAX_TOTAL_BYTES:
            yield f"allocations of a timeline sum to over {MAX_TOTAL_BYTES:.0f} bytes"
        levels = live_sums(self.start, self.end, self.bytes, moments)
        if int(levels[self.peak]) != self.in_use_bytes or int(levels.max()) > self.in_use_bytes:
            yield (
                f"the allocations of a timeline sum to {int(levels[self.peak])} bytes at its peak and to "
                f"{int(levels.max())} at most, not to its {self.in_use_bytes} bytes in use"
            )

    def seconds_at(self, events: Integers) -> Floats:
        """Seconds from the step's start to the moments after so many allocator events, in between linearly."""
        ends = (*self.event.tolist(), max(self.events, int(self.event[-1])))
        seconds: Floats = np.interp(events, ends, (*self.time_ns.tolist(), self.duration_ns)) * 1e-9
        return seconds


def live_sums(start: Integers, end: Integers, amount: Integers, moments: int) -> Integers:
    """At each moment, the sum of the amounts that are live from `start` up to before `end`."""
    changes = np.zeros(moments + 1, np.int64)
    np.add.at(changes, start, amount)
    np.subtract.at(changes, end, amount)
    return np.cumsum(changes)[:-1]
