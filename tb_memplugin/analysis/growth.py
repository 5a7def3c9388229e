"""Memory that grows over the steps of a training, and what of it grows. Pure.

The series of a device is cut into buckets whose medians are looked at, so that single peaks, smaller last batches and
the like do not count. Left out are the first steps (allocations that come once), the step after another phase, and the
jumps where the layer table changes. What remains is a finding if it rises nearly without falling back, goes on rising
to
the end, and comes to a level that was not there before, by a size that matters.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tb_memplugin.codec import MISSING
from tb_memplugin.model import PHASES, Integers, LayerActivations, LayerTable, Run, Samples, Snapshot
from tb_memplugin.units import format_bytes

MIN_STEPS = 30
"""Fewer steps show no trend."""
MIN_GROWTH_BYTES = 1 << 20
MIN_GROWTH_SHARE = 0.01
"""A growth below this, or below this share of what is in use, is no finding."""
MIN_ORDER = 0.7
"""Kendall's tau that a growth has at least: 1 never falls back, 0 is noise."""
BUCKETS = 120
_FIRST_STEPS = 5
_FIRST_SHARE = 0.02
_LATE_SHARE = 0.25
"""Share of its overall slope that the last third of a growth still has; less is an allocation that came late."""


@dataclasses.dataclass(frozen=True)
class Trend:
    """A growth of one series.

    Attributes:
        since_step: Where it begins.
        last_step: Where the series ends.
        bytes_per_step: Median slope from there on.
        from_bytes, to_bytes: Median before it, and at its end.
    """

    since_step: int
    last_step: int
    bytes_per_step: float
    from_bytes: int
    to_bytes: int


@dataclasses.dataclass(frozen=True)
class Growth:
    """A finding.

    Attributes:
        device: Where.
        at_peak: Whether the peak inside the step grows and not what is in use at the step's end.
        trend: How much.
        owner: Layer and category whose bytes grew most between traced steps, or a layer's recorded activations; None if
            neither tells.
        owner_bytes: By how much that one grew over the same steps.
        capacity_step: Step at which the device's capacity is reached at this rate, None if it is not known or far away.
    """

    device: str
    at_peak: bool
    trend: Trend
    owner: tuple[str | None, str] | None
    owner_bytes: int | None
    capacity_step: int | None

    def sentence(self) -> str:
        """The finding with its figures."""
        trend = self.trend
        what = "the peak inside a training step" if self.at_peak else "memory in use at the end of a training step"
        text = (
            f"{self.device}: {what} grows by {format_bytes(round(100 * trend.bytes_per_step))} every 100 steps "
            f"since step {trend.since_step}, from {format_bytes(trend.from_bytes)} "
            f"to {format_bytes(trend.to_bytes)} at step {trend.last_step}"
        )
        if self.owner is not None and self.owner_bytes is not None:
            layer, category = self.owner
            name = category.replace("_", " ") + (f" of {layer}" if layer is not None else " of no layer")
            text += f"; what grows most is {name}, by {format_bytes(self.owner_bytes)}"
        if self.capacity_step is not None:
            text += f"; at this rate the device is full at step {self.capacity_step}"
        return text + "."


def findings(run: Run) -> list[str]:
    """The run's findings as sentences, device by device."""
    return [growth.sentence() for growth in find_growth(run)]


def find_growth(run: Run) -> list[Growth]:
    """What grows, at most one finding a device."""
    found = []
    for device, figures in run.samples.devices.items():
        # What is left at the end of a step is the clearer sign; the peak counts where that one tells nothing.
        for at_peak, column in ((False, figures.in_use_bytes), (True, figures.peak_bytes)):
            rows = _rows(run.samples, column)
            steps, values = run.samples.step[rows], column[rows]
            trend = find_trend(steps, _without_jumps(steps, values, run.layer_tables))
            if trend is not None:
                owner, owner_bytes = _owner(run, device, trend) or (None, None)
                full = _capacity_step(trend, figures.capacity_bytes)
                found.append(Growth(device, at_peak, trend, owner, owner_bytes, full))
                break
    return found


def find_trend(steps: Integers, values: Integers | npt.NDArray[np.float64]) -> Trend | None:
    """The growth of a series, if there is one; `steps` ascending, `values` in bytes, both of equal length."""
    skipped = max(_FIRST_STEPS, int(len(steps) * _FIRST_SHARE))
    steps, values = steps[skipped:], values[skipped:]
    if len(steps) < MIN_STEPS:
        return None
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


