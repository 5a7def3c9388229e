"""A series without its jumps, and the trend under them. Pure."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tb_memplugin.analysis.growth.change_effects import WINDOW
from tb_memplugin.analysis.growth.jumps import MAX_ROWS, largest_jump
from tb_memplugin.analysis.growth.trend import MAX_RISES, Trend, find_trend
from tb_memplugin.model import Integers, LayerTable

MAX_CHANGES = 200
"""Most changes of the layer table that are examined, the first ones."""
_ROWS = 5
"""Rows on either side of a jump whose medians are compared."""


@dataclasses.dataclass(frozen=True)
class Levelled:
    """A series whose earlier values were moved to the level after each jump; its last values are as measured.

    Attributes:
        values: As many as in the series, in bytes.
        jumps: Step and size in bytes of each jump, in no order.
    """

    values: npt.NDArray[np.float64]
    jumps: tuple[tuple[int, int], ...]


def trend_between_jumps(
    steps: Integers, values: Integers, tables: Sequence[LayerTable]
) -> tuple[Trend, tuple[tuple[int, int], ...]] | None:
    """The trend of a series without its jumps, with levels as measured, and the jumps since it began; None without one.

    Parameters and jumps are as in `levelled`.
    """
    level = levelled(steps, values, tables)
    trend = find_trend(steps, level.values)
    if trend is None:
        return None
    jumps = tuple((step, size) for step, size in level.jumps if step > trend.since_step)
    return dataclasses.replace(trend, from_bytes=trend.from_bytes - sum(size for _, size in jumps)), jumps


def levelled(steps: Integers, values: Integers, tables: Sequence[LayerTable]) -> Levelled:
    """Remove the jump at each change of the layer table, and lasting rises elsewhere, such as after a larger batch.

    Args:
        steps: Ascending.
        values: Bytes, as many.
        tables: Layer tables of the run.
    """
    level = Levelled(values.astype(np.float64), ())
    for step in sorted({table.step for table in tables})[:MAX_CHANGES]:
        level = _without(level, steps, step, 1)
    before = level
    for _ in range(MAX_RISES):
        jump = largest_jump(steps, np.rint(level.values).astype(np.int64))
        if jump is None:
            return level
        if jump.delta_bytes < 0:
            # A later rise may be the return from this drop.
            return before
        level = _without(level, steps, jump.step, -(-len(steps) // MAX_ROWS))
    return level if largest_jump(steps, np.rint(level.values).astype(np.int64)) is None else before


def _without(level: Levelled, steps: Integers, step: int, margin: int) -> Levelled:
    """Remove the jump at `step`, whose row is known within `margin` rows, but not the growth around it."""
    at, values = int(np.searchsorted(steps, step)), level.values
    first, end, begin = max(0, at - margin + 1 - WINDOW), max(0, at - margin + 1), at + margin
    sides = [np.arange(first, end), np.arange(begin, min(begin + WINDOW, len(values)))]
    if not len(sides[0]) or not len(sides[1]):
        return level
    rate = float(np.median(np.concatenate([_slopes(steps[rows], values[rows]) for rows in sides])))
    before, after = (values[rows] - rate * (steps[rows] - step) for rows in (sides[0][-_ROWS:], sides[1][:_ROWS]))
    size = float(np.median(after) - np.median(before))
    return Levelled(np.concatenate([values[:at] + size, values[at:]]), (*level.jumps, (step, round(size))))


def _slopes(steps: Integers, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Bytes per step between all pairs of rows; 0 if there is no pair."""
    first, second = np.triu_indices(len(steps), 1)
    if not len(first):
        return np.zeros(1)
    slopes: npt.NDArray[np.float64] = (values[second] - values[first]) / np.maximum(steps[second] - steps[first], 1)
    return slopes
