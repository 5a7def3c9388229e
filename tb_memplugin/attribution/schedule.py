"""Contents of a compiled module's allocations along the compiler's schedule. Pure."""

import bisect
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from tb_memplugin.attribution.xla import BufferAssignments, levels, packed, peak_position
from tb_memplugin.model import Category, TensorShape
from tb_memplugin.model.downsample import extreme_rows
from tb_memplugin.model.trace import BufferAllocation, Module

MAX_POSITIONS = 256
"""About the most positions that are kept of one module; the peak and the ends of the passes are among them."""


class SchedulePositions(NamedTuple):
    """The kept positions of a module's schedule, ascending, and indices into them.

    Attributes:
        positions: Ascending.
        peak: Index of the module's peak.
        forward_end, backward_end, update_begin: Index of the first position after the forward pass, after the backward
            pass, and of the weight updates; None if unknown.
    """

    positions: tuple[int, ...]
    peak: int
    forward_end: int | None
    backward_end: int | None
    update_begin: int | None


class PlannedRow(NamedTuple):
    """Bytes of one owner in an allocation, from one index into the positions up to before another.

    Attributes:
        offset: Place of a buffer in its allocation; None for unused bytes.
        shape, line: As in `Row`.
    """

    first: int
    end: int
    layer: str | None
    category: Category
    bytes: int
    op: str | None
    offset: int | None = None
    shape: TensorShape | None = None
    line: str | None = None


def schedule_positions(plans: BufferAssignments, module: Module) -> SchedulePositions:
    """The kept positions of a module: those with the highest and lowest bytes among their neighbors."""
    positions, live = levels(module)
    if not positions:
        return SchedulePositions((0,), 0, None, None, None)
    forward, backward, update = _passes(plans, module)
    peak = peak_position(module)
    marks = [_place(positions, mark) for mark in (peak, forward, backward, update) if mark is not None]
    rows = extreme_rows([np.asarray(live, np.int64)], MAX_POSITIONS, always=marks)
    kept = [positions[row] for row in rows.tolist()]
    return SchedulePositions(
        positions=tuple(kept),
        peak=_place(kept, peak),
        forward_end=None if forward is None else _place(kept, forward) + 1,
        backward_end=None if backward is None else _place(kept, backward) + 1,
        update_begin=None if update is None else _place(kept, update),
    )


def _place(positions: Sequence[int], wanted: int) -> int:
    """The last position up to `wanted`; the first if none is."""
    return max(0, bisect.bisect_right(positions, wanted) - 1)


def _passes(plans: BufferAssignments, module: Module) -> tuple[int | None, int | None, int | None]:
    """The last positions of the forward and the backward pass, and the first position of an update; None if unknown."""
    end = plans.forward_end(module)
    if end < 0:
        return None, None, None
    starts: dict[str, list[int]] = {"backward": [], "update": []}
    for buffer in (buffer for allocation in module.allocations for buffer in allocation.buffers):
        fact = plans.fact(buffer.ops) if buffer.named and not buffer.of_argument and not buffer.constant else None
        if fact is not None and fact.layer is not None and fact.pass_name in starts and buffer.start > end:
            starts[fact.pass_name].append(buffer.start)
    if not starts["backward"]:
        return None, None, None
    return end, max(starts["backward"]), min(starts["update"], default=None)


def planned_rows(
    plans: BufferAssignments, module: Module, allocation: BufferAllocation, positions: Sequence[int]
) -> list[PlannedRow]:
    """The contents of an allocation; at every position they sum to its size, unused bytes being workspace."""
    end = plans.forward_end(module)
    rows: list[PlannedRow] = []
    open_rows: dict[int, int] = {}
    unused: tuple[int, int] = (0, -1)  # since which position, bytes
    by_number = dict(enumerate(allocation.buffers))
    numbers = {id(buffer): number for number, buffer in by_number.items()}

    def close(ended: Iterable[int], at: int) -> None:
        for number in ended:
            buffer = by_number[number]
            layer, category = plans.role(buffer, end)
            op = buffer.ops[0] if buffer.ops else None
            fact = plans.fact(buffer.ops[:1]) if buffer.named else None
            line = None if fact is None else fact.line
            place = (open_rows.pop(number), at, layer, category, buffer.bytes, op)
            rows.append(PlannedRow(*place, buffer.offset, buffer.shape, line))

    for at, position in enumerate(positions):
        live = {numbers[id(buffer)]: size for buffer, size in packed(allocation.buffers, position) if size}
        close([number for number in open_rows if number not in live], at)
        for number in live:
            open_rows.setdefault(number, at)
        empty = allocation.bytes - sum(live.values())
        if empty != unused[1]:
            if unused[1] > 0:
                rows.append(PlannedRow(unused[0], at, None, "workspace", unused[1], None))
            unused = (at, empty)
    close(list(open_rows), len(positions))
    if unused[1] > 0:
        rows.append(PlannedRow(unused[0], len(positions), None, "workspace", unused[1], None))
    return rows