def _rows(samples: Samples, column: Integers) -> npt.NDArray[np.intp]:
    """Training rows with a known figure that do not follow another phase."""
    training = samples.phase == PHASES.index("train")
    follows = np.ones(len(samples), np.bool_)
    follows[1:] = samples.phase[1:] == samples.phase[:-1]
    return np.flatnonzero(training & follows & (column != MISSING))


def _without_jumps(steps: Integers, values: Integers, tables: Sequence[LayerTable]) -> npt.NDArray[np.float64]:
    """`values` as if the layer table had never changed: the jump at each change is taken out of what follows."""
    flat = values.astype(np.float64)
    for step in sorted({table.step for table in tables})[:200]:
        at = int(np.searchsorted(steps, step))
        before, after = flat[max(0, at - 5) : at], flat[at + 1 : at + 6]
        if len(before) and len(after):
            flat[at:] -= np.median(after) - np.median(before)
    return flat


def _bucket_medians(
    steps: Integers, values: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], Integers]:
    """First step, median value and last step of each bucket."""
    size = max(1, len(steps) // BUCKETS)
    count = len(steps) // size
    # What does not fill a bucket is at the front, so that the newest steps count.
    steps, values = steps[len(steps) - count * size :], values[len(values) - count * size :]
    by_bucket = steps.reshape(count, size)
    medians = np.median(values.reshape(count, size), axis=1)
    return by_bucket[:, 0].astype(np.float64), medians, by_bucket[:, -1]


def _onset(steps: npt.NDArray[np.float64], values: npt.NDArray[np.float64]) -> int:
    """The bucket from which on a flat line followed by a rising one fits `values` best."""
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
    """The median slope over all pairs (Theil and Sen), and Kendall's tau."""
    first, second = np.triu_indices(len(steps), 1)
    if not len(first):
        return 0.0, 0.0
    rise, run = values[second] - values[first], steps[second] - steps[first]
    return float(np.median(rise / np.maximum(run, 1))), float(np.sign(rise).mean())


def _capacity_step(trend: Trend, capacities: Integers) -> int | None:
    known = capacities[capacities != MISSING]
    if not len(known) or known[-1] <= trend.to_bytes:
        return None
    left = (float(known[-1]) - trend.to_bytes) / trend.bytes_per_step
    span = trend.last_step - trend.since_step
    # Beyond ten times what was seen, a straight line says nothing.
    return trend.last_step + int(left) if left < 10 * span else None


def _owner(run: Run, device: str, trend: Trend) -> tuple[tuple[str | None, str], int] | None:
    """Whose bytes grew most from the growth's first traced step to its last; else whose recorded activations did."""
    taken = [
        snapshot
        for snapshot in run.snapshots
        if snapshot.device == device and snapshot.phase == "train" and snapshot.step >= trend.since_step
    ]
    candidates: dict[tuple[str | None, str], int] = {}
    if len(taken) >= 2 and taken[-1].step > taken[0].step:
        candidates = _differences(_sums(taken[0]), _sums(taken[-1]))
    if not any(size > 0 for size in candidates.values()):
        candidates = _activation_growth(run.activations, trend)
    owner = max(candidates, key=lambda name: candidates[name], default=None)
    return (owner, candidates[owner]) if owner is not None and candidates[owner] > 0 else None


def _sums(snapshot: Snapshot) -> dict[tuple[str | None, str], int]:
    sums: dict[tuple[str | None, str], int] = {}
    for row in snapshot.ledger:
        sums[row.layer, row.category] = sums.get((row.layer, row.category), 0) + row.bytes
    return sums


def _differences(
    first: Mapping[tuple[str | None, str], int], last: Mapping[tuple[str | None, str], int]
) -> dict[tuple[str | None, str], int]:
    return {name: size - first.get(name, 0) for name, size in last.items()}


def _activation_growth(activations: LayerActivations, trend: Trend) -> dict[tuple[str | None, str], int]:
    """Median of each layer's last recorded steps of the growth, less that of its first ones."""
    rows = np.flatnonzero(activations.step >= trend.since_step)
    if len(rows) < 4:
        return {}
    part = min(100, len(rows) // 4)
    first, last = activations.bytes[rows[:part]], activations.bytes[rows[-part:]]
    known = ((first != MISSING) & (last != MISSING)).all(axis=0)
    grown = np.median(last, axis=0) - np.median(first, axis=0)
    return {
        (path, "activations"): int(grown[column]) for column, path in enumerate(activations.layers) if known[column]
    }
