"""The timeline: what is live inside one traced step."""

import dataclasses
from typing import Literal, TypeAlias, get_args

import numpy as np

from tb_memplugin.model.basics import Floats, Integers, Mode, Phase
from tb_memplugin.model.memory_map import ChunkOwner
from tb_memplugin.model.tensors import TensorShape

BandName: TypeAlias = Literal["forward", "backward", "backward_and_update", "update"]
BAND_NAMES: tuple[BandName, ...] = get_args(BandName)
"""Parts of a step, in order. TensorFlow updates a weight as soon as its gradient is computed, so updates begin within
the backward pass."""


@dataclasses.dataclass(frozen=True)
class Band:
    """A part of a step, from moment `start` of its `Timeline` up to before `end`."""

    name: BandName
    start: int
    end: int


@dataclasses.dataclass(frozen=True)
class CompiledSpan:
    """Moments of a `Timeline` from `start` up to before `end`, in which a compiled module runs.

    The contents of its chunks are the compiler's plan, with known order but without times.
    """

    start: int
    end: int


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
        owner: Index into `owners`.
        op: Index into `ops`, the requesting op; -1 if unknown.
        address: As in memory maps; -1 if unknown, as in rows of several allocations.
        shape: Index into `shapes`; -1 if unknown. The requested bytes equal the product of the shape times the size of
            the dtype.
        line: Index into `lines`: the user's line that called the layer or op; -1 if unknown.
        owners, ops: See `owner` and `op`.
        shapes: Shapes and dtypes of tensors.
        lines: File and line, e.g. ``train.py:42``. Files are relative to the working directory of the training, or a
            name without directory if they are outside it.
        bands: Parts of the step, in order; empty if unknown.
        compiled: Moments at which compiled modules run.
        not_available: Sentences on what is unknown.
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
    address: Integers
    shape: Integers
    line: Integers
    owners: tuple[ChunkOwner, ...]
    ops: tuple[str, ...]
    shapes: tuple[TensorShape, ...]
    lines: tuple[str, ...]
    bands: tuple[Band, ...]
    compiled: tuple[CompiledSpan, ...]
    not_available: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.start)

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
