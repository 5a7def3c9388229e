"""What the list of workers shows of one, from its history or from the summaries of its sessions;
and all devices and workers of a run side by side. Pure; ``server/http_api.md`` describes the
answer."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tb_memplugin.analysis.answer import run_status
from tb_memplugin.analysis.composition import phase_steps, snapshots_of
from tb_memplugin.analysis.facts import (
    capacity_of,
    comparable,
    device_names,
    fitting_peak,
    most_loaded,
    natural_order,
)
from tb_memplugin.analysis.growth import growth_of
from tb_memplugin.schema import (
    MISSING,
    NO_STEPS,
    PHASES,
    DeviceSummary,
    GroupBytes,
    Integers,
    Phase,
    Run,
    RunStatus,
    TracedPeak,
    WorkerSummary,
    as_json,
    distinct,
    extreme_rows,
    format_bytes,
    full_device_name,
    group_sums,
    known_values,
    last_known,
    optional_values,
    record_of,
    sums_by,
)

# Estimated bytes per step: per worker, in the combined series, and per device.
_STEP_BYTES, _TOGETHER_BYTES, _DEVICE_STEP_BYTES = 16, 40, 16
_IF_KNOWN = ("capacity_bytes", "last_in_use_bytes", "pool_bytes")


def series_bytes(run: Run, known_steps: Integers) -> int:
    """Most bytes that a worker's series take in its summary, and those of all together at its
    steps, if not known."""
    steps = run.samples.step
    together = 0 if np.array_equal(steps, known_steps) else _TOGETHER_BYTES
    return len(steps) * (_STEP_BYTES + together + _DEVICE_STEP_BYTES * len(run.samples.devices))


def summarize_session(run: Run) -> WorkerSummary:
    """The summary that a recorder stores of its session."""
    return summarize_worker("", run, PHASES, with_steps=False)


def summarize_worker(
    worker: str, run: Run, phases: Sequence[Phase], with_steps: bool = True
) -> WorkerSummary:
    """Summarize the run of one worker; its devices have their own names."""
    samples = run.samples
    training = np.flatnonzero(samples.is_of("train") & with_steps)
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
        status=run_status(
            run, grows=any(growth_of(run, device) is not None for device in samples.devices)
        ),
        first_step=int(samples.step.min()) if len(samples) else None,
        last_step=int(samples.step.max()) if len(samples) else None,
        last_wall_time=float(samples.wall_time.max()) if len(samples) else None,
        devices=tuple(device for device in devices if device is not None),
        rows=len(samples),
        step=steps,
        wall_time=samples.wall_time[training][::-1][last_rows],
    )


def of_sessions(worker: str, sessions: Sequence[WorkerSummary]) -> WorkerSummary:
    """The summary of a worker whose sessions have these, in order of their start: peaks are the
    highest of all, also at steps that a later one trained again; the status is that of the last
    session with records."""
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
        status=next(
            (one.status for one in reversed(sessions) if one.status != "unknown"), "unknown"
        ),
        first_step=min(known_values(sessions, "first_step"), default=None),
        last_step=max(known_values(sessions, "last_step"), default=None),
        last_wall_time=max(known_values(sessions, "last_wall_time"), default=None),
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


def _summarize_device(
    run: Run, device: str, phase: Phase, steps: Integers | None
) -> DeviceSummary | None:
    """The summary, None if the peak is unknown. `steps` are those of the worker, whose array a
    device with the same steps shares; None for a summary without steps."""
    # The same object for all that follows: its columns are widened when they are first read.
    figures = run.samples.of(device)
    samples = dataclasses.replace(run.samples, devices={device: figures})
    run = dataclasses.replace(run, samples=samples)
    ooms = [oom for oom in run.ooms if oom.device == device]
    peak = fitting_peak(run, device, phase)
    size, step = (None, None) if peak is None else (peak.bytes, peak.step)
    if size is None and phase == "train":
        # It failed before its first sample: its bytes in use then are the least that its peak can
        # be.
        known = [(oom.in_use_bytes, oom.step or 0) for oom in ooms if oom.in_use_bytes is not None]
        size, step = max(known, default=(None, None))
    if size is None or step is None:
        return None

    rows = phase_steps(run, device, phase)
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
        last_in_use_bytes=last_known(figures.in_use_bytes[rows]),
        pool_bytes=last_known(figures.pool_bytes[rows]),
        ooms=len(ooms),
        snapshots=sum(one.device == device and not one.at_failure for one in run.snapshots),
        traced=tuple(traced.values()),
        rows=len(rows),
        step=steps if steps is not None and np.array_equal(own_steps, steps) else own_steps,
        step_peak_bytes=figures.peak_bytes[shown],
        step_in_use_bytes=figures.in_use_bytes[shown],
    )


SILENT_SECONDS = 60.0
"""A worker that the others outlast by this much has stopped; it writes what it recorded every few
seconds, or every 45 seconds to a remote file system."""
MAX_POINTS = 1000  # most rows of the series over steps
MIN_COMMON_STEPS = 3  # fewest common steps that tell the offset of a clock


def clock_offset(first: WorkerSummary, other: WorkerSummary) -> float | None:
    """Seconds by which the clock of `other` is ahead of that of `first`.

    It is the median difference of the times at which both ended the same training step; None if
    they have too few steps in common, or did not train in step: the differences then vary by more
    than the time of a step."""
    if np.array_equal(first.step, other.step):  # as usual
        times, of_other = first.wall_time, other.wall_time
    else:
        _, rows, rows_of_other = np.intersect1d(
            first.step, other.step, assume_unique=True, return_indices=True
        )
        times, of_other = first.wall_time[rows], other.wall_time[rows_of_other]
    if len(times) < MIN_COMMON_STEPS:
        return None
    differences = of_other - times
    offset = float(np.median(differences))
    spread = float(np.median(np.abs(differences - offset)))
    return offset if spread <= float(np.median(np.abs(np.diff(times)))) else None


def early_stops(
    workers: Sequence[WorkerSummary], offsets: Sequence[float | None]
) -> list[str | None]:
    """A sentence on each worker that did not say that it ended while others went on: they recorded
    later steps, and have ended or recorded until long after the worker's last record."""
    # The time of each worker's last record, by the first worker's clock if the offset is known.
    ends = []
    for worker, offset in zip(workers, offsets, strict=True):
        at = worker.started if worker.last_wall_time is None else worker.last_wall_time
        ends.append(-np.inf if at is None else at - (offset or 0.0))
    last_step = max(known_values(workers, "last_step"), default=-1)
    all_others_ended = sum(not worker.ended for worker in workers) == 1
    latest = max(ends, default=-np.inf)
    rest = "the other went on" if len(workers) == 2 else "the others went on"
    stops: list[str | None] = []
    for worker, end in zip(workers, ends, strict=True):
        own, recorded = worker.last_step, f"nothing after step {worker.last_step}"
        if own is None:
            own, recorded = -1, "no step"
        is_behind = own < last_step
        is_silent = all_others_ended or latest - end >= SILENT_SECONDS
        name = worker.worker or "The worker without a name"
        sentence = f"{name} recorded {recorded}; {rest} to step {last_step}"
        stops.append(sentence if worker.ended is False and is_behind and is_silent else None)
    return stops


