"""All devices and workers of a run side by side. Pure; ``server/http_api.md`` describes the answer."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tb_memplugin.analysis.facts import most_loaded, natural_order, of_one_kind
from tb_memplugin.analysis.worker_summary import summarize_worker
from tb_memplugin.schema import (
    MISSING,
    NO_STEPS,
    DeviceSummary,
    Phase,
    Run,
    WorkerSummary,
    as_json,
    distinct,
    extreme_rows,
    format_bytes,
    full_device_name,
    optional_values,
    values_of,
)

SILENT_SECONDS = 60.0
"""A worker that the others outlast by this much has stopped; it writes what it recorded every few seconds, or every 45
seconds to a remote file system."""
MAX_POINTS = 1000
"""Most rows of the series over steps."""
MIN_COMMON_STEPS = 3
"""Fewest common steps that tell the offset of a clock."""


def clock_offset(first: WorkerSummary, other: WorkerSummary) -> float | None:
    """Seconds by which the clock of `other` is ahead of that of `first`.

    It is the median difference of the times at which both ended the same training step. None if they have too few
    steps in common, or did not train in step: the differences then vary by more than the time of a step.
    """
    if np.array_equal(first.step, other.step):  # as usual
        times, of_other = first.wall_time, other.wall_time
    else:
        _, rows, rows_of_other = np.intersect1d(first.step, other.step, assume_unique=True, return_indices=True)
        times, of_other = first.wall_time[rows], other.wall_time[rows_of_other]
    if len(times) < MIN_COMMON_STEPS:
        return None
    differences = of_other - times
    offset = float(np.median(differences))
    spread = float(np.median(np.abs(differences - offset)))
    return offset if spread <= float(np.median(np.abs(np.diff(times)))) else None


def early_stops(workers: Sequence[WorkerSummary], offsets: Sequence[float | None]) -> list[str | None]:
    """A sentence on each worker that did not say that it ended while others went on without it.

    Others went on if they recorded later steps, and have ended or recorded until long after the worker's last record.
    """
    times = [worker.started if worker.last_wall_time is None else worker.last_wall_time for worker in workers]
    # Of each worker's last record, by the first worker's clock as far as that is known.
    ends = [-np.inf if at is None else at - (offset or 0.0) for at, offset in zip(times, offsets, strict=True)]
    last_step = max((worker.last_step for worker in workers if worker.last_step is not None), default=-1)
    all_others_ended = sum(not worker.ended for worker in workers) == 1
    latest = max(ends, default=-np.inf)
    rest = "the other went on" if len(workers) == 2 else "the others went on"
    stops: list[str | None] = []
    for worker, end in zip(workers, ends, strict=True):
        is_behind = last_step > (-1 if worker.last_step is None else worker.last_step)
        is_silent = all_others_ended or latest - end >= SILENT_SECONDS
        recorded = "no step" if worker.last_step is None else f"nothing after step {worker.last_step}"
        sentence = f"{worker.worker or 'The worker without a name'} recorded {recorded}; {rest} to step {last_step}"
        stops.append(sentence if worker.ended is False and is_behind and is_silent else None)
    return stops


def describe_devices(by_worker: Mapping[str, Run], phase: Phase) -> dict[str, Any]:
    """The devices of all workers, each with the run in which they have their own names, as a JSON object."""
    return combine([summarize_worker(worker, run, [phase]) for worker, run in by_worker.items()], phase)


def combine(workers: Sequence[WorkerSummary], phase: Phase, with_steps: bool = True) -> dict[str, Any]:
    """The devices of summarized workers as a JSON object, without the run's name."""
    workers = sorted(workers, key=lambda worker: natural_order(worker.worker))
    devices = {
        full_device_name(worker.worker, device.name): (worker, device)
        for worker in workers
        for device in worker.devices
        if device.phase == phase
    }
    aligned = _aligned_step([device for _, device in devices.values()])
    comparable = [devices[name][1] for name in of_one_kind(devices)]
    return {
        "phase": phase,
        "workers": _workers(workers),
        "devices": [_device(name, worker, device, aligned) for name, (worker, device) in devices.items()],
        "most_loaded": most_loaded(
            {name: (device.peak_bytes, device.capacity_bytes) for name, (_, device) in devices.items()}
        ),
        "imbalance": _imbalance({name: device.peak_bytes for name, (_, device) in devices.items()}),
        "sum_peak_bytes": sum(device.peak_bytes for device in comparable),
        "steps": _steps(comparable if with_steps else []),
    }


