"""Rolls a session up while it is written, in bounded memory.

Samples arrive in columns, a few seconds of steps at a time and off the training's thread, so that a step costs nothing
more than it did.
"""

import copy
import dataclasses
from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tb_memplugin.events.session_spans import MIN_LEVELS, GrowthLevels, SessionSpans, earliest_peak
from tb_memplugin.model import (
    MISSING,
    PHASES,
    DeviceSamples,
    Integers,
    Oom,
    Phase,
    Samples,
    SessionInfo,
    Snapshot,
    take_figures,
)
from tb_memplugin.model.basics import last_known
from tb_memplugin.model.groups import TracedPeak, group_sums
from tb_memplugin.model.rollup import DeviceRollup, PhaseRollup, PoolRollup, Rollup
from tb_memplugin.model.samples import measured_pools, one_row_a_step

MAX_FAILURES = 1000
"""Most failed allocations that are counted."""

_Number = TypeVar("_Number", int, float)
_TRAIN = PHASES.index("train")


class _PhaseFigures:
    """One device in one phase."""

    def __init__(self) -> None:
        self.steps = 0
        # A step's sample with the highest peak counts, so the last step's may still change.
        self.last: tuple[int, int, int, int] | None = None  # step, peak, bytes in use, pool
        self.peak = (MISSING, 0)  # bytes, −step: of equal peaks the earliest counts
        self.in_use_bytes: int | None = None
        self.pool_bytes: int | None = None
        self.sampled_pool: tuple[int, PoolRollup] | None = None  # with the peak of its step
        self.traced_pool: tuple[tuple[int, int], PoolRollup] | None = None
        self.traced: TracedPeak | None = None

    def add(self, steps: Integers, figures: DeviceSamples) -> None:
        peaks = np.maximum(figures.peak_bytes, figures.in_use_bytes)
        known = peaks != MISSING
        if known.any():
            size, step = earliest_peak(peaks[known], steps[known])
            self.peak = max(self.peak, (size, -step))
        rows = one_row_a_step(steps, figures, np.ones(len(steps), bool))
        self._add_steps(steps[rows], figures.peak_bytes[rows], figures.in_use_bytes[rows], figures.pool_bytes[rows])
        self._add_measured(figures)

    def _add_steps(self, steps: Integers, peaks: Integers, in_use: Integers, pools: Integers) -> None:
        """Add rows of different steps."""
        if len(steps) and self.last is not None and steps[0] == self.last[0]:
            begin = 1 if peaks[0] < self.last[1] else 0
            self.last = self.last if begin else None
            self.steps -= 1 - begin
            steps, peaks, in_use, pools = steps[begin:], peaks[begin:], in_use[begin:], pools[begin:]
        if not len(steps):
            return
        self.steps += len(steps)
        self.in_use_bytes, self.pool_bytes = self._last_known()
        self.in_use_bytes = _last(in_use[:-1], self.in_use_bytes)
        self.pool_bytes = _last(pools[:-1], self.pool_bytes)
        self.last = int(steps[-1]), int(peaks[-1]), int(in_use[-1]), int(pools[-1])

    def _last_known(self) -> tuple[int | None, int | None]:
        """The bytes in use and the pool, with those of the last step."""
        _, _, in_use, pool = self.last or (0, 0, MISSING, MISSING)
        return self.in_use_bytes if in_use == MISSING else in_use, self.pool_bytes if pool == MISSING else pool

    def _add_measured(self, figures: DeviceSamples) -> None:
        in_use, pool, largest = figures.in_use_bytes, figures.pool_bytes, figures.largest_free_bytes
        rows = np.flatnonzero(measured_pools(figures))
        if not len(rows):
            return
        row = int(rows[np.argmax(figures.peak_bytes[rows])])
        peak = int(figures.peak_bytes[row])
        if self.sampled_pool is None or peak > self.sampled_pool[0]:
            free = int(pool[row] - in_use[row])
            self.sampled_pool = peak, PoolRollup(free, int(largest[row]), int(pool[row]), None)

    def add_traced(self, traced: TracedPeak) -> None:
        place = traced.peak_bytes, -traced.step
        self.peak = max(self.peak, place)
        if self.traced is None or place > (self.traced.peak_bytes, -self.traced.step):
            self.traced = traced

    def add_traced_pool(self, snapshot: Snapshot) -> None:
        pool = snapshot.pool
        place = snapshot.in_use_bytes, -snapshot.step
        if pool is None or pool.largest_free_bytes is None:
            return
        if self.traced_pool is None or place > self.traced_pool[0]:
            state = PoolRollup(pool.free_bytes, pool.largest_free_bytes, pool.pool_bytes, snapshot.capacity_bytes)
            self.traced_pool = place, state

    def rollup(self) -> PhaseRollup:
        size, step = self.peak
        in_use, pool = self._last_known()
        described = self.traced_pool or self.sampled_pool
        return PhaseRollup(
            steps=self.steps,
            peak_bytes=None if size == MISSING else size,
            peak_step=None if size == MISSING else -step,
            in_use_bytes=in_use,
            pool_bytes=pool,
            pool=None if described is None else described[1],
            traced=self.traced,
        )


