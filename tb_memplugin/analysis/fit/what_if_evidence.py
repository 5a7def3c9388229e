"""The recorded steps of the program that a question is about, and the batch sizes that it ran or failed with. Pure."""

import collections
import statistics
from collections.abc import Iterable, Sequence

import numpy as np

from tb_memplugin.model import PHASES, Oom, Phase, Run, StepRequests
from tb_memplugin.model.layers import former_name
from tb_memplugin.prediction.evidence import Evidence, Peaks

_TRAIN: Phase = "train"


def recorded_program(requests: Iterable[StepRequests], device: str, phase: Phase = "train") -> tuple[StepRequests, ...]:
    """The recorded steps of a device since the program last changed, without changes that no later step follows.

    The first one may be the step that made the long-lived chunks. Steps before it with other batch sizes count as well
    if they have the same weights and optimizer state, for example those of an earlier session.
    """
    groups: list[list[StepRequests]] = [[]]
    for one in requests:
        if one.device == device and one.phase == phase:
            if one.first:
                groups.append([])
            groups[-1].append(one)
    complete = [group for group in groups if any(not one.first for one in group)]
    if not complete:
        return ()
    latest = complete[-1]
    first, later = [one for one in latest if one.first], [one for one in latest if not one.first]
    earlier: list[StepRequests] = []
    for group in reversed(complete[:-1]):
        if _program(group[-1]) != _program(latest[-1]):
            break
        known = {one.batch_size for one in (*earlier, *later)}
        earlier = [one for one in group if not one.first and one.batch_size not in known] + earlier
    return (*first, *earlier, *later)


def _program(requests: StepRequests) -> tuple[str, collections.Counter[tuple[str | None, str, int]]]:
    """What distinguishes a step's program: its mode, and the weights and optimizer state that it starts with."""
    lasting: collections.Counter[tuple[str | None, str, int]] = collections.Counter()
    for row in np.flatnonzero(requests.birth < 0).tolist():
        owner = requests.owners[int(requests.owner[row])]
        if owner.category in ("weights", "optimizer_state") and former_name(owner.layer) is None:
            lasting[owner.layer, owner.category, int(requests.requested[row])] += 1
    return requests.mode, lasting


def first_typical_step(steps: Sequence[StepRequests]) -> int | None:
    """Number of the first recorded step with the latest batch size; None without steps.

    The peaks of the run's steps from it on are what a simulation of these steps is checked against.
    """
    typical = [one for one in steps if not one.first]
    return next((one.step for one in typical if one.batch_size == typical[-1].batch_size), None)


def typical_peaks(run: Run, device: str, first: int) -> dict[int, int]:
    """Step to peak in bytes, of the training steps from one on, up to where memory ran out."""
    figures = run.samples.devices.get(device)
    if figures is None:
        return {}
    failed = [oom.step for oom in run.ooms if oom.step is not None and oom.step > first and oom.status == "failed"]
    rows = (run.samples.phase == PHASES.index(_TRAIN)) & (run.samples.step >= first) & (figures.peak_bytes > 0)
    if failed:
        rows &= run.samples.step < min(failed)
    return dict(zip(run.samples.step[rows].tolist(), figures.peak_bytes[rows].tolist(), strict=True))


def recorded_evidence(run: Run, device: str, steps: Sequence[StepRequests]) -> Evidence:
    """What a run shows of its batch sizes.

    Args:
        run: The run.
        device: One of its devices.
        steps: The recorded steps of its program.
    """
    typical = [one for one in steps if not one.first]
    failures = [oom for oom in _failures(run, device, steps) if oom.batch_size and oom.step is not None]
    if not typical:
        capacity = failures[-1].capacity_bytes if failures else None
        return Evidence(capacity, failed={oom.batch_size or 0: oom.step or 0 for oom in failures})
    latest, first = typical[-1].batch_size, first_typical_step(steps)
    measured = typical_peaks(run, device, min(one.step for one in typical))
    peaks: dict[int, Peaks] = {}
    for size in {one.batch_size for one in typical if one.batch_size}:
        traced = [measured[one.step] for one in typical if one.batch_size == size and one.step in measured]
        # Not every step was traced; the untraced ones since the last batch size was seen are taken to have it.
        all_steps = [peak for step, peak in measured.items() if step >= (first or 0)] if size == latest else traced
        if traced:
            median = int(statistics.median(all_steps))
            peaks[size] = Peaks(min(*traced, median), median, max(*all_steps, median))
    return Evidence(typical[-1].capacity_bytes, peaks, {oom.batch_size or 0: oom.step or 0 for oom in failures})


def last_failed_batch(run: Run, device: str, steps: Sequence[StepRequests]) -> int | None:
    """Batch size of the failure that ended a run; None if training went on, or if it is unknown."""
    failures = _failures(run, device, steps)
    if not failures or failures[-1].step is None:
        return None
    last = max((one.step for one in steps), default=-1)
    return failures[-1].batch_size if failures[-1].step >= last else None


def _failures(run: Run, device: str, steps: Sequence[StepRequests]) -> list[Oom]:
    """Failed training steps of the program, the last one last."""
    begin = min((one.step for one in steps), default=0)
    failed = [one for one in run.ooms if one.device == device and one.phase == _TRAIN and one.status == "failed"]
    return sorted((one for one in failed if (one.step or 0) >= begin), key=lambda one: one.wall_time)
