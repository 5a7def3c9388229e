"""The trend of a series: the step from which it grows, and how fast. Pure.

Medians of buckets of steps are compared, so that single peaks and smaller last batches do not count. The first steps
are left out, because they contain one-time allocations. A series has a trend if it rises almost monotonically until its
end, by a relevant size.
"""

import dataclasses

import numpy as np
import numpy.typing as npt

from tb_memplugin.model import Integers

MIN_STEPS = 30
"""Shorter series have no trend."""
MIN_GROWTH_BYTES = 1 << 20
MIN_GROWTH_SHARE = 0.01
"""Smaller growth, absolute or relative to the level before it, is ignored."""
MIN_ORDER = 0.7
"""Least Kendall's tau of a trend: 1 is monotonic, 0 is noise."""
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
    """Whether a series of so many steps can have a trend."""
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
    begins, medians, ends = _bucket_medians(steps, values.astype(np.float64))
    if medians[-1] - medians.min() < MIN_GROWTH_BYTES:
        return None
    onset = _onset(begins, medians)
    after, rising = begins[onset:], medians[onset:]
    before = float(np.median(medians[: onset + 1]))
    growth = float(medians[-1] - medians[: onset + 1].max())
    if len(after) < 8 or growth < max(MIN_GROWTH_BYTES, MIN_GROWTH_SHARE * before):
        return None
    slope, order = _slope_and_order(after, rising)
    third = len(after) * 2 // 3
    late, _ = _slope_and_order(after[third:], rising[third:])
    if slope <= 0 or order < MIN_ORDER or late < _LATE_SHARE * slope:
        return None
    return Trend(int(begins[onset]), int(ends[-1]), slope, round(before), round(float(medians[-1])))


def _skipped(steps: int) -> int:
    """The number of first steps that are left out."""
    return max(_FIRST_STEPS, int(steps * _FIRST_SHARE))


def _bucket_medians(
    steps: Integers, values: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], Integers]:
    """First step, median value and last step of each bucket."""
    size = max(1, len(steps) // BUCKETS)
    count = len(steps) // size
    # Surplus rows are dropped at the front, so that the newest steps count.
    steps, values = steps[len(steps) - count * size :], values[len(values) - count * size :]
    by_bucket = steps.reshape(count, size)
    medians = np.median(values.reshape(count, size), axis=1)
    return by_bucket[:, 0].astype(np.float64), medians, by_bucket[:, -1]


def _onset(steps: npt.NDArray[np.float64], values: npt.NDArray[np.float64]) -> int:
    """The bucket at which a flat line followed by a rising one fits `values` best."""
    best, at = np.inf, 0
    for candidate in range(len(values) - 7):
        level = float(np.median(values[: candidate + 1]))
        run = steps[candidate + 1 :] - steps[candidate]
        slope = max(0.0, float(np.median((values[candidate + 1 :] - level) / np.maximum(run, 1))))
        error = float(
            np.abs(values[: candidate + 1] - level).sum() + np.abs(values[candidate + 1 :] - level - slope * run).sum()
        )
        if error < best * (1 - 1e-9):
            best, at = error, candidate
    return at


def _slope_and_order(steps: npt.NDArray[np.float64], values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """The Theil–Sen slope (median over all pairs) and Kendall's tau."""
    first, second = np.triu_indices(len(steps), 1)
    if not len(first):
        return 0.0, 0.0
    rise, run = values[second] - values[first], steps[second] - steps[first]
    return float(np.median(rise / np.maximum(run, 1))), float(np.sign(rise).mean())
