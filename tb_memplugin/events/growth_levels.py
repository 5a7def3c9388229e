"""The lowest memory of groups of training steps, which shows growth, in bounded memory."""

import itertools

import numpy as np

from tb_memplugin.model import MISSING, Integers
from tb_memplugin.model.rollup import LEVEL_BYTES, Levels

MAX_LEVELS = 80
MIN_LEVELS = 36
"""Fewer levels are not enough for a trend."""

_HIGHEST = np.iinfo(np.int64).max
_NO_LEVEL: Integers = np.empty((0, 2), np.int64)


class GrowthLevels:
    """The lowest memory of groups of training steps; twice as many steps make a group once there are too many.

    Not thread-safe.
    """

    def __init__(self) -> None:
        self._steps: list[int] = []
        self._lowest: list[Integers] = []  # of each group, shape [devices, 2]; later ones may have more devices
        self._group = 1
        self._in_last = 0

    def add(self, steps: Integers, columns: Integers) -> None:
        """Add the bytes in use at step end and the peaks of all devices, shape [devices, 2, steps]."""
        columns = np.where(columns == MISSING, _HIGHEST, columns)
        begin = 0
        while begin < len(steps):
            if self._in_last in (0, self._group):
                if len(self._steps) >= MAX_LEVELS:
                    self.halve()
                    continue
                self._steps.append(0)
                self._lowest.append(_NO_LEVEL)
                self._in_last = 0
            end = min(len(steps), begin + self._group - self._in_last)
            self._steps[-1] = int(steps[end - 1])
            self._lowest[-1] = _lower(self._lowest[-1], columns[:, :, begin:end].min(axis=2))
            self._in_last += end - begin
            begin = end

    def __len__(self) -> int:
        return len(self._steps)

    def halve(self) -> bool:
        """Put neighboring groups together; False if there are none."""
        if len(self._steps) < 2:
            return False
        if len(self._steps) % 2 == 0:
            self._in_last += self._group
        self._steps = [*self._steps[1::2], *(self._steps[-1:] if len(self._steps) % 2 else [])]
        evens, odds = self._lowest[::2], self._lowest[1::2]
        self._lowest = [_lower(even, odd) for even, odd in itertools.zip_longest(evens, odds, fillvalue=_NO_LEVEL)]
        self._group *= 2
        return True

    def levels(self, devices: int) -> Levels:
        """The levels, with a row for each device."""
        values = np.full((devices, len(self._steps), 2), _HIGHEST)
        for at, lowest in enumerate(self._lowest):
            values[: len(lowest), at] = lowest
        values = np.where(values == _HIGHEST, MISSING, values // LEVEL_BYTES * LEVEL_BYTES)
        return Levels(np.asarray(self._steps, np.int64), values[:, :, 0], values[:, :, 1])


def _lower(first: Integers, second: Integers) -> Integers:
    """The lower values of two groups of steps."""
    shorter, longer = sorted((first, second), key=len)
    lower: Integers = longer.copy()
    np.minimum(lower[: len(shorter)], shorter, out=lower[: len(shorter)])
    return lower
