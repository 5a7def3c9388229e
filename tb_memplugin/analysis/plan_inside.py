"""What a compiled module's blocks hold from position to position of the compiler's schedule. Pure."""

import bisect
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from tb_memplugin.analysis.reduce import extreme_rows
from tb_memplugin.analysis.xla import Plans, levels, packed, peak_position
from tb_memplugin.model import Category
from tb_memplugin.trace import Module, PlannedAllocation

MAX_POSITIONS = 256
"""About the most positions of one module that are told apart; the peak and the ends of the passes are among them."""


class PlanSteps(NamedTuple):
    """Positions of a module's schedule that are told apart, and which of them, by its place in the list, is what.

    Attributes:
        positions: Ascending.
        peak: That of the plan's peak.
        forward_end, backward_end, update_begin: From which on the forward pass, the backward pass have ended, and
            weights are updated; None where that cannot be said.
    """

    positions: tuple[int, ...]
    peak: int
    forward_end: int | None
    backward_end: int | None
    update_begin: int | None


class PlannedRow(NamedTuple):
    """Bytes of one owner in a block, from one place in the list of positions up to before another."""

    first: int
    end: int
    layer: str | None
    category: Category
    bytes: int
    op: str | None


def plan_steps(plans: Plans, module: Module) -> PlanSteps:
    """The positions of a module that are told apart: those of the highest and lowest bytes among their neighbours."""
    positions, live = levels(module)
    if not positions:
        return PlanSteps((0,), 0, None, None, None)
    forward, backward, update = _passes(plans, module)
    peak = peak_position(module)
    marks = [_place(positions, mark) for mark in (peak, forward, backward, update) if mark is not None]
    rows = extreme_rows([np.asarray(live, np.int64)], MAX_POSITIONS, always=marks)
    kept = [positions[row] for row in rows.tolist()]
    return PlanSteps(
        positions=tuple(kept),
        peak=_place(kept, peak),
        forward_end=None if forward is None else _place(kept, forward) + 1,
        backward_end=None if backward is None else _place(kept, backward) + 1,
        update_begin=None if update is None else _place(kept, update),
    )


def _place(positions: Sequence[int], wanted: int) -> int:
    """The last position up to `wanted`; the first if none is."""
    return max(0, bisect.bisect_right(positions, wanted) - 1)


def _passes(plans: Plans, module: Module) -> tuple[int | None, int | None, int | None]:
    """The last positions of the forward and of the backward pass, and that of the first update after the former."""
    end = plans.forward_end(module)
    if end < 0:
        return None, None, None
    starts: dict[str, list[int]] = {"backward": [], "update": []}
    for buffer in (buffer for allocation in module.allocations for buffer in allocation.buffers):
        fact = plans.fact(buffer.ops) if buffer.named and not buffer.of_argument and not buffer.constant else None
        if fact is not None and fact.layer is not None and fact.phase in starts and buffer.start > end:
            starts[fact.phase].append(buffer.start)
    if not starts["backward"]:
        return None, None, None
    return end, max(starts["backward"]), min(starts["update"], default=None)


def planned_rows(
    plans: Plans, module: Module, allocation: PlannedAllocation, positions: Sequence[int]
) -> list[PlannedRow]:
    """What a block holds; at every position the rows sum to the block, what the plan leaves empty being workspace."""
    end = plans.forward_end(module)
    rows: list[PlannedRow] = []
    open_rows: dict[int, int] = {}
    rest: tuple[int, int] = (0, -1)
    by_number = dict(enumerate(allocation.buffers))
    numbers = {id(buffer): number for number, buffer in by_number.items()}

    def close(gone: Iterable[int], at: int) -> None:
        for number in gone:
            buffer = by_number[number]
            layer, category = plans.role(buffer, end)
            op = buffer.ops[0] if buffer.ops else None
            rows.append(PlannedRow(open_rows.pop(number), at, layer, category, buffer.bytes, op))

    for at, position in enumerate(positions):
        live = {numbers[id(buffer)]: size for buffer, size in packed(allocation.buffers, position) if size}
        close([number for number in open_rows if number not in live], at)
        for number in live:
            open_rows.setdefault(number, at)
        empty = allocation.bytes - sum(live.values())
        if empty != rest[1]:
            if rest[1] > 0:
                rows.append(PlannedRow(rest[0], at, None, "workspace", rest[1], None))
            rest = (at, empty)
    close(list(open_rows), len(positions))
    if rest[1] > 0:
        rows.append(PlannedRow(rest[0], len(positions), None, "workspace", rest[1], None))
    return rows
