"""The few figures that say what a run is: how many steps, which devices, where the highest peak is. Pure."""

import dataclasses

import numpy as np

from tb_memplugin.codec import MISSING
from tb_memplugin.model import PHASES, Integers, Run


@dataclasses.dataclass(frozen=True)
class StepRange:
    """Different steps of a run, and the first and last of them (None without any)."""

    steps: int
    first_step: int | None
    last_step: int | None


@dataclasses.dataclass(frozen=True)
class DeviceFacts:
    """What is known of a device over the whole run; `peak_bytes` is the highest in any phase, `snapshots` a count."""

    device: str
    capacity_bytes: int | None
    peak_bytes: int | None
    peak_step: int | None
    snapshots: int


def step_range(run: Run) -> StepRange:
    """The training steps; of a run that recorded no training step, the steps of whatever it recorded."""
    training = run.samples.step[run.samples.phase == PHASES.index("train")]
    traced = np.asarray([taken.step for taken in run.snapshots], np.int64)
    steps: Integers = np.empty(0, np.int64)
    if len(training):
        steps = training
    elif len(run.activations) or len(run.samples) or len(traced):
        steps = np.concatenate([run.activations.step, run.samples.step, traced])
    return range_of(steps)


def range_of(steps: Integers) -> StepRange:
    """How many different ones there are among `steps`, the first and the last."""
    if not len(steps):
        return StepRange(0, None, None)
    different = int(np.count_nonzero(np.diff(np.sort(steps, kind="stable")))) + 1
    return StepRange(different, int(steps.min()), int(steps.max()))


def phases(run: Run) -> list[str]:
    """The phases that samples or snapshots were recorded in, in the order of `PHASES`."""
    present = set(np.unique(run.samples.phase).tolist()) | {PHASES.index(taken.phase) for taken in run.snapshots}
    return [PHASES[at] for at in sorted(present)]


def device_facts(run: Run) -> list[DeviceFacts]:
    """Every device of the run's samples and snapshots, accelerators first."""
    others = [*(taken.device for taken in run.snapshots), *(oom.device for oom in run.ooms)]
    names = dict.fromkeys([*run.samples.devices, *others])
    ordered = sorted(names, key=lambda name: (name.rsplit("/", 1)[-1].upper().startswith("CPU"), name))
    return [_device_facts(run, name) for name in ordered]


def _device_facts(run: Run, device: str) -> DeviceFacts:
    snapshots = [taken for taken in run.snapshots if taken.device == device]
    candidates = [(taken.in_use_bytes, -taken.step) for taken in snapshots]
    limits = [taken.capacity_bytes for taken in reversed(snapshots)]
    limits += [oom.capacity_bytes for oom in run.ooms if oom.device == device]
    capacity = next((limit for limit in limits if limit is not None), None)
    figures = run.samples.devices.get(device)
    if figures is not None and len(run.samples):
        # Where an allocator keeps no peak, what is in use at the end of the step is a lower bound of it.
        highest = np.maximum(figures.peak_bytes, figures.in_use_bytes)
        at = int(np.argmax(highest))
        if highest[at] != MISSING:
            candidates.append((int(highest[at]), -int(run.samples.step[at])))
        known = np.flatnonzero(figures.capacity_bytes != MISSING)
        capacity = int(figures.capacity_bytes[known[-1]]) if len(known) else capacity
    peak, step = max(candidates, default=(None, None))
    return DeviceFacts(device, capacity, peak, None if step is None else -step, len(snapshots))
