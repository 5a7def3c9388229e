"""What the view of all devices needs of one worker: small enough to keep for each of many workers. Pure."""

import dataclasses

import numpy as np
import numpy.typing as npt

from tb_memplugin.analysis.answers.status import RunStatus, run_status
from tb_memplugin.analysis.growth.device_growth import find_growth
from tb_memplugin.analysis.steps.facts import capacity_of, device_names, fitting_peak
from tb_memplugin.analysis.steps.step_rows import phase_steps, snapshots_of
from tb_memplugin.model import PHASES, DeviceSamples, Floats, Integers, Phase, Run, Snapshot
from tb_memplugin.model.basics import last_known
from tb_memplugin.model.groups import TracedPeak, group_sums

_STEP_BYTES, _TOGETHER_BYTES, _DEVICE_STEP_BYTES = 16, 40, 16
"""Estimated bytes per step: per worker, in the combined series, and per device."""


@dataclasses.dataclass(frozen=True)
class DeviceSummary:
    """One device of a worker in one phase.

    Attributes:
        name: The device's name in its worker.
        peak_bytes, peak_step: The same as in the answer `fits`; see `fitting_peak`.
        capacity_bytes: The allocator's limit, None if unknown.
        last_in_use_bytes, pool_bytes: As last recorded in the phase, None if unknown.
        rows: Number of its steps in the phase; None if only roll-ups were read of a training that repeated steps.
        step, step_peak_bytes, step_in_use_bytes: One row a step, ascending, shape [rows]; `MISSING` if unknown.
            Empty in a summary without steps.
        traced: The traced steps of the phase, one of each step, ascending.
        ooms: Number of failed allocations, in any phase.
    """

    name: str
    peak_bytes: int
    peak_step: int
    capacity_bytes: int | None
    last_in_use_bytes: int | None
    pool_bytes: int | None
    rows: int | None
    step: Integers
    step_peak_bytes: Integers
    step_in_use_bytes: Integers
    traced: tuple[TracedPeak, ...]
    ooms: int

    @property
    def headroom_bytes(self) -> int | None:
        """Capacity − peak; None if the capacity is unknown, or after a failed allocation, which leaves no headroom."""
        return None if self.capacity_bytes is None or self.ooms else self.capacity_bytes - self.peak_bytes


@dataclasses.dataclass(frozen=True)
class WorkerSummary:
    """One worker of a run.

    Attributes:
        worker: Its name, ``""`` in a run of one process.
        sessions: Number of its sessions.
        started: Start of its last session in seconds since the epoch, None if unknown.
        ended: Whether its last session said that it ended; None if none of a recorder can say so.
        status: What is wrong with it; host memory is not examined.
        rows: Number of samples in any phase; None if only roll-ups were read of a training that repeated steps.
        step, wall_time: Step and time of the samples of training steps, or of the last ones of the spans of roll-ups;
            ascending, each step once; empty in a summary without steps.
        first_step, last_step, last_wall_time: Of the samples of any phase, None without any.
        devices: Its devices with figures in the phase, accelerators first.
    """

    worker: str
    sessions: int
    started: float | None
    ended: bool | None
    status: RunStatus
    rows: int | None
    step: Integers
    wall_time: Floats
    first_step: int | None
    last_step: int | None
    last_wall_time: float | None
    devices: tuple[DeviceSummary, ...]


def series_bytes(run: Run, known_steps: Integers) -> int:
    """Most bytes that the series of a worker take in its summary, and those of all workers together at its steps.

    Args:
        known_steps: Steps of another worker, which are put together with equal ones.
    """
    steps = run.samples.step
    together = 0 if np.array_equal(steps, known_steps) else _TOGETHER_BYTES
    return len(steps) * (_STEP_BYTES + together + _DEVICE_STEP_BYTES * len(run.samples.devices))


def summarize_worker(worker: str, run: Run, phase: Phase, with_steps: bool = True) -> WorkerSummary:
    """Summarize the run of one worker; its devices have their own names."""
    samples = run.samples
    training = np.flatnonzero(samples.phase == PHASES.index("train"))
    if not with_steps:
        training = training[:0]
    # A step that was recorded twice ended when its last row says.
    steps, last_rows = np.unique(samples.step[training][::-1], return_index=True)
    devices = (_summarize_device(run, name, phase, steps if with_steps else None) for name in device_names(run))
    return WorkerSummary(
        worker=worker,
        sessions=len(run.sessions),
        started=max(run.session_starts, default=None),
        ended=run.ended,
        status=run_status(run, grows=bool(find_growth(run))),
        rows=len(samples),
        step=steps,
        wall_time=samples.wall_time[training][::-1][last_rows],
        first_step=int(samples.step.min()) if len(samples) else None,
        last_step=int(samples.step.max()) if len(samples) else None,
        last_wall_time=float(samples.wall_time.max()) if len(samples) else None,
        devices=tuple(device for device in devices if device is not None),
    )


def _summarize_device(run: Run, device: str, phase: Phase, steps: Integers | None) -> DeviceSummary | None:
    """The summary, None if the peak is unknown.

    Args:
        steps: Those of the worker, whose array a device with the same steps shares; None for a summary without steps.
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
    return DeviceSummary(
        name=device,
        peak_bytes=size,
        peak_step=step,
        capacity_bytes=capacity_of(run, device),
        last_in_use_bytes=last_known(_column(figures, "in_use_bytes", rows)),
        pool_bytes=last_known(_column(figures, "pool_bytes", rows)),
        rows=len(rows),
        step=steps if steps is not None and np.array_equal(own_steps, steps) else own_steps,
        step_peak_bytes=_column(figures, "peak_bytes", shown),
        step_in_use_bytes=_column(figures, "in_use_bytes", shown),
        # A step's last snapshot has the most bytes in use.
        traced=tuple({one.step: _traced_peak(one) for one in snapshots_of(run, device, phase)}.values()),
        ooms=len(ooms),
    )


def _traced_peak(snapshot: Snapshot) -> TracedPeak:
    return TracedPeak(snapshot.step, snapshot.in_use_bytes, group_sums(snapshot.ledger))


def _column(figures: DeviceSamples | None, field: str, rows: npt.NDArray[np.intp]) -> Integers:
    values: Integers = np.empty(0, np.int64) if figures is None else getattr(figures, field)[rows]
    return values
