"""Key figures of a run: steps, phases, devices and their peaks; the sessions of a run that was
restarted. Pure."""

import dataclasses
import re
from collections.abc import Callable, Collection, Iterable, Mapping

import numpy as np

from tb_memplugin.schema import MISSING, PHASES, Integers, Phase, Run, is_cpu, last_known, take_rows


@dataclasses.dataclass(frozen=True)
class StepRange:
    steps: int
    first_step: int | None
    last_step: int | None


@dataclasses.dataclass(frozen=True)
class DeviceFacts:
    """`peak_bytes` is the highest peak of all phases; `snapshots` counts traced steps."""

    device: str
    capacity_bytes: int | None
    peak_bytes: int | None
    peak_step: int | None
    snapshots: int


@dataclasses.dataclass(frozen=True)
class Peak:
    """The highest recorded bytes in use of a device, and the earliest step that reached them;
    `at_step_end` if the allocator keeps no peak."""

    bytes: int
    step: int
    phase: Phase
    at_step_end: bool


def step_range(run: Run) -> StepRange:
    """The training steps; without any, all recorded steps."""
    training = run.samples.step[run.samples.is_of("train")]
    traced = np.asarray([snapshot.step for snapshot in run.snapshots], np.int64)
    steps = (
        training
        if len(training)
        else np.concatenate([run.activations.step, run.samples.step, traced])
    )
    return range_of(steps, run.thinning > 1)


def range_of(steps: Integers, is_thinned: bool = False) -> StepRange:
    """The number of distinct values of `steps`, the first and the last. Thinned samples stand for
    all steps between."""
    if not len(steps):
        return StepRange(0, None, None)
    first, last = int(steps.min()), int(steps.max())
    different = int(np.count_nonzero(np.diff(np.sort(steps, kind="stable")))) + 1
    return StepRange(last - first + 1 if is_thinned else different, first, last)


def phases(run: Run) -> list[Phase]:
    """The phases of samples and snapshots, in the order of `PHASES`."""
    return _phases(run.samples.phase, {snapshot.phase for snapshot in run.snapshots})


def main_phase(run: Run) -> Phase:
    """The phase that the run is about: training if it was recorded, else the first of `phases`."""
    return next(iter(phases(run)), "train")


def device_phase(run: Run, device: str) -> Phase:
    """The `main_phase` of the worker that has a device: the evaluator of a training run only
    validates. That of the run for a device without samples and snapshots. It is the same for the
    run of that worker alone."""
    known = run.samples.of(device).least_peak_bytes != MISSING
    traced = {snapshot.phase for snapshot in run.snapshots if snapshot.device == device}
    return next(iter(_phases(run.samples.phase[known], traced)), main_phase(run))


def _phases(recorded: Integers, traced: Collection[Phase]) -> list[Phase]:
    # Faster than sorting the phases of all rows.
    return [phase for at, phase in enumerate(PHASES) if phase in traced or (recorded == at).any()]


def step_name(phase: Phase) -> str:
    return f"{'training' if phase == 'train' else phase} step"


def device_facts(run: Run) -> list[DeviceFacts]:
    found = []
    for device in device_names(run):
        peak = highest_peak(run, device)
        size, step = (None, None) if peak is None else (peak.bytes, peak.step)
        snapshots = sum(one.device == device and not one.at_failure for one in run.snapshots)
        found.append(DeviceFacts(device, capacity_of(run, device), size, step, snapshots))
    return found


def device_names(run: Run) -> list[str]:
    """All devices of samples, snapshots and failed allocations, accelerators first."""
    others = [*(snapshot.device for snapshot in run.snapshots), *(oom.device for oom in run.ooms)]
    return sorted(dict.fromkeys([*run.samples.devices, *others]), key=device_order)


def device_order(name: str) -> tuple[bool, list[tuple[str, int]]]:
    """Sort key of devices: accelerators first, then by name."""
    return is_cpu(name), natural_order(name)


def natural_order(name: str) -> list[tuple[str, int]]:
    """Sort key of names by their text and numbers: ``worker_2/GPU:0`` before
    ``worker_10/GPU:0``."""
    pieces = re.split(r"([0-9]{1,18})", name)
    return [
        (text, int(number)) for text, number in zip(pieces[::2], [*pieces[1::2], "0"], strict=True)
    ]


