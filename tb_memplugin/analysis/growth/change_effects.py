"""Effect of changes of the layer table on the measured peak, from every step. Pure."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tb_memplugin.analysis.steps.changes import trainable_layers
from tb_memplugin.model import MISSING, Integers, LayerTable

WINDOW = 20
"""Steps compared on either side of a change, never past the next change."""


@dataclasses.dataclass(frozen=True)
class Level:
    """The measured peak of one step."""

    step: int
    peak_bytes: int


@dataclasses.dataclass(frozen=True)
class ChangeEffect:
    """A change of the layer table. Tables of neighbouring steps are one change: an unfreezing, then a new optimizer.

    Attributes:
        first, last: Indices of its tables.
        step: First step after the change.
        reason: The recorder's sentence on its first table.
        unfrozen, frozen: Paths of the layers with weights that became trainable or frozen.
        before, after: The peaks of the nearest traced steps before and after; if a side has none, the highest peaks of
            the steps near the change. None if no peak was measured.
    """

    first: int
    last: int
    step: int
    reason: str
    unfrozen: tuple[str, ...]
    frozen: tuple[str, ...]
    before: Level | None
    after: Level | None


def change_effects(
    tables: Sequence[LayerTable], steps: Integers, peaks: Integers, traced: Sequence[int] = ()
) -> list[ChangeEffect]:
    """The changes after the start of the recording.

    Args:
        tables: All layer tables.
        steps, peaks: Steps in ascending order with their peaks (`MISSING`: unknown).
        traced: The traced steps that can be compared, in ascending order.
    """
    groups = _grouped(tables)
    traced_rows = np.flatnonzero(np.isin(steps, traced) & (peaks != MISSING))
    effects = []
    for at in range(1, len(groups)):
        (begin, before), (first, last) = groups[at - 1], groups[at]
        step = tables[first].step
        row = int(np.searchsorted(steps, step))
        start = int(np.searchsorted(steps, tables[begin].step))
        end = int(np.searchsorted(steps, tables[groups[at + 1][0]].step)) if at + 1 < len(groups) else len(steps)
        levels = _nearest(steps, peaks, traced_rows, start, row, end) or (
            _highest(steps, peaks, max(start, row - WINDOW), row),
            _highest(steps, peaks, row, min(end, row + WINDOW)),
        )
        effects.append(
            ChangeEffect(
                first,
                last,
                step,
                tables[first].reason,
                _became(tables[before], tables[last], trainable=True),
                _became(tables[before], tables[last], trainable=False),
                *levels,
            )
        )
    return effects


def _grouped(tables: Sequence[LayerTable]) -> list[tuple[int, int]]:
    """First and last index of the tables of each change."""
    groups: list[tuple[int, int]] = []
    for at, table in enumerate(tables):
        if groups and table.step <= tables[at - 1].step + 1:
            groups[-1] = (groups[-1][0], at)
        else:
            groups.append((at, at))
    return groups


def _became(before: LayerTable, after: LayerTable, trainable: bool) -> tuple[str, ...]:
    """Layers with weights that became trainable or frozen."""
    earlier = trainable_layers(before)
    return tuple(
        path
        for path, now in trainable_layers(after).items()
        if now is trainable and earlier.get(path) is (not trainable)
    )


def _nearest(
    steps: Integers, peaks: Integers, traced: npt.NDArray[np.intp], start: int, row: int, end: int
) -> tuple[Level, Level] | None:
    """The traced rows nearest to `row` in [start, row) and [row, end); None if either has none."""
    at = int(np.searchsorted(traced, row))
    if not at or at == len(traced) or traced[at - 1] < start or traced[at] >= end:
        return None
    before, after = int(traced[at - 1]), int(traced[at])
    return Level(int(steps[before]), int(peaks[before])), Level(int(steps[after]), int(peaks[after]))


def _highest(steps: Integers, peaks: Integers, begin: int, end: int) -> Level | None:
    if begin >= end:
        return None
    row = begin + int(np.argmax(peaks[begin:end]))
    return None if peaks[row] == MISSING else Level(int(steps[row]), int(peaks[row]))
