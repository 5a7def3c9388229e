"""The trend of a series: the step from which it grows, and how fast. Pure.

Medians of buckets of steps are compared, so that single peaks and smaller last batches do not count. The first steps
are left out, because they contain one-time allocations. A series has a trend if it rises almost monotonically until its
end, by a relevant size.
"""

import dataclasses
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tb_memplugin.model import Integers

_Number = TypeVar("_Number", bound=np.generic)

MIN_STEPS = 30
"""Shorter series have no trend."""
MIN_GROWTH_BYTES = 1 << 20
MIN_GROWTH_SHARE = 0.01
"""Smaller growth, absolute or relative to the level before it, is ignored."""
MIN_ORDER = 0.7
"""Least Kendall's tau of a trend: 1 is monotonic, 0 is noise."""
MAX_RISES = 3
"""Growth in so few rises is none: memory that a training takes once, such as a cache or a thread.

Fitted on nine trainings of 200 steps (`tests/accuracy/train.py`) and a shorter one. Host RSS rose by up to 120 MiB in
the first 90 steps, most of it in up to three rises, and by 6 MiB at most afterwards. Without this, the shorter one and
ten beginnings of another one have a trend; with it none has.
"""
BUCKETS = 120
_FIRST_STEPS = 5
_FIRST_SHARE = 0.02
_LATE_SHARE = 0.25
"""Least slope of the last third of a trend, relative to its overall slope; below, it is a single late allocation."""


@dataclasses.dataclass(frozen=True)
class Trend:
    """Growth of one series.

    Attributes:
        since_step: Step from which it grows.
        last_step: Last step of the series.
        bytes_per_step: Median slope between them.
        from_bytes, to_bytes: Median before `since_step`, and at the end.
    """

    since_step: int
    last_step: int
    bytes_per_step: float
    from_bytes: int
    to_bytes: int


def is_long_enough(steps: int) -> bool:
    """Whether a series of this many steps can have a trend."""
    return steps - _skipped(steps) >= MIN_STEPS


def smallest_growth(values: Integers | npt.NDArray[np.float64]) -> int:
    """The smallest growth in bytes that `find_trend` accepts in a series that is long enough."""
    return max(MIN_GROWTH_BYTES, int(np.ceil(MIN_GROWTH_SHARE * float(np.median(values[_skipped(len(values)) :])))))


def find_trend(steps: Integers, values: Integers | npt.NDArray[np.float64]) -> Trend | None:
    """The trend of a series, or None; `steps` ascending, `values` in bytes, both of equal length."""
    if not is_long_enough(len(steps)):
        return None
    skipped = _skipped(len(steps))
    steps, values = steps[skipped:], values[skipped:]
    by_bucket = _buckets(values.astype(np.float64))
    if not _ends_higher(by_bucket):
        return None
    medians = np.median(by_bucket, axis=1)
    if not _may_grow(medians):
        return None
    begins, ends = _buckets(steps)[:, 0].astype(np.float64), _buckets(steps)[:, -1]
    onset = _onset(begins, medians)
    after, rising = begins[onset:], medians[onset:]
    before = float(np.median(medians[: onset + 1]))
    growth = float(medians[-1] - medians[: onset + 1].max())
    largest_rises = np.sort(np.diff(np.maximum.accumulate(rising)))[-MAX_RISES:]
    if len(after) < 8 or growth - largest_rises.sum() < max(MIN_GROWTH_BYTES, MIN_GROWTH_SHARE * before):
        return None
    slope, order = slope_and_order(after, rising)
    third = len(after) * 2 // 3
    late, _ = slope_and_order(after[third:], rising[third:])
    if slope <= 0 or order < MIN_ORDER or late < _LATE_SHARE * slope:
        return None
    return Trend(int(begins[onset]), int(ends[-1]), slope, round(before), round(float(medians[-1])))


def _skipped(steps: int) -> int:
    """The number of first steps that are left out."""
    return max(_FIRST_STEPS, int(steps * _FIRST_SHARE))


def _buckets(values: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    """The values by bucket, shape [buckets, rows]."""
    size = max(1, len(values) // BUCKETS)
    count = len(values) // size
    # Surplus rows are dropped at the front, so that the newest steps count.
    return values[len(values) - count * size :].reshape(count, size)


def _ends_higher(by_bucket: npt.NDArray[np.float64]) -> bool:
    """Whether the last bucket is so far above the first that any bucket can be the onset of a trend.

    Told without the medians of the buckets between, which take most of the time.
    """
    first, last = np.median(by_bucket[[0, -1]], axis=1)
    return bool(last - first >= max(MIN_GROWTH_BYTES, MIN_GROWTH_SHARE * float(by_bucket.min())))


def _may_grow(values: npt.NDArray[np.float64]) -> bool:
    """Whether any bucket can be the onset of a trend; most series have none, and finding the onset takes longer."""
    candidates = len(values) - 7
    so_far = values[:candidates]
    growth = values[-1] - np.maximum.accumulate(so_far)
    # The level before the onset is at least the lowest value.
    least = np.maximum(MIN_GROWTH_BYTES, MIN_GROWTH_SHARE * np.minimum.accumulate(so_far))
    if not (growth >= least).any():
        return False
    signs = np.triu(np.sign(values[None, :] - values[:, None]))
    pairs = np.arange(len(values)).cumsum()[::-1]
    order = signs.sum(axis=1)[::-1].cumsum()[::-1][:candidates] / pairs[:candidates]
    return bool(((growth >= least) & (order >= MIN_ORDER)).any())


def _onset(steps: npt.NDArray[np.float64], values: npt.NDArray[np.float64]) -> int:
    """The bucket at which a flat line followed by a rising one fits `values` best."""
    # One row for each candidate: the values up to it, and those after it.
    candidates = np.arange(len(values) - 7)[:, None]
    after = np.arange(len(values))[None, :] > candidates
    run = steps[None, :] - steps[candidates]
    level = _row_medians(np.broadcast_to(values, after.shape), ~after)
    slope = np.maximum(0.0, _row_medians((values[None, :] - level) / np.maximum(run, 1), after))
    errors = np.abs(values[None, :] - level - np.where(after, slope * run, 0.0)).sum(axis=1)
    best, at = np.inf, 0
    for candidate, error in enumerate(errors.tolist()):
        if error < best * (1 - 1e-9):
            best, at = error, candidate
    return at


def _row_medians(values: npt.NDArray[np.float64], counted: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """The median of the counted values of each row, shape [rows, 1]."""
    ordered = np.sort(np.where(counted, values, np.inf), axis=1)
    count = np.count_nonzero(counted, axis=1)[:, None]
    middle = np.take_along_axis(ordered, np.hstack([(count - 1) // 2, count // 2]), axis=1)
    return np.asarray(middle.sum(axis=1, keepdims=True) / 2)


def slope_and_order(steps: npt.NDArray[np.float64], values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """The Theil–Sen slope (median over all pairs) and Kendall's tau."""
    first, second = np.triu_indices(len(steps), 1)
    if not len(first):
        return 0.0, 0.0
    rise, run = values[second] - values[first], steps[second] - steps[first]
    return float(np.median(rise / np.maximum(run, 1))), float(np.sign(rise).mean())
