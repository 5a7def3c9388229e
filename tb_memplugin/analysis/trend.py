"""The trend of a series: the step from which it grows, and how fast; lasting jumps, and the trend
under them. Pure.

Medians of buckets of steps are compared, so that single peaks and smaller last batches do not
count. The first steps are left out, because they contain one-time allocations. A series has a trend
if it rises almost monotonically until its end, by a relevant size."""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from tb_memplugin.schema import MISSING, Integers, LayerTable

_Number = TypeVar("_Number", bound=np.generic)

MIN_STEPS = 30  # shorter series have no trend
MIN_BYTES, MIN_SHARE = 1 << 20, 0.01
"""Smaller growth and smaller jumps, absolute or relative to the level before them, are ignored."""
MIN_ORDER = 0.7  # least Kendall's tau of a trend: 1 is monotonic, 0 is noise
MAX_RISES = 3
"""Growth in so few rises is none: memory that a training takes once, such as a cache or a thread.

Fitted on nine trainings of 200 steps (`tests/accuracy/train.py`) and a shorter one. Host RSS rose
by up to 120 MiB in the first 90 steps, most of it in up to three rises, and by 6 MiB at most
afterwards. Without this, the shorter one and ten beginnings of another one have a trend; with it
none has."""
BUCKETS = 120
_FIRST_STEPS = 5
_FIRST_SHARE = 0.02
_LATE_SHARE = 0.25
"""Least slope of the last third of a trend, relative to its overall slope; below, it is a single
late allocation."""


@dataclasses.dataclass(frozen=True)
class Trend:
    """Growth of one series from `since_step` to its last step: the median slope, the medians before
    and at the end."""

    since_step: int
    last_step: int
    bytes_per_step: float
    from_bytes: int
    to_bytes: int

    @property
    def added_bytes(self) -> float:
        return self.bytes_per_step * (self.last_step - self.since_step)


def least_change(level: Any) -> Any:
    """The least change of one or more levels in bytes that is considerable."""
    return np.maximum(MIN_BYTES, MIN_SHARE * level)


def is_long_enough(steps: int) -> bool:
    return steps - _skipped(steps) >= MIN_STEPS


def smallest_growth(values: Integers) -> int:
    """The smallest growth in bytes that `find_trend` accepts in a series that is long enough."""
    return int(np.ceil(least_change(np.median(values[_skipped(len(values)) :]))))


def find_trend(steps: Integers, values: Integers | npt.NDArray[np.float64]) -> Trend | None:
    """`steps` ascending, `values` in bytes, both of equal length."""
    if not is_long_enough(len(steps)):
        return None
    skipped = _skipped(len(steps))
    steps, values = steps[skipped:], values[skipped:]
    by_bucket = _buckets(values.astype(np.float64))
    # Most series end so low that no bucket is the onset of a trend; all medians take most of the
    # time.
    first, last = np.median(by_bucket[[0, -1]], axis=1)
    if last - first < least_change(by_bucket.min()):
        return None
    medians = np.median(by_bucket, axis=1)
    begins, ends = _buckets(steps)[:, 0].astype(np.float64), _buckets(steps)[:, -1]
    onset = _onset(begins, medians)
    after, rising = begins[onset:], medians[onset:]
    before = float(np.median(medians[: onset + 1]))
    growth = float(medians[-1] - medians[: onset + 1].max())
    largest_rises = np.sort(np.diff(np.maximum.accumulate(rising)))[-MAX_RISES:]
    if len(after) < 8 or growth - largest_rises.sum() < least_change(before):
        return None
    slope, order = slope_and_order(after, rising)
    third = len(after) * 2 // 3
    late, _ = slope_and_order(after[third:], rising[third:])
    if slope <= 0 or order < MIN_ORDER or late < _LATE_SHARE * slope:
        return None
    return Trend(int(begins[onset]), int(ends[-1]), slope, round(before), round(float(medians[-1])))


def _skipped(steps: int) -> int:
    return max(_FIRST_STEPS, int(steps * _FIRST_SHARE))