class _DeviceFigures:
    def __init__(self) -> None:
        self.capacity_bytes: int | None = None
        self.traced_capacity_bytes: int | None = None
        self.snapshots = 0
        self.phases: dict[Phase, _PhaseFigures] = {}
        # The last two samples of a known size: after a failure, the first may be that of the failed step.
        self.last: list[tuple[int, int, float]] = []  # step, phase, wall time

    def phase(self, phase: Phase) -> _PhaseFigures:
        return self.phases.setdefault(phase, _PhaseFigures())


@dataclasses.dataclass(frozen=True)
class _Failure:
    """What is kept of a failed allocation."""

    oom: Oom
    traced: TracedPeak | None


class SessionRollup:
    """Not thread-safe: the writer of the session owns it."""

    def __init__(self) -> None:
        self._samples = 0
        self._steps: list[int] = []  # first and last, as below
        self._training: list[int] = []
        self._times: list[float] = []
        self._devices: dict[str, _DeviceFigures] = {}
        self._spans = SessionSpans()
        self._levels = GrowthLevels()
        self._last_phase = -1
        self._failures: dict[str, _Failure] = {}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to roll up."""
        return not self._devices

    def add_samples(self, samples: Samples) -> None:
        """Add samples in the order of recording."""
        if not len(samples):
            return
        self._samples += len(samples)
        self._steps = _range([*self._steps, *samples.step.tolist()])
        self._times = _range([*self._times, *samples.wall_time.tolist()])
        for name, figures in samples.devices.items():
            device = self._devices.setdefault(name, _DeviceFigures())
            device.capacity_bytes = _last(figures.capacity_bytes, device.capacity_bytes)
            known = np.flatnonzero(np.maximum(figures.peak_bytes, figures.in_use_bytes) != MISSING)[-2:]
            columns = (samples.step[known].tolist(), samples.phase[known].tolist(), samples.wall_time[known].tolist())
            device.last = [*device.last, *zip(*columns, strict=True)][-2:]
            for at, rows in _phases_of(samples):
                device.phase(PHASES[at]).add(samples.step[rows], take_figures(figures, rows))
        self._spans.add(samples)
        self._add_levels(samples)

    def add_snapshot(self, snapshot: Snapshot) -> None:
        """Add a traced step."""
        device = self._devices.setdefault(snapshot.device, _DeviceFigures())
        device.snapshots += 1
        if snapshot.capacity_bytes is not None:
            device.traced_capacity_bytes = snapshot.capacity_bytes
        phase = device.phase(snapshot.phase)
        phase.add_traced(TracedPeak(snapshot.step, snapshot.in_use_bytes, group_sums(snapshot.ledger)))
        phase.add_traced_pool(snapshot)

    def add_oom(self, oom: Oom) -> None:
        """Add a failed allocation; it replaces an earlier one with the same identifier."""
        known = self._failures.get(oom.identifier)
        if known is None and len(self._failures) >= MAX_FAILURES:
            return
        if known is not None and oom.status == "survived":  # written without the ledger
            self._failures[oom.identifier] = dataclasses.replace(
                known, oom=dataclasses.replace(known.oom, status="survived")
            )
            return
        self._devices.setdefault(oom.device, _DeviceFigures())
        traced = None
        if oom.step is not None and oom.phase is not None and oom.in_use_bytes is not None and oom.ledger:
            # Readers take it for the breakdown of a traced step.
            traced = TracedPeak(oom.step, oom.in_use_bytes, group_sums(oom.ledger))
        # Without what takes much memory.
        kept = dataclasses.replace(oom, ledger=(), map=None, fixes=(), not_available=())
        self._failures[oom.identifier] = _Failure(kept, traced)

    def halve(self) -> bool:
        """Describe the session in about half of the bytes; False if that is not possible."""
        if len(self._levels) >= 2 * MIN_LEVELS:
            return self._levels.halve()
        return self._spans.halve() or self._levels.halve()

    def rollup(self, info: SessionInfo) -> Rollup:
        """What was added so far."""
        names = list(self._devices)
        return Rollup(
            started=info.started,
            ended=info.ended,
            is_recorders=info.producer == "recorder",
            samples=self._samples,
            first_step=self._steps[0] if self._steps else None,
            last_step=self._steps[-1] if self._steps else None,
            first_wall_time=self._times[0] if self._times else None,
            last_wall_time=self._times[-1] if self._times else None,
            first_training_step=self._training[0] if self._training else None,
            last_training_step=self._training[-1] if self._training else None,
            devices=tuple(self._device(name) for name in names),
            spans=self._spans.spans(names),
            levels=self._levels.levels(len(names)),
        )

    def _device(self, name: str) -> DeviceRollup:
        figures = self._devices[name]
        failures = [one for one in self._failures.values() if one.oom.device == name and one.oom.status != "tolerated"]
        ooms = [failure.oom for failure in failures]
        capacities = [figures.capacity_bytes, figures.traced_capacity_bytes, *(oom.capacity_bytes for oom in ooms)]
        known = [(oom.in_use_bytes, oom.step or 0) for oom in ooms if oom.in_use_bytes is not None]
        in_use, step = max(known, default=(None, None))
        return DeviceRollup(
            name=name,
            capacity_bytes=next((size for size in capacities if size is not None), None),
            ooms=len(ooms),
            went_on=_went_on(max(ooms, key=lambda oom: oom.wall_time, default=None), figures.last),
            oom_in_use_bytes=in_use,
            oom_step=step,
            snapshots=figures.snapshots,
            phases={
                phase: of.rollup() for phase in PHASES if (of := _with_failures(figures, phase, failures)) is not None
            },
        )

    def _add_levels(self, samples: Samples) -> None:
        # As in the search for growth, steps after another phase are left out.
        before = np.append(self._last_phase if self._last_phase >= 0 else samples.phase[0], samples.phase[:-1])
        self._last_phase = int(samples.phase[-1])
        training = samples.phase == _TRAIN
        if training.any():
            self._training = _range([*self._training, *samples.step[training].tolist()])
        rows = np.flatnonzero(training & (before == samples.phase))
        if len(rows):
            columns = np.full((len(self._devices), 2, len(rows)), MISSING)
            for at, name in enumerate(self._devices):
                figures = samples.devices.get(name)
                if figures is not None:
                    columns[at] = figures.in_use_bytes[rows], figures.peak_bytes[rows]
            self._levels.add(samples.step[rows], columns)


def _with_failures(device: _DeviceFigures, phase: Phase, failures: Sequence[_Failure]) -> _PhaseFigures | None:
    """The figures of a phase with the breakdowns of its failed steps; None without any."""
    known, added = device.phases.get(phase), [one.traced for one in failures if one.oom.phase == phase and one.traced]
    if not added:
        return known
    figures = copy.copy(known) or _PhaseFigures()
    for traced in added:
        figures.add_traced(traced)
    return figures


def _phases_of(samples: Samples) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """The phases of samples, each with its rows."""
    for at in range(len(PHASES)):
        rows = np.flatnonzero(samples.phase == at)
        if len(rows):
            yield at, rows


def _last(values: Integers, before: int | None) -> int | None:
    """The last known value."""
    known = last_known(values)
    return before if known is None else known


def _range(values: list[_Number]) -> list[_Number]:
    """The lowest and the highest value."""
    return [min(values), max(values)]


def _went_on(oom: Oom | None, last: Sequence[tuple[int, int, float]]) -> bool:
    """Whether steps were recorded after a failure, given the last two samples."""
    if oom is None or not last:
        return False
    step, phase, wall_time = zip(*last, strict=True)
    return len(oom.rows_after(np.asarray(step), np.asarray(phase), np.asarray(wall_time))) > 0
