"""The highest peak of each device in each phase on each day. Pure."""

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np

from tb_memplugin.analysis.steps.facts import capacity_of, device_names, highest_peak
from tb_memplugin.model import MISSING, PHASES, Floats, Integers, Phase, Run, take_samples

DAY_SECONDS = 86_400
_MAX_DAYS = 3_000_000
"""Days after 1970 that a calendar has."""


def daily_peaks(run: Run) -> list[dict[str, Any]]:
    """The rows of the table ``peaks`` of one worker, with times in seconds since the epoch."""
    return [record for device in device_names(run) for record in _of_device(run, device)]


def _of_device(run: Run, device: str) -> Iterable[dict[str, Any]]:
    figures = run.samples.devices.get(device)
    # Only this device's figures and rows: other rows are those of steps that it did not record.
    samples = dataclasses.replace(run.samples, devices={} if figures is None else {device: figures})
    known = np.zeros(len(samples), np.bool_)
    if figures is not None:
        known = (figures.in_use_bytes != MISSING) | (figures.peak_bytes != MISSING)
    samples = take_samples(samples, known)
    snapshots = [one for one in run.snapshots if one.device == device]
    days = _days(samples.wall_time)
    days_of_snapshots = _days(np.asarray([one.wall_time for one in snapshots], np.float64)).tolist()
    for number, phase in enumerate(PHASES):
        for day in sorted({*np.unique(days[samples.phase == number]).tolist(), *days_of_snapshots}):
            part = dataclasses.replace(
                run,
                samples=take_samples(samples, (days == day) & (samples.phase == number)),
                snapshots=tuple(
                    one
                    for one, of in zip(snapshots, days_of_snapshots, strict=True)
                    if of == day and one.phase == phase
                ),
            )
            record = _record(part, device, phase)
            if record is not None:
                yield record | {"day": float("nan") if day == MISSING else float(day * DAY_SECONDS)}


def _record(run: Run, device: str, phase: Phase) -> dict[str, Any] | None:
    """The row of a run that has only one device, phase and day."""
    peak = highest_peak(run, device, phase)
    if peak is None:
        return None
    steps = [*run.samples.step.tolist(), *(one.step for one in run.snapshots)]
    times = [*run.samples.wall_time.tolist(), *(one.wall_time for one in run.snapshots)]
    return {
        "device": device,
        "phase": phase,
        "peak_bytes": peak.bytes,
        "at_step_end": peak.at_step_end,
        "step": peak.step,
        "wall_time": times[steps.index(peak.step)],
        "capacity_bytes": capacity_of(run, device),
        "samples": len(run.samples),
        "snapshots": sum(not one.at_failure for one in run.snapshots),
        "last_step": max(steps),
        "last_time": max(times),
    }


def _days(seconds: Floats) -> Integers:
    """Days since 1970, in UTC; `MISSING` for impossible times."""
    days = np.floor(seconds / DAY_SECONDS)
    known = np.isfinite(days) & (days >= 0) & (days < _MAX_DAYS)
    return np.where(known, np.where(known, days, 0).astype(np.int64), MISSING)
