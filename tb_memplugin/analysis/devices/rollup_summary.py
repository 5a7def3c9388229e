"""A worker's summary from the roll-ups of its sessions, as if its history had been read. Pure."""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from tb_memplugin.analysis.answers.answer_memory import wastes_pool
from tb_memplugin.analysis.answers.status import RunStatus
from tb_memplugin.analysis.devices.worker_summary import DeviceSummary, WorkerSummary
from tb_memplugin.analysis.growth.levelling import trend_between_jumps
from tb_memplugin.analysis.growth.trend import is_long_enough, may_rise
from tb_memplugin.analysis.steps.facts import device_order
from tb_memplugin.model import MISSING, PHASES, Integers, Phase
from tb_memplugin.model.rollup import DeviceRollup, PhaseRollup, Rollup

Steps: TypeAlias = tuple[int, int]
"""First and last of a range."""
_NO_STEPS: Integers = np.empty(0, np.int64)
_TRAIN = PHASES.index("train")


@dataclasses.dataclass(frozen=True)
class _Peak:
    """A highest peak: bytes, and minus its step, since of equal peaks the earliest counts.

    Attributes:
        hidden_bytes: A peak of steps that were partly trained again; whether its own step was is unknown.
    """

    place: tuple[int, int] | None
    hidden_bytes: int = -1


def summarize_rollups(worker: str, rollups: Sequence[Rollup], phase: Phase) -> WorkerSummary | None:
    """Summarize a worker whose sessions have these roll-ups, in order of their start.

    Returns:
        None if the peaks follow only from the history: sessions overlap in time, or a session trained some steps again
        which an earlier one describes together with others. `rows` is None if steps were trained again.
    """
    spans = [(one.first_wall_time or 0.0, one.last_wall_time or 0.0) for one in rollups if one.samples]
    if any(later[0] < earlier[1] for earlier, later in itertools.pairwise(spans)):
        return None
    repeated = _repeated(rollups)
    has_repeats = any(repeated)
    devices = []
    for name in sorted({device.name for one in rollups for device in one.devices}, key=device_order):
        sessions = [
            (one, row, device, again)
            for one, again in zip(rollups, repeated, strict=True)
            for row, device in enumerate(one.devices)
            if device.name == name
        ]
        peak = _peak_of_sessions(sessions, phase)
        if peak.hidden_bytes > (peak.place or (-1, 0))[0]:
            return None
        summary = _summarize(name, [device for _, _, device, _ in sessions], phase, peak, has_repeats)
        if summary is not None:
            devices.append(summary)
    step, wall_time = _span_ends(rollups)
    steps = [step for one in rollups for step in (one.first_step, one.last_step) if step is not None]
    ends = [one.last_wall_time for one in rollups if one.last_wall_time is not None]
    last = rollups[-1] if rollups else None
    return WorkerSummary(
        worker=worker,
        sessions=len(rollups),
        started=max((one.started for one in rollups), default=None),
        ended=None if last is None or not last.is_recorders else last.ended is not None,
        status=_status(rollups),
        rows=None if has_repeats else sum(one.samples for one in rollups),
        step=step,
        wall_time=wall_time,
        first_step=min(steps, default=None),
        last_step=max(steps, default=None),
        last_wall_time=max(ends, default=None),
        devices=tuple(devices),
    )


_Session: TypeAlias = tuple[Rollup, int, DeviceRollup, Sequence[Steps]]
"""A session, the row and the figures of a device in it, and its steps that were trained again."""


def _repeated(rollups: Sequence[Rollup]) -> list[list[Steps]]:
    """The ranges of steps of each session that later ones trained again."""
    trained = [(one.first_training_step, one.last_training_step) for one in rollups]
    return [
        [
            (first, last)
            for first, last in trained[at + 1 :]
            if first is not None and last is not None and _overlaps(one, first, last)
        ]
        for at, one in enumerate(rollups)
    ]


def _overlaps(rollup: Rollup, first: int, last: int) -> bool:
    own_first, own_last = rollup.first_step, rollup.last_step
    return own_first is not None and own_last is not None and first <= own_last and last >= own_first


def _is_in(step: int, ranges: Iterable[Steps]) -> bool:
    return any(first <= step <= last for first, last in ranges)


def _peak_of_sessions(sessions: Sequence[_Session], phase: Phase) -> _Peak:
    present = {known for _, _, device, _ in sessions for known in device.phases}
    main = next((known for known in PHASES if known in present), "train")
    counted = PHASES if phase in ("train", main) else (phase,)
    peaks = [
        _peak_of(one, row, PHASES.index(name), of, again)
        for one, row, device, again in sessions
        for name, of in device.phases.items()
        if name in counted
    ]
    places = [peak.place for peak in peaks if peak.place is not None]
    return _Peak(max(places, default=None), max((peak.hidden_bytes for peak in peaks), default=-1))