def _buckets(values: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    size = max(1, len(values) // BUCKETS)
    count = len(values) // size
    # Surplus rows are dropped at the front, so that the newest steps count.
    return values[len(values) - count * size :].reshape(count, size)


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


def _row_medians(
    values: npt.NDArray[np.float64], counted: npt.NDArray[np.bool_]
) -> npt.NDArray[np.float64]:
    ordered = np.sort(np.where(counted, values, np.inf), axis=1)
    count = np.count_nonzero(counted, axis=1)[:, None]
    middle = np.take_along_axis(ordered, np.hstack([(count - 1) // 2, count // 2]), axis=1)
    return np.asarray(middle.sum(axis=1, keepdims=True) / 2)


def slope_and_order(
    steps: npt.NDArray[Any], values: npt.NDArray[np.float64]
) -> tuple[float, float]:
    """The median of the slopes between all pairs of rows, and Kendall's tau."""
    slopes = _slopes(steps, values)
    return float(np.median(slopes)), float(np.sign(slopes).mean())


def _slopes(steps: npt.NDArray[Any], values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Bytes per step between all pairs of rows; 0 if there is no pair."""
    first, second = np.triu_indices(len(steps), 1)
    slopes: npt.NDArray[np.float64] = (values[second] - values[first]) / np.maximum(
        steps[second] - steps[first], 1
    )
    return slopes if len(first) else np.zeros(1)


MIN_JUMP_STEPS = 20  # shorter series have no jump
_OUTLIERS = 5  # on each side of a jump, 1 in this many steps may be an outlier at either end
CLEARNESS = 2
"""Least ratio of the gap between the levels to the variation within them and to the usual change
over as many steps."""
MAX_ROWS = 20_000  # longer series are reduced to this many medians of successive steps
WINDOW = 20  # steps compared on either side of a change, never past the next change


@dataclasses.dataclass(frozen=True)
class Level:
    step: int
    peak_bytes: int


@dataclasses.dataclass(frozen=True)
class Jump:
    """The first step of a new lasting level, and the steps with the median peak on either side."""

    step: int
    before: Level
    after: Level

    @property
    def delta_bytes(self) -> int:
        return self.after.peak_bytes - self.before.peak_bytes


def largest_jump(steps: Integers, peaks: Integers, not_near: Sequence[int] = ()) -> Jump | None:
    """The largest jump of a series (`steps` ascending), further than `WINDOW` steps from the steps
    `not_near`.

    Up to `WINDOW` steps on either side are compared. The gap between the levels must exceed the
    variation within both, so that growth is no jump."""
    known = peaks != MISSING
    steps, peaks = steps[known], peaks[known]
    rows = _medians(peaks)
    steps, peaks = steps[rows], peaks[rows]
    if len(steps) < MIN_JUMP_STEPS:
        return None
    side = min(WINDOW, len(steps) // 4)
    outliers = side // _OUTLIERS
    if side == WINDOW and not _may_jump(peaks, outliers):
        return None
    windows = np.sort(np.lib.stride_tricks.sliding_window_view(peaks, side), axis=1)
    low, high = windows[:, outliers], windows[:, side - 1 - outliers]
    spread = high - low
    # Boundary b lies before row b + side: window b ends there, window b + side begins.
    gap = np.maximum(low[side:] - high[:-side], low[:-side] - high[side:])
    noise = spread[:-side] + spread[side:]
    # Over the same distance, half of all pairs of sides differ by no more: growth or drift.
    middle = windows[:, side // 2]
    usual = float(np.median(np.abs(middle[side:] - middle[:-side])))
    found = (gap > CLEARNESS * np.maximum(noise, usual)) & (gap >= least_change(high[:-side]))
    for step in not_near:
        found &= np.abs(steps[side : len(steps) - side + 1] - step) > WINDOW
    if not found.any():
        return None
    # Beside a jump the tolerated outliers hide it: the boundary with the clearest sides is the
    # jump.
    at = int(np.argmax(np.where(found, gap - noise, np.iinfo(np.int64).min))) + side
    before, after = (_median(steps, peaks, begin, begin + side) for begin in (at - side, at))
    # Tolerated outliers may have moved the first row of the new level to either side of the
    # boundary.
    near = np.arange(at - outliers, at + outliers + 1)
    middles = float(np.median(peaks[at - side : at])), float(np.median(peaks[at : at + side]))
    closer = np.abs(peaks[near] - middles[1]) < np.abs(peaks[near] - middles[0])
    return Jump(int(steps[near[np.argmax(closer)] if closer.any() else at]), before, after)


def _may_jump(peaks: Integers, outliers: int) -> bool:
    """Whether any two neighboring windows can lie far enough apart.

    Most series have none, and sorting all windows takes longer. Each window of `WINDOW` rows holds
    a block of half as many, and the window after it holds the second block after that one. So the
    tolerated outliers are the only values of a block beyond the range of its window."""
    size = WINDOW // 2
    blocks = np.sort(peaks[: len(peaks) // size * size].reshape(-1, size), axis=1)
    low, high = blocks[:, outliers], blocks[:, size - 1 - outliers]
    gap = np.maximum(low[2:] - high[:-2], low[:-2] - high[2:])
    return bool((gap >= least_change(high[:-2])).any())


def _medians(peaks: Integers) -> npt.NDArray[np.intp]:
    """All rows, or of a long series the row of the median peak of each bucket."""
    size = -(-len(peaks) // MAX_ROWS)
    if size <= 1:
        return np.arange(len(peaks))
    count = len(peaks) // size
    order = np.argsort(peaks[: count * size].reshape(count, size), axis=1)
    rows: npt.NDArray[np.intp] = order[:, size // 2] + np.arange(count) * size
    return rows


def _median(steps: Integers, peaks: Integers, begin: int, end: int) -> Level:
    row = begin + int(np.argsort(peaks[begin:end], kind="stable")[(end - begin) // 2])
    return Level(int(steps[row]), int(peaks[row]))


MAX_CHANGES = 200  # most changes of the layer table that are examined, the first ones
_ROWS = 5  # rows on either side of a jump whose medians are compared


_Jumps: TypeAlias = tuple[tuple[int, int], ...]  # step and size in bytes of each


def trend_between_jumps(
    steps: Integers, values: Integers, tables: Sequence[LayerTable]
) -> tuple[Trend, _Jumps] | None:
    """The trend of a series without its jumps, with levels as measured, and the jumps since it
    began; None without."""
    level, all_jumps = _levelled(steps, values, tables)
    trend = find_trend(steps, level)
    if trend is None:
        return None
    jumps = tuple((step, size) for step, size in all_jumps if step > trend.since_step)
    return dataclasses.replace(
        trend, from_bytes=trend.from_bytes - sum(size for _, size in jumps)
    ), jumps


def _levelled(
    steps: Integers, values: Integers, tables: Sequence[LayerTable]
) -> tuple[npt.NDArray[np.float64], _Jumps]:
    """Move earlier values to the level after the jump at each change of the layer table, and after
    lasting rises elsewhere, such as of a larger batch; the last values are as measured. `steps`
    ascending; jumps in no order."""
    level = values.astype(np.float64)
    jumps: _Jumps = ()
    for step in sorted({table.step for table in tables})[:MAX_CHANGES]:
        level, jumps = _without(level, jumps, steps, step, 1)
    before = level, jumps
    for _ in range(MAX_RISES):
        jump = largest_jump(steps, np.rint(level).astype(np.int64))
        if jump is None:
            return level, jumps
        if jump.delta_bytes < 0:
            # A later rise may be the return from this drop.
            return before
        level, jumps = _without(level, jumps, steps, jump.step, -(-len(steps) // MAX_ROWS))
    return (
        (level, jumps) if largest_jump(steps, np.rint(level).astype(np.int64)) is None else before
    )


def _without(
    values: npt.NDArray[np.float64], jumps: _Jumps, steps: Integers, step: int, margin: int
) -> tuple[npt.NDArray[np.float64], _Jumps]:
    """Remove the jump at `step`, whose row is known within `margin` rows, but not the growth around
    it."""
    at = int(np.searchsorted(steps, step))
    first, end, begin = max(0, at - margin + 1 - WINDOW), max(0, at - margin + 1), at + margin
    sides = [np.arange(first, end), np.arange(begin, min(begin + WINDOW, len(values)))]
    if not len(sides[0]) or not len(sides[1]):
        return values, jumps
    rate = float(np.median(np.concatenate([_slopes(steps[rows], values[rows]) for rows in sides])))
    before, after = (
        values[rows] - rate * (steps[rows] - step) for rows in (sides[0][-_ROWS:], sides[1][:_ROWS])
    )
    size = float(np.median(after) - np.median(before))
    return np.concatenate([values[:at] + size, values[at:]]), (*jumps, (step, round(size)))