def _workers(workers: Sequence[WorkerSummary]) -> list[dict[str, Any]]:
    offsets = [0.0 if not at else clock_offset(workers[0], worker) for at, worker in enumerate(workers)]
    stops = early_stops(workers, offsets)
    return [
        {
            **values_of(worker, "worker", "sessions", "first_step", "last_step", "rows"),
            "ended": worker.ended is True,
            "last_wall_time": worker.last_wall_time,
            "status": worker.status,
            "stopped_early": stops[at],
            "clock_offset_seconds": offsets[at],
        }
        for at, worker in enumerate(workers)
    ]


def _device(name: str, worker: WorkerSummary, device: DeviceSummary, aligned: int | None) -> dict[str, Any]:
    """A row, with the breakdown of the traced step that all devices share, or of the device's highest traced peak."""
    highest = max(device.traced, key=lambda one: one.peak_bytes, default=None)
    traced = next((one for one in device.traced if one.step == aligned), highest)
    return {
        "device": name,
        "worker": worker.worker,
        **values_of(device, "name", "capacity_bytes", "peak_bytes", "peak_step"),
        **values_of(device, "last_in_use_bytes", "headroom_bytes", "pool_bytes", "rows"),
        "breakdown": as_json(traced),
        "ooms": device.ooms,
    }


def _aligned_step(devices: Sequence[DeviceSummary]) -> int | None:
    """The step that all devices with traced steps traced, of several the one with the highest peak."""
    peaks = [{one.step: one.peak_bytes for one in device.traced} for device in devices if device.traced]
    common = set(peaks[0]).intersection(*peaks[1:]) if peaks else set()
    return max(common, key=lambda step: (max(of_device[step] for of_device in peaks), -step), default=None)


def _imbalance(peaks: Mapping[str, int]) -> dict[str, Any] | None:
    names = of_one_kind(peaks)
    if len(names) < 2:
        return None
    largest, smallest = max(names, key=lambda name: peaks[name]), min(names, key=lambda name: peaks[name])
    difference = peaks[largest] - peaks[smallest]
    if difference:
        sentence = (
            f"{largest} peaks at {format_bytes(peaks[largest])}, {format_bytes(difference)} more than {smallest} "
            f"at {format_bytes(peaks[smallest])}"
        )
    else:
        sentence = f"All {len(names)} devices peak at {format_bytes(peaks[largest])}"
    return {"largest": largest, "smallest": smallest, "bytes": difference, "sentence": sentence}


def _steps(devices: Sequence[DeviceSummary]) -> dict[str, Any]:
    """Figures of all devices at each step, reduced to `MAX_POINTS` rows that include the extremes.

    The sum is that of the bytes in use at step end, which are measured at the same moment of the step; it is unknown at
    steps that a device lacks.
    """
    steps = NO_STEPS
    for device in devices:
        if not np.array_equal(device.step, steps):
            steps = distinct(steps, device.step)
    highest, lowest = np.full(len(steps), MISSING), np.full(len(steps), np.iinfo(np.int64).max)
    total, known = np.zeros(len(steps), np.int64), np.zeros(len(steps), np.int64)
    for device in devices:
        rows = slice(None) if np.array_equal(device.step, steps) else np.searchsorted(steps, device.step)
        peaks = np.maximum(device.step_peak_bytes, device.step_in_use_bytes)
        highest[rows] = np.maximum(highest[rows], peaks)
        lowest[rows] = np.minimum(lowest[rows], np.where(peaks == MISSING, lowest[rows], peaks))
        has = device.step_in_use_bytes != MISSING
        total[rows] += np.where(has, device.step_in_use_bytes, 0)
        known[rows] += has
    lowest[highest == MISSING] = MISSING
    recorded = sum(len(device.step) > 0 for device in devices)
    total[known < max(recorded, 1)] = MISSING
    rows = extreme_rows([highest, lowest, total], MAX_POINTS) if len(steps) else np.empty(0, np.intp)
    sums = optional_values(total[rows])
    return {
        "step": steps[rows].tolist(),
        "max_peak_bytes": optional_values(highest[rows]),
        "min_peak_bytes": optional_values(lowest[rows]),
        "sum_in_use_bytes": sums if any(size is not None for size in sums) else None,
    }
