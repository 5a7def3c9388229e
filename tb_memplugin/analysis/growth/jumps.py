"""Lasting jumps of the measured peak, such as after another batch size. Pure."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tb_memplugin.analysis.growth.change_effects import WINDOW, Level
from tb_memplugin.model import MISSING, Integers

MIN_STEPS = 20
"""Shorter series have no jump."""
_OUTLIERS = 5
"""On each side of a jump, 1 in this many steps may be an outlier at either end."""
CLEARNESS = 2
"""Least ratio of the gap between the levels to the variation within them and to the usual change over as many steps."""
MIN_JUMP_BYTES = 1 << 20
MIN_JUMP_SHARE = 0.01
"""Smaller jumps, absolute or relative to the peak before, are ignored."""
MAX_ROWS = 20_000
"""Longer series are reduced to this many medians of successive steps."""


@dataclasses.dataclass(frozen=True)
class Jump:
    """A jump to a lasting level.

    Attributes:
        step: First step of the new level.
        before, after: Steps with the median peak of the steps on either side.
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

    Up to `WINDOW` steps on either side are compared. The gap between the levels must exceed the variation within both,
    so that growth is no jump.
    """
    known = peaks != MISSING
    steps, peaks = steps[known], peaks[known]
    rows = _medians(peaks)
    steps, peaks = steps[rows], peaks[rows]
    if len(steps) < MIN_STEPS:
        return None
    side = min(WINDOW, len(steps) // 4)
    outliers = side // _OUTLIERS
    if side == WINDOW and not _may_jump(peaks, outliers):
        return None
    windows = np.sort(np.lib.stride_tricks.sliding_window_view(peaks, side), axis=1)
    low, high = windows[:, outliers], windows[:, side - 1 - outliers]
    # Boundary b lies before row b + side: window b ends there, window b + side begins.
    before_low, before_high, after_low, after_high = low[:-side], high[:-side], low[side:], high[side:]
    gap = np.maximum(after_low - before_high, before_low - after_high)
    noise = (before_high - before_low) + (after_high - after_low)
    # Over the same distance, half of all pairs of sides differ by no more: growth or drift.
    middle = windows[:, side // 2]
    usual = float(np.median(np.abs(middle[side:] - middle[:-side])))
    least = np.maximum(MIN_JUMP_BYTES, MIN_JUMP_SHARE * before_high)
    found = (gap > CLEARNESS * np.maximum(noise, usual)) & (gap >= least)
    for step in not_near:
        found &= np.abs(steps[side : len(steps) - side + 1] - step) > WINDOW
    if not found.any():
        return None
    # Beside a jump the tolerated outliers hide it: the boundary with the clearest sides is the jump.
    at = int(np.argmax(np.where(found, gap - noise, np.iinfo(np.int64).min))) + side
    before, after = peaks[at - side : at], peaks[at : at + side]
    first = _first_of(peaks, at, outliers, float(np.median(before)), float(np.median(after)))
    return Jump(int(steps[first]), _median(steps, before, at - side), _median(steps, after, at))


def _may_jump(peaks: Integers, outliers: int) -> bool:
    """Whether any two neighboring windows can lie far enough apart.

    Most series have none, and sorting all windows takes longer. Each window of `WINDOW` rows holds a block of half as
    many, and the window after it holds the second block after that one. So the tolerated outliers are the only values
    of a block beyond the range of its window.
    """
    size = WINDOW // 2
    blocks = np.sort(peaks[: len(peaks) // size * size].reshape(-1, size), axis=1)
    low, high = blocks[:, outliers], blocks[:, size - 1 - outliers]
    gap = np.maximum(low[2:] - high[:-2], low[:-2] - high[2:])
    return bool((gap >= np.maximum(MIN_JUMP_BYTES, MIN_JUMP_SHARE * high[:-2])).any())


def _first_of(peaks: Integers, at: int, outliers: int, before: float, after: float) -> int:
    """The first row of the new level, which tolerated outliers may have moved to either side of the boundary."""
    near = np.arange(at - outliers, at + outliers + 1)
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
    row = int(np.argsort(peaks, kind="stable")[len(peaks) // 2])
    return Level(int(steps[begin + row]), int(peaks[row]))