@dataclasses.dataclass(frozen=True)
class WorkerInfo:
    """A worker beside the others: `stopped_early` is a sentence, the offset that of its clock to
    the first worker's."""

    worker: str
    sessions: int
    first_step: int | None
    last_step: int | None
    last_wall_time: float | None
    status: RunStatus
    ended: bool | None
    rows: int | None
    stopped_early: str | None
    clock_offset_seconds: float | None


@dataclasses.dataclass(frozen=True)
class DeviceRow:
    """A device beside the others: `name` is that in its worker's run, `breakdown` that of the step
    that all devices traced, or else of its highest traced peak."""

    name: str
    peak_bytes: int
    peak_step: int
    last_in_use_bytes: int | None
    capacity_bytes: int | None
    pool_bytes: int | None
    rows: int | None
    ooms: int
    device: str
    worker: str
    headroom_bytes: int | None
    breakdown: TracedPeak | None


@dataclasses.dataclass(frozen=True)
class Imbalance:
    """The devices with the highest and the lowest peak, and their difference."""

    largest: str
    smallest: str
    bytes: int
    sentence: str


@dataclasses.dataclass(frozen=True)
class ComparedSteps:
    """Figures of all devices at each step, reduced to `MAX_POINTS` rows that include the extremes.
    The sum is that of the bytes in use at step end, measured at the same moment of the step, and
    unknown at steps that a device lacks."""

    step: Sequence[int]
    max_peak_bytes: Sequence[int | None]
    min_peak_bytes: Sequence[int | None]
    sum_in_use_bytes: Sequence[int | None] | None


@dataclasses.dataclass(frozen=True)
class ComparedDevices:
    """All devices and workers of a run side by side."""

    phase: Phase
    workers: Sequence[WorkerInfo]
    devices: Sequence[DeviceRow]
    most_loaded: str | None
    imbalance: Imbalance | None
    sum_peak_bytes: int
    steps: ComparedSteps


def describe_devices(by_worker: Mapping[str, Run], phase: Phase) -> dict[str, Any]:
    """The devices of all workers, each with the run in which they have their own names, as a JSON
    object."""
    workers = [summarize_worker(worker, run, [phase]) for worker, run in by_worker.items()]
    described: dict[str, Any] = as_json(combine(workers, phase))
    return described


