"""Executions of compiled modules in a timeline: positions of their schedules among the events, and
their rows.

The contents of a module's allocations follow from the compiler's schedule."""

import bisect
import dataclasses
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tb_memplugin.attribution.execution import Marks
from tb_memplugin.attribution.modules import CompiledModule, without_overlaps
from tb_memplugin.attribution.owners import Classifier
from tb_memplugin.attribution.window import Window, layerless
from tb_memplugin.schema import (
    Buffer,
    BufferAllocation,
    ChunkOwner,
    Integers,
    TensorShape,
    extreme_rows,
)

MAX_POSITIONS = 256
"""About the most positions that are kept of one module; the peak and the ends of the passes are
among them."""


class Row(NamedTuple):
    """Allocated bytes of one owner from moment `start` up to before `end`; `address` as the
    allocator gives it."""

    start: int
    end: int
    owner: ChunkOwner
    bytes: int
    rounding_bytes: int
    op: str | None = None
    address: int | None = None
    shape: TensorShape | None = None
    line: str | None = None


class SchedulePositions(NamedTuple):
    """The kept positions of a module's schedule, ascending; the index of its peak; and those of the
    first positions after the forward pass, after the backward pass, and of the weight updates, if
    any, in a training step."""

    positions: tuple[int, ...]
    peak: int
    passes: tuple[int, int, int | None] | None


def schedule_positions(module: CompiledModule) -> SchedulePositions:
    """The kept positions of a module: those with the highest and lowest bytes among their
    neighbors."""
    positions, live = module.levels
    if not positions:
        return SchedulePositions((0,), 0, None)
    passes = module.schedule.passes
    marks = [_place(positions, one) for one in (module.peak, *(passes or ())) if one is not None]
    rows = extreme_rows([np.asarray(live, np.int64)], MAX_POSITIONS, always=marks)
    kept = [positions[row] for row in rows.tolist()]
    if passes is not None:
        forward, backward, update = passes
        begin = None if update is None else _place(kept, update)
        passes = _place(kept, forward) + 1, _place(kept, backward) + 1, begin
    return SchedulePositions(tuple(kept), _place(kept, module.peak), passes)


def _place(positions: Sequence[int], wanted: int) -> int:
    """The last position up to `wanted`; the first if none is."""
    return max(0, bisect.bisect_right(positions, wanted) - 1)


@dataclasses.dataclass
class ModuleRun:
    """One execution of a compiled module.

    Attributes:
        begin, end: Events between which all its allocations are live.
        allocations: Chunk to planned allocation.
        moments: The timeline's moments of `positions`; other moments may lie between them."""

    module: CompiledModule
    positions: SchedulePositions
    begin: int
    end: int
    allocations: dict[int, BufferAllocation]
    moments: Integers = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))


def module_runs(classifier: Classifier) -> list[ModuleRun]:
    runs: list[ModuleRun] = []
    window = classifier.window
    positions: dict[int, SchedulePositions] = {}
    for chunk, (module, allocation) in classifier.plans.items():  # in the order of their births
        birth, death = window.birth[chunk], window.death[chunk]
        last = next((run for run in reversed(runs) if run.module is module), None)
        if last is not None and birth < last.end and allocation not in last.allocations.values():
            last.allocations[chunk] = allocation
            last.begin, last.end = birth, min(last.end, death)
            continue
        if id(module) not in positions:
            positions[id(module)] = schedule_positions(module)
        runs.append(ModuleRun(module, positions[id(module)], birth, death, {chunk: allocation}))
    return runs


def module_rows(window: Window, chunk: int, run: ModuleRun, start: int, end: int) -> Iterator[Row]:
    """The contents of a module's chunk, which is live from moment `start` up to before `end`:
    before the module runs those of its first position, after it those of its last. They sum to the
    allocation's size, unused bytes being workspace."""
    module, allocation, positions = run.module, run.allocations[chunk], run.positions.positions
    edges = [start, *run.moments[1:].tolist(), end]
    name, begin = module.module.function or module.module.name, window.address[chunk]
    workspace, unused_op = layerless("workspace"), f"{name}: unused by its buffers"
    since: dict[int, tuple[int, Buffer]] = {}  # by identity of the live buffers
    unused_since, unused = 0, 0
    for at in range(len(edges)):
        placed = without_overlaps(allocation.buffers, positions[at]) if at < len(positions) else []
        live = {id(buffer): buffer for buffer in placed}
        for number in [number for number in since if number not in live]:
            first, buffer = since.pop(number)
            owner = window.layer_owner(*module.role(buffer))
            op, place = buffer.ops[0] if buffer.ops else unused_op, begin + buffer.offset
            known = (op, place, buffer.shape, module.line(buffer))
            yield Row(edges[first], edges[at], owner, buffer.bytes, 0, *known)
        for number, buffer in live.items():
            since.setdefault(number, (at, buffer))
        empty = allocation.bytes - sum(buffer.bytes for buffer in placed)
        if empty != unused or at == len(positions):
            yield Row(edges[unused_since], edges[at], workspace, unused, 0, unused_op)
            unused_since, unused = at, empty
    requested = window.requested[chunk]
    rounding = window.allocated[chunk] - requested
    yield Row(start, end, workspace, rounding, rounding, f"{name}: rounding", begin + requested)


def run_marks(run: ModuleRun) -> Marks | None:
    """The passes of an execution; None if the module is not a training step."""
    if run.positions.passes is None:
        return None
    forward_end, backward_end, update_begin = run.positions.passes
    edges = [*run.moments.tolist(), int(run.moments[-1]) + 1]
    update = (None, None) if update_begin is None else (edges[update_begin], edges[-1])
    return Marks(edges[0], edges[forward_end], edges[backward_end], *update)


def place_positions(
    run: ModuleRun, times: Integers, peak: int
) -> tuple[Integers, Integers, Integers]:
    """For each of a module's positions: the number of events before it, its time, and whether it
    comes before (-1), at (0) or after (1) the step's peak.

    They are spread evenly over the execution; the module's peak is placed at the step's if that
    lies in it. `times` is when the state after each number of events begins, in nanoseconds since
    the step's start; last, when the step ends. `peak` is the number of events before the step's
    peak."""
    count, at = len(run.positions.positions), run.positions.peak
    measured = times[:-1]
    first, last = run.begin + 1, min(run.end, len(measured) - 1)
    begin, end = int(times[first]), int(times[last + 1])
    side, least, most = np.zeros(count, np.int64), np.asarray(first), np.asarray(last)
    placed = np.linspace(begin, end, count + 1)[:-1]
    if first <= peak <= last:
        # The bytes in use stay at the peak until the next event: within that time, the module's
        # peak keeps its own time.
        peak_begin, peak_end = int(times[peak]), int(times[peak + 1]) - 1
        middle = begin + (end - begin) * at // count
        middle = min(max(middle, peak_begin), max(peak_begin, peak_end))
        before = np.linspace(begin, middle, at + 1)[:-1]
        placed = np.append(before, np.linspace(middle, end, count - at + 1)[:-1])
        side = np.sign(np.arange(count) - at)
        least, most = np.where(side < 0, first, peak), np.where(side > 0, last, peak)
    at_ns = placed.astype(np.int64)
    follows: Integers = np.clip(np.searchsorted(measured, at_ns, side="right") - 1, least, most)
    return follows, at_ns, np.where(follows == peak, side, 0)
