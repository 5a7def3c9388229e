"""Executions of compiled modules in a timeline: where the positions of their schedules come, and the rows inside."""

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tb_memplugin.attribution.classifier import Classifier
from tb_memplugin.attribution.passes import Marks
from tb_memplugin.attribution.schedule import SchedulePositions, planned_rows, schedule_positions
from tb_memplugin.attribution.timeline_rows import Row
from tb_memplugin.attribution.window import Owner
from tb_memplugin.model import Integers
from tb_memplugin.model.trace import BufferAllocation, Module


@dataclasses.dataclass
class ModuleRun:
    """One execution of a compiled module.

    Attributes:
        module, positions: The module and the positions of its schedule.
        begin, end: Events between which all its allocations are live.
        allocations: Chunk to planned allocation.
        moments: The timeline's moments of `positions`; other moments may lie between them.
    """

    module: Module
    positions: SchedulePositions
    begin: int
    end: int
    allocations: dict[int, BufferAllocation]
    moments: Integers = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))


def module_runs(classifier: Classifier) -> list[ModuleRun]:
    """The executions of compiled modules in a trace, in order."""
    runs: list[ModuleRun] = []
    chunks = classifier.chunks
    positions: dict[int, SchedulePositions] = {}
    for chunk in np.argsort(chunks.birth, kind="stable").tolist():
        plan = classifier.plan(chunk)
        if plan is None:
            continue
        module, allocation = plan
        birth, death = int(chunks.birth[chunk]), int(chunks.death[chunk])
        last = next((run for run in reversed(runs) if run.module is module), None)
        if last is not None and birth < last.end and allocation not in last.allocations.values():
            last.allocations[chunk] = allocation
            last.begin, last.end = birth, min(last.end, death)
            continue
        if id(module) not in positions:
            positions[id(module)] = schedule_positions(classifier.plans, module)
        runs.append(ModuleRun(module, positions[id(module)], birth, death, {chunk: allocation}))
    return runs


def module_rows(classifier: Classifier, chunk: int, run: ModuleRun, start: int, end: int) -> Iterator[Row]:
    """The contents of a module's chunk, which is live from moment `start` up to before `end`.

    Before the module runs they are those of its first position, after it those of its last.
    """
    chunks, allocation = classifier.chunks, run.allocations[chunk]
    edges = [start, *run.moments[1:].tolist(), end]
    name, begin = run.module.function or run.module.name, int(chunks.address[chunk])
    for row in planned_rows(classifier.plans, run.module, allocation, run.positions.positions):
        owner = classifier.layer_owner(row.layer, row.category)
        op = row.op or f"{name}: unused by its buffers"
        address = None if row.offset is None else begin + row.offset
        yield Row(edges[row.first], edges[row.end], owner, row.bytes, 0, op, address, row.shape, row.line)
    requested = int(chunks.requested[chunk])
    rounding = int(chunks.allocated[chunk]) - requested
    yield Row(start, end, Owner(None, "workspace", None), rounding, rounding, f"{name}: rounding", begin + requested)


def run_marks(run: ModuleRun) -> Marks | None:
    """The passes of an execution; None if the module is not a training step."""
    positions, moments = run.positions, run.moments
    if positions.forward_end is None or positions.backward_end is None:
        return None
    edges = [*moments.tolist(), int(moments[-1]) + 1]
    marks = Marks(edges[0], edges[positions.forward_end], edges[positions.backward_end])
    if positions.update_begin is not None:
        marks.update_begin, marks.update_end = edges[positions.update_begin], edges[-1]
    return marks


class Placement(NamedTuple):
    """Where a schedule's positions come among the events; columns of equal length.

    Attributes:
        follows: Number of events before each position.
        times: Nanoseconds since the step's start.
        side: Before (-1), at (0) or after (1) the step's peak.
    """

    follows: Integers
    times: Integers
    side: Integers


def place_positions(run: ModuleRun, times: Integers, peak: int) -> Placement:
    """Spread a module's positions evenly over its execution; its peak is placed at the step's if that lies in it.

    Args:
        run: The execution.
        times: When the state after each number of events begins, from 0 on; last, when the step ends.
        peak: Number of events before the step's peak.
    """
    count, at = len(run.positions.positions), run.positions.peak
    measured = times[:-1]
    first, last = run.begin + 1, min(run.end, len(measured) - 1)
    begin, end = int(times[first]), int(times[last + 1])
    if not first <= peak <= last:
        placed = np.linspace(begin, end, count + 1)[:-1].astype(np.int64)
        return Placement(_events_up_to(placed, measured, first, last), placed, np.zeros(count, np.int64))
    # The bytes in use stay at the peak until the next event: within that time, the module's peak keeps its own time.
    peak_begin, peak_end = int(times[peak]), int(times[peak + 1]) - 1
    middle = min(max(begin + (end - begin) * at // count, peak_begin), max(peak_begin, peak_end))
    parts = (np.linspace(begin, middle, at + 1)[:at], [middle], np.linspace(middle, end, count - at + 1)[1:-1])
    placed = np.concatenate(parts).astype(np.int64)
    side = np.sign(np.arange(count) - at)
    follows = _events_up_to(placed, measured, first, last)
    follows = np.where(side < 0, np.minimum(follows, peak), np.where(side > 0, np.maximum(follows, peak), peak))
    return Placement(follows, placed, np.where(follows == peak, side, 0))


def _events_up_to(times: Integers, measured: Integers, first: int, last: int) -> Integers:
    """Number of events before each of the times, between `first` and `last`."""
    numbers: Integers = np.clip(np.searchsorted(measured, times, side="right") - 1, first, last)
    return numbers