def combine(
    workers: Sequence[WorkerSummary], phase: Phase, with_steps: bool = True
) -> ComparedDevices:
    """Compare the devices of summarized workers."""
    workers = sorted(workers, key=lambda worker: natural_order(worker.worker))
    devices = {
        full_device_name(worker.worker, device.name): (worker, device)
        for worker in workers
        for device in worker.devices
        if device.phase == phase
    }
    offsets = [
        0.0 if not at else clock_offset(workers[0], worker) for at, worker in enumerate(workers)
    ]
    stops = early_stops(workers, offsets)
    # The step that all devices with traced steps traced, of several the one with the highest peak.
    traced = [
        {one.step: one for one in device.traced} for _, device in devices.values() if device.traced
    ]
    common = set(traced[0]).intersection(*traced[1:]) if traced else set()
    aligned = max(
        common, key=lambda step: (max(own[step].peak_bytes for own in traced), -step), default=None
    )

    def breakdown(device: DeviceSummary) -> TracedPeak | None:
        return max(
            device.traced, key=lambda one: (one.step == aligned, one.peak_bytes), default=None
        )

    alike = {name: devices[name][1] for name in comparable(devices)}
    return ComparedDevices(
        phase,
        workers=[
            record_of(
                WorkerInfo,
                worker,
                ended=worker.ended is True,
                stopped_early=stop,
                clock_offset_seconds=offset,
            )
            for worker, offset, stop in zip(workers, offsets, stops, strict=True)
        ],
        devices=[
            record_of(
                DeviceRow, device, device=name, worker=worker.worker, breakdown=breakdown(device)
            )
            for name, (worker, device) in devices.items()
        ],
        most_loaded=most_loaded(
            {name: (one.peak_bytes, one.capacity_bytes) for name, (_, one) in devices.items()}
        ),
        imbalance=_imbalance(
            {name: device.peak_bytes for name, device in alike.items()},
            {name: breakdown(device) for name, device in alike.items()},
        ),
        sum_peak_bytes=sum(device.peak_bytes for device in alike.values()),
        steps=_steps([*alike.values()] if with_steps else []),
    )


def _imbalance(
    peaks: Mapping[str, int], breakdowns: Mapping[str, TracedPeak | None]
) -> Imbalance | None:
    if len(peaks) < 2:
        return None
    largest, smallest = max(peaks, key=peaks.__getitem__), min(peaks, key=peaks.__getitem__)
    difference = peaks[largest] - peaks[smallest]
    highest = format_bytes(peaks[largest])
    sentence = f"All {len(peaks)} devices peak at {highest}"
    if difference:
        more = f"{format_bytes(difference)} more than {smallest}"
        sentence = f"{largest} peaks at {highest}, {more} at {format_bytes(peaks[smallest])}"
        sentence += _mostly(breakdowns[largest], breakdowns[smallest])
    return Imbalance(largest, smallest, difference, sentence)


def _mostly(larger: TracedPeak | None, smaller: TracedPeak | None) -> str:
    """The category in which two devices differ most in a step that both traced."""
    if larger is None or smaller is None or larger.step != smaller.step:
        return ""
    more = sums_by(larger.parts, lambda part: part.category)
    more.subtract(sums_by(smaller.parts, lambda part: part.category))
    ((category, size),) = more.most_common(1)
    name = category.replace("_", " ")
    where = f"; in step {larger.step:,} they differ most in {name}"
    return f"{where}, {format_bytes(size)} more" if size > 0 else ""


def _steps(devices: Sequence[DeviceSummary]) -> ComparedSteps:
    steps = NO_STEPS
    for device in devices:
        if not np.array_equal(device.step, steps):
            steps = distinct(steps, device.step)
    highest, lowest = np.full(len(steps), MISSING), np.full(len(steps), np.iinfo(np.int64).max)
    total, known = np.zeros(len(steps), np.int64), np.zeros(len(steps), np.int64)
    for device in devices:
        rows = (
            slice(None)
            if np.array_equal(device.step, steps)
            else np.searchsorted(steps, device.step)
        )
        peaks = np.maximum(device.step_peak_bytes, device.step_in_use_bytes)
        highest[rows] = np.maximum(highest[rows], peaks)
        lowest[rows] = np.minimum(lowest[rows], np.where(peaks == MISSING, lowest[rows], peaks))
        has = device.step_in_use_bytes != MISSING
        total[rows] += np.where(has, device.step_in_use_bytes, 0)
        known[rows] += has
    lowest[highest == MISSING] = MISSING
    recorded = sum(len(device.step) > 0 for device in devices)
    total[known < max(recorded, 1)] = MISSING
    shown = extreme_rows([highest, lowest, total], MAX_POINTS)
    sums = optional_values(total[shown])
    return ComparedSteps(
        steps[shown].tolist(),
        optional_values(highest[shown]),
        optional_values(lowest[shown]),
        sums if any(size is not None for size in sums) else None,
    )