def _peak_of(rollup: Rollup, row: int, phase: int, of: PhaseRollup, again: Sequence[Steps]) -> _Peak:
    """The highest peak of a phase without the steps that were trained again."""
    if of.peak_bytes is None or of.peak_step is None:
        return _Peak(None)
    if not _is_in(of.peak_step, again):
        return _Peak((of.peak_bytes, -of.peak_step))
    places, hidden = [], -1
    if of.traced is not None and not _is_in(of.traced.step, again):
        places.append((of.traced.peak_bytes, -of.traced.step))
    spans = rollup.spans
    for at in np.flatnonzero((spans.phase == phase) & (spans.peak_bytes[row] != MISSING)).tolist():
        size, step = int(spans.peak_bytes[row, at]), int(spans.peak_step[row, at])
        if not _is_in(step, again):
            places.append((size, -step))
        elif not any(first <= spans.first_step[at] and spans.last_step[at] <= last for first, last in again):
            hidden = max(hidden, size)
    return _Peak(max(places, default=None), hidden)


def _summarize(
    name: str,
    sessions: Sequence[DeviceRollup],
    phase: Phase,
    peak: _Peak,
    has_repeats: bool,
) -> DeviceSummary | None:
    """The summary, None if the peak is unknown."""
    size, step = (None, None) if peak.place is None else (peak.place[0], -peak.place[1])
    if size is None and phase == "train":
        known = [(one.oom_in_use_bytes, one.oom_step or 0) for one in sessions if one.oom_in_use_bytes is not None]
        size, step = max(known, default=(None, None))
    if size is None or step is None:
        return None
    of_phase = [one.phases[phase] for one in sessions if phase in one.phases]
    traced = [one.traced for one in of_phase if one.traced is not None]
    # Those of steps that a later session trained again are replaced.
    shown = traced[-1:] if has_repeats else traced
    return DeviceSummary(
        name=name,
        peak_bytes=size,
        peak_step=step,
        capacity_bytes=_last(one.capacity_bytes for one in sessions),
        last_in_use_bytes=_last(one.in_use_bytes for one in of_phase),
        pool_bytes=_last(one.pool_bytes for one in of_phase),
        rows=None if has_repeats else sum(one.steps for one in of_phase),
        step=_NO_STEPS,
        step_peak_bytes=_NO_STEPS,
        step_in_use_bytes=_NO_STEPS,
        traced=tuple(shown),
        ooms=sum(one.ooms for one in sessions),
    )


def _last(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return known[-1] if known else None


def _span_ends(rollups: Sequence[Rollup]) -> tuple[Integers, np.typing.NDArray[np.float64]]:
    """Last step and time of each span of training steps, each step once."""
    rows = [np.flatnonzero(one.spans.phase == _TRAIN) for one in rollups]
    steps = [one.spans.last_step[of] for one, of in zip(rollups, rows, strict=True)]
    times = [one.spans.last_wall_time[of] for one, of in zip(rollups, rows, strict=True)]
    if not steps:
        return _NO_STEPS, np.empty(0, np.float64)
    # A step that was trained again ended when its last session says.
    different, last = np.unique(np.concatenate(steps)[::-1], return_index=True)
    return different, np.concatenate(times)[::-1][last]


def _status(rollups: Sequence[Rollup]) -> RunStatus:
    devices = [device for one in rollups for device in one.devices]
    if any(_has_failed([one for one in devices if one.name == name]) for name in {one.name for one in devices}):
        return "failed"
    if _grows(rollups):
        return "growing"
    if any(_is_fragmented(device) for device in devices):
        return "fragmented"
    return "ok" if devices else "unknown"


def _has_failed(sessions: Sequence[DeviceRollup]) -> bool:
    """Whether no step followed the newest failed allocation of a device, in its own session or in a later one."""
    failed = False
    for session in sessions:
        if session.ooms:
            failed = not session.went_on
        elif any(of.peak_bytes is not None for of in session.phases.values()):
            failed = False
    return failed


def _grows(rollups: Sequence[Rollup]) -> bool:
    """Whether the memory of a device grows, in the last session with enough levels for a trend."""
    last = next((one for one in reversed(rollups) if is_long_enough(len(one.levels.step))), None)
    if last is None:
        return False
    steps = last.levels.step
    return any(
        _rises(steps, table[row])
        for table in (last.levels.in_use_bytes, last.levels.peak_bytes)
        for row in np.flatnonzero(may_rise(table)).tolist()
    )


def _rises(steps: Integers, values: Integers) -> bool:
    known = values != MISSING
    return trend_between_jumps(steps[known], values[known], ()) is not None


def _is_fragmented(device: DeviceRollup) -> bool:
    of = next((device.phases[phase] for phase in PHASES if phase in device.phases), None)
    if of is None or of.pool is None:
        return False
    capacity = of.pool.capacity_bytes if of.pool.capacity_bytes is not None else device.capacity_bytes
    return wastes_pool(of.pool.free_bytes, of.pool.largest_free_bytes, of.pool.pool_bytes, capacity)
