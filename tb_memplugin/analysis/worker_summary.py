"""What the list of workers shows of one, from its history or from the summaries of its sessions. Pure."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tb_memplugin.analysis.answer_memory import run_status
from tb_memplugin.analysis.device_growth import find_growth
from tb_memplugin.analysis.facts import capacity_of, device_names, fitting_peak
from tb_memplugin.analysis.step_rows import phase_steps, snapshots_of
from tb_memplugin.schema import (
    NO_STEPS,
    PHASES,
    DeviceSamples,
    DeviceSummary,
    GroupBytes,
    Integers,
    Phase,
    Run,
    TracedPeak,
    WorkerSummary,
    group_sums,
    last_known,
)

_STEP_BYTES, _TOGETHER_BYTES, _DEVICE_STEP_BYTES = 16, 40, 16
"""Estimated bytes per step: per worker, in the combined series, and per device."""
_IF_KNOWN = ("capacity_bytes", "last_in_use_bytes", "pool_bytes")


def series_bytes(run: Run, known_steps: Integers) -> int:
    """Most bytes that the series of a worker take in its summary, and those of all workers together at its steps.

    `known_steps` are those of another worker, which are put together with equal ones.
    """
    steps = run.samples.step
    together = 0 if np.array_equal(steps, known_steps) else _TOGETHER_BYTES
    return len(steps) * (_STEP_BYTES + together + _DEVICE_STEP_BYTES * len(run.samples.devices))


def summarize_session(run: Run) -> WorkerSummary:
    """The summary that a recorder stores of its session."""
    return summarize_worker("", run, PHASES, with_steps=False)


def summarize_worker(worker: str, run: Run, phases: Sequence[Phase], with_steps: bool = True) -> WorkerSummary:
    """Summarize the run of one worker; its devices have their own names."""
    samples = run.samples
    training = np.flatnonzero(samples.phase == PHASES.index("train"))
    if not with_steps:
        training = training[:0]
    # A step that was recorded twice ended when its last row says.
    steps, last_rows = np.unique(samples.step[training][::-1], return_index=True)
    devices = (
        _summarize_device(run, name, phase, steps if with_steps else None)
        for name in device_names(run)
        for phase in phases
    )
    return WorkerSummary(
        worker=worker,
        sessions=len(run.sessions),
        started=max(run.session_starts, default=None),
        ended=run.ended,
        status=run_status(run, grows=bool(find_growth(run))),
        first_step=int(samples.step.min()) if len(samples) else None,
        last_step=int(samples.step.max()) if len(samples) else None,
        last_wall_time=float(samples.wall_time.max()) if len(samples) else None,
        devices=tuple(device for device in devices if device is not None),
        rows=len(samples),
        step=steps,
        wall_time=samples.wall_time[training][::-1][last_rows],
    )


def of_sessions(worker: str, sessions: Sequence[WorkerSummary]) -> WorkerSummary:
    """The summary of a worker whose sessions have these, in order of their start.

    The peaks are the highest of all sessions, also at steps that a later one trained again; the status is that of the
    last session with records.
    """
    devices: dict[tuple[str, Phase], DeviceSummary] = {}
    for session in sessions:
        for device in session.devices:
            key = device.name, device.phase
            devices[key] = _later(devices[key], device) if key in devices else device
    return WorkerSummary(
        worker=worker,
        sessions=len(sessions),
        started=sessions[-1].started if sessions else None,
        ended=sessions[-1].ended if sessions else None,
        status=next((one.status for one in reversed(sessions) if one.status != "unknown"), "unknown"),
        first_step=min((one.first_step for one in sessions if one.first_step is not None), default=None),
        last_step=max((one.last_step for one in sessions if one.last_step is not None), default=None),
        last_wall_time=max((one.last_wall_time for one in sessions if one.last_wall_time is not None), default=None),
        devices=tuple(devices.values()),
    )


def _later(before: DeviceSummary, after: DeviceSummary) -> DeviceSummary:
    """A device of two sessions, from its summaries in both."""
    highest = max(before, after, key=lambda one: (one.peak_bytes, -one.peak_step))
    earlier = {name: getattr(before, name) for name in _IF_KNOWN if getattr(after, name) is None}
    return dataclasses.replace(
        after,
        peak_bytes=highest.peak_bytes,
        peak_step=highest.peak_step,
        ooms=before.ooms + after.ooms,
        snapshots=before.snapshots + after.snapshots,
        traced=(*before.traced, *after.traced),
        **earlier,
    )


def _summarize_device(run: Run, device: str, phase: Phase, steps: Integers | None) -> DeviceSummary | None:
    """The summary, None if the peak is unknown.

    `steps` are those of the worker, whose array a device with the same steps shares; None for a summary without steps.
    """
    figures = run.samples.devices.get(device)
    if figures is not None:
        # The same object for all that follows: its columns are widened when they are first read.
        run = dataclasses.replace(run, samples=dataclasses.replace(run.samples, devices={device: figures}))
    ooms = [oom for oom in run.ooms if oom.device == device]
    peak = fitting_peak(run, device, phase)
    size, step = (None, None) if peak is None else (peak.bytes, peak.step)
    if size is None and phase == "train":
        # It failed before its first sample: its bytes in use then are the least that its peak can be.
        known = [(oom.in_use_bytes, oom.step or 0) for oom in ooms if oom.in_use_bytes is not None]
        size, step = max(known, default=(None, None))
    if size is None or step is None:
        return None
    rows = phase_steps(run.samples, figures, phase)
    shown = rows if steps is not None else rows[:0]
    own_steps = run.samples.step[shown]
    # A step's last snapshot has the most bytes in use.
    traced = {
        one.step: TracedPeak(
            one.step,
            one.in_use_bytes,
            tuple(GroupBytes(*group, size) for group, size in group_sums(one.ledger).items()),
        )
        for one in snapshots_of(run, device, phase)
    }
    return DeviceSummary(
        name=device,
        phase=phase,
        peak_bytes=size,
        peak_step=step,
        capacity_bytes=capacity_of(run, device),
        last_in_use_bytes=last_known(_column(figures, "in_use_bytes", rows)),
        pool_bytes=last_known(_column(figures, "pool_bytes", rows)),
        ooms=len(ooms),
        snapshots=sum(one.device == device and not one.at_failure for one in run.snapshots),
        traced=tuple(traced.values()),
        rows=len(rows),
        step=steps if steps is not None and np.array_equal(own_steps, steps) else own_steps,
        step_peak_bytes=_column(figures, "peak_bytes", shown),
        step_in_use_bytes=_column(figures, "in_use_bytes", shown),
    )


def _column(figures: DeviceSamples | None, field: str, rows: npt.NDArray[np.intp]) -> Integers:
    values: Integers = NO_STEPS if figures is None else getattr(figures, field)[rows]
    return values
