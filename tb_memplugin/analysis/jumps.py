"""Lasting jumps of the measured peak, such as after another batch size. Pure."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tb_memplugin.analysis.change_effects import WINDOW, Level
from tb_memplugin.model import MISSING, Integers

SIDE = 10
"""Steps compared on either side of a jump."""
OUTLIERS = 2
"""Steps of a side that may lie outside its range, at either end."""
MIN_JUMP_BYTES = 1 << 20
MIN_JUMP_SHARE = 0.01
"""Smaller jumps, absolute or relative to the peak before, are ignored."""
MAX_ROWS = 20_000
"""Longer series are reduced to so many medians of successive steps."""


@dataclasses.dataclass(frozen=True)
class Jump:
    """A jump to a lasting level.

    Attributes:
        step: First step of the new level.
        before, after: Steps with the median peak of the `SIDE` steps on either side.
    """

    step: int
    before: Level
    after: Level

    @property
    def delta_bytes(self) -> int:
        """Change of the peak."""
        return self.after.peak_bytes - self.before.peak_bytes


def largest_jump(steps: Integers, peaks: Integers, not_near: Sequence[int] = ()) -> Jump | None:
    """The largest jump of a series (`steps` ascending), further than `WINDOW` steps from the steps `not_near`.

    The gap between the levels must exceed the variation within both, so that growth is no jump.
    """
    known = peaks != MISSING
    steps, peaks = steps[known], peaks[known]
    rows = _medians(peaks)
    steps, peaks = steps[rows], peaks[rows]
    if len(steps) < 2 * SIDE:
        return None
    windows = np.sort(np.lib.stride_tricks.sliding_window_view(peaks, SIDE), axis=1)
    low, high = windows[:, OUTLIERS], windows[:, SIDE - 1 - OUTLIERS]
    # Boundary b lies before row b + SIDE: window b ends there, window b + SIDE begins.
    before_low, before_high, after_low, after_high = low[:-SIDE], high[:-SIDE], low[SIDE:], high[SIDE:]
    gap = np.maximum(after_low - before_high, before_low - after_high)
    noise = (before_high - before_low) + (after_high - after_low)
    least = np.maximum(MIN_JUMP_BYTES, MIN_JUMP_SHARE * before_high)
    found = (gap > noise) & (gap >= least)
    for step in not_near:
        found &= np.abs(steps[SIDE : len(steps) - SIDE + 1] - step) > WINDOW
    if not found.any():
        return None
    # Next to a jump the outliers hide it: of equal gaps, the boundary with the clearest sides is the jump.
    at = int(np.argmax(np.where(found, gap - noise, np.iinfo(np.int64).min))) + SIDE
    first = _first_of(peaks, at)
    return Jump(int(steps[first]), _median(steps, peaks, at - SIDE), _median(steps, peaks, at))


def _first_of(peaks: Integers, at: int) -> int:
    """The first row of the new level near a boundary: outliers are tolerated, so the boundary may be early or late."""
    before = np.median(peaks[at - SIDE : at])
    after = np.median(peaks[at : at + SIDE])
    near = np.arange(at - OUTLIERS, at + OUTLIERS + 1)
    closer = np.abs(peaks[near] - after) < np.abs(peaks[near] - before)
    return int(near[np.argmax(closer)]) if closer.any() else at


def _medians(peaks: Integers) -> npt.NDArray[np.intp]:
    """All rows, or of a long series the row of the median peak of each bucket."""
    size = -(-len(peaks) // MAX_ROWS)
    if size <= 1:
        return np.arange(len(peaks))
    count = len(peaks) // size
    order = np.argsort(peaks[: count * size].reshape(count, size), axis=1)
    rows: npt.NDArray[np.intp] = order[:, size // 2] + np.arange(count) * size
    return rows


def _median(steps: Integers, peaks: Integers, begin: int) -> Level:
    row = begin + int(np.argsort(peaks[begin : begin + SIDE], kind="stable")[SIDE // 2])
    return Level(int(steps[row]), int(peaks[row]))