def most_loaded(devices: Mapping[str, tuple[int | None, int | None]]) -> str | None:
    """The device with the largest share of its capacity in use, else that with the highest peak;
    None without a peak. The CPU is only chosen in a run without accelerators. `devices` are in
    display order, with peak and capacity."""
    known = {
        name: (peak, capacity) for name, (peak, capacity) in devices.items() if peak is not None
    }
    names = comparable(known)
    relative = all(known[name][1] for name in names)

    def load(name: str) -> float:
        peak, capacity = known[name]
        return peak / capacity if relative and capacity else float(peak)

    return max(names, key=load, default=None)


def comparable(devices: Iterable[str]) -> list[str]:
    """The accelerators, or all devices if there are none: the memory of a CPU is not compared with
    theirs."""
    names = list(devices)
    return [name for name in names if not is_cpu(name)] or names


def highest_peak(run: Run, device: str, phase: Phase | None = None) -> Peak | None:
    """The highest peak of a device in a phase, or in all phases; None if nothing was recorded."""
    candidates = [
        Peak(snapshot.in_use_bytes, snapshot.step, snapshot.phase, at_step_end=False)
        for snapshot in run.snapshots
        if snapshot.device == device and phase in (None, snapshot.phase)
    ]
    figures = run.samples.of(device)
    if len(run.samples):
        highest = figures.least_peak_bytes
        if phase is not None:
            highest = np.where(run.samples.is_of(phase), highest, MISSING)
        at = int(np.argmax(highest))
        if highest[at] != MISSING:
            of = PHASES[int(run.samples.phase[at])]
            no_peak = bool(figures.peak_bytes[at] == MISSING)
            candidates.append(Peak(int(highest[at]), int(run.samples.step[at]), of, no_peak))
    return max(
        candidates, key=lambda peak: (peak.bytes, -peak.step, not peak.at_step_end), default=None
    )


def fitting_peak(run: Run, device: str, phase: Phase) -> Peak | None:
    """The peak that must fit: of all phases in phase ``train`` and in the `device_phase`, else of
    `phase` alone."""
    return highest_peak(
        run, device, None if phase in ("train", device_phase(run, device)) else phase
    )


def capacity_of(run: Run, device: str) -> int | None:
    """The allocator's limit, as last recorded; None if unknown."""
    limits = [last_known(run.samples.of(device).capacity_bytes)]
    limits += [
        snapshot.capacity_bytes for snapshot in reversed(run.snapshots) if snapshot.device == device
    ]
    limits += [oom.capacity_bytes for oom in run.ooms if oom.device == device]
    return next((limit for limit in limits if limit is not None), None)


MAX_SESSIONS = 20  # that are told apart, the latest ones: each takes a look at all samples


def latest_session(run: Run, devices: Iterable[str], is_enough: Callable[[Run], bool]) -> Run:
    """The latest session with enough samples: growth is searched in one session, which starts with
    empty memory.

    It has the samples of `devices` only, because copying those of many devices takes long. It is
    the whole run if no session is enough, or if the run has several workers, whose sessions
    overlap: ask for each worker's run."""
    if len(run.workers) != 1 or len(run.session_starts) < 2:
        return run
    recorded, starts = run.samples.devices, sorted(run.session_starts)
    samples = dataclasses.replace(
        run.samples, devices={name: recorded[name] for name in devices if name in recorded}
    )
    spans = list(zip(starts, [*starts[1:], np.inf], strict=True))[-MAX_SESSIONS:]
    for begin, end in reversed(spans):
        rows = np.flatnonzero((samples.wall_time >= begin) & (samples.wall_time < end))
        session = dataclasses.replace(
            run,
            samples=take_rows(samples, rows),
            snapshots=tuple(one for one in run.snapshots if begin <= one.wall_time < end),
            # Those of the last session count.
            counters=run.counters if end == np.inf else (),
            session_starts=(begin,),
        )
        if is_enough(session):
            return session
    return run
