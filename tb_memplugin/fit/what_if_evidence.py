"""The recorded steps of the program that a question is about, and the batch sizes that it ran or failed with. Pure."""

import collections
import math
import statistics
from collections.abc import Iterable, Sequence

import numpy as np

from tb_memplugin.analysis import Growth, growth_of
from tb_memplugin.fit.evidence import Evidence, Failure, Peaks
from tb_memplugin.schema import PHASES, Oom, Phase, Run, StepRequests, format_bytes, former_name

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


def measured_peak(run: Run, device: str, steps: Sequence[StepRequests], until: float = math.inf) -> int | None:
    """Median peak of the steps of a run that are like the latest recorded ones, before a time; None if unknown.

    A simulation of these steps is checked against it.
    """
    typical = [one for one in steps if not one.first]
    if not typical:
        return None
    first = next(one.step for one in typical if one.batch_size == typical[-1].batch_size)
    peaks = _peaks_from(run, typical[-1], first, until)
    return int(statistics.median(peaks.values())) if peaks else None


def _peaks_from(run: Run, like: StepRequests, first: int, until: float = math.inf) -> dict[int, int]:
    """Step to peak in bytes, of the steps of a step's device and phase, from the first one until a wall time and until
    memory ran out.
    """
    samples, figures = run.samples, run.samples.devices.get(like.device)
    if figures is None:
        return {}
    rows = (samples.phase == PHASES.index(like.phase)) & (samples.step >= first) & (figures.peak_bytes > 0)
    rows &= samples.wall_time < until
    failed = [one.step for one in _of_phase(run, like.device, like.phase) if one.step is not None and one.step > first]
    if failed:
        rows &= samples.step < min(failed)
    return dict(zip(samples.step[rows].tolist(), figures.peak_bytes[rows].tolist(), strict=True))


def recorded_evidence(run: Run, device: str, steps: Sequence[StepRequests], until: float = math.inf) -> Evidence:
    """What a run shows of its batch sizes, by the recorded steps of its program, up to the wall time `until`."""
    typical = [one for one in steps if not one.first]
    # A failure of unknown batch size is one of the size that ran.
    running = typical[-1].batch_size if typical else None
    failed = [
        Failure(size, oom.capacity_bytes, oom.step)
        for oom in _failures(run, device, steps)
        if (size := oom.batch_size or running) and oom.step is not None and not _ran_later(oom, size, typical)
    ]
    grown = growth_of(run, device, _TRAIN)
    growth = None if grown is None else f"Unknown: {leak_sentence(grown)}"
    if not typical:
        return Evidence(failures=failed, growth=growth)
    latest = typical[-1].batch_size
    first = next(one.step for one in typical if one.batch_size == latest)
    measured = _peaks_from(run, typical[-1], min(one.step for one in typical), until)
    peaks: dict[int, Peaks] = {}
    for size in {one.batch_size for one in typical if one.batch_size}:
        own = [one for one in typical if one.batch_size == size and one.step in measured]
        traced = [measured[one.step] for one in own]
        # Not every step was traced; the untraced ones since the last batch size was seen are taken to have it.
        all_steps = [peak for step, peak in measured.items() if step >= first] if size == latest else traced
        if traced:
            median = int(statistics.median(all_steps))
            limits = [one.capacity_bytes for one in own]
            within = None if None in limits else min(limit for limit in limits if limit)
            peaks[size] = Peaks(min(*traced, median), median, max(*all_steps, median), within)
    return Evidence(peaks, failed, growth)


def _ran_later(oom: Oom, size: int, steps: Sequence[StepRequests]) -> bool:
    """Whether the batch size of a failure, or a larger one, ran afterwards, within no larger capacity."""
    return any(
        one.wall_time > oom.wall_time
        and (one.batch_size or 0) >= size
        and (one.capacity_bytes or 0) <= (oom.capacity_bytes or 0)
        for one in steps
    )


def last_failed_batch(run: Run, device: str, steps: Sequence[StepRequests]) -> int | None:
    """Batch size of the failure that ended a run; None if training went on, or if it is unknown."""
    failures = _failures(run, device, steps)
    if not failures or failures[-1].step is None:
        return None
    last = max((one.step for one in steps), default=-1)
    return failures[-1].batch_size if failures[-1].step >= last else None


def _failures(run: Run, device: str, steps: Sequence[StepRequests]) -> list[Oom]:
    """The last one last."""
    begin = min((one.step for one in steps), default=0)
    failed = [one for one in _of_phase(run, device, _TRAIN) if (one.step or 0) >= begin]
    return sorted(failed, key=lambda one: one.wall_time)


def _of_phase(run: Run, device: str, phase: Phase) -> list[Oom]:
    return [one for one in run.ooms if one.device == device and one.phase == phase and one.failed]


def leak_sentence(growth: Growth) -> str:
    trend = growth.trend
    owner = "" if growth.owner is None else f" ({', '.join((growth.owner[1].replace('_', ' '), *growth.origin()))})"
    return (
        f"memory grows by {format_bytes(round(trend.bytes_per_step))} in each step{owner}, from "
        f"{format_bytes(trend.from_bytes)} to {format_bytes(trend.to_bytes)} so far. Fix the leak first."
    )
