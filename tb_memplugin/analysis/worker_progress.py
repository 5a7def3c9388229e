"""How far each worker of a run got, and its clock against the others'. Pure."""

from collections.abc import Sequence

import numpy as np

from tb_memplugin.analysis.worker_summary import WorkerSummary

SILENT_SECONDS = 60.0
"""A worker that the others outlast by this much has stopped; it writes what it recorded every few seconds, or every 45
seconds to a remote file system."""
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


def stopped_early(workers: Sequence[WorkerSummary], at: int, offsets: Sequence[float | None]) -> str | None:
    """A sentence if the worker at index `at` did not say that it ended and others went on without it.

    Others went on if they recorded later steps, and have ended or recorded until long after the worker's last record.
    """
    worker = workers[at]
    others = [other for place, other in enumerate(workers) if place != at]
    last = max((other.last_step for other in others if other.last_step is not None), default=None)
    if worker.ended is not False or last is None or (worker.last_step is not None and last <= worker.last_step):
        return None
    until = _until(worker, offsets[at])
    latest = max((_until(other, offset) for other, offset in zip(workers, offsets, strict=True) if other is not worker))
    if latest - until < SILENT_SECONDS and not all(other.ended for other in others):
        return None
    name = worker.worker or "The worker without a name"
    recorded = "no step" if worker.last_step is None else f"nothing after step {worker.last_step}"
    rest = "the other went on" if len(others) == 1 else "the others went on"
    return f"{name} recorded {recorded}; {rest} to step {last}"


def _until(worker: WorkerSummary, offset: float | None) -> float:
    """Time of the worker's last record, by the first worker's clock as far as that is known."""
    last = worker.started if worker.last_wall_time is None else worker.last_wall_time
    return (-np.inf if last is None else last) - (offset or 0.0)
