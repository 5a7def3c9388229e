"""Finds what changed over the steps of a run: other layers trained, another batch size, an earlier optimizer that stays
in memory, or a jump of the peak without a known cause. Pure.

Traced steps are compared, the nearest on both sides of a change. Where one side has none, the highest measured peaks of
the steps near the change stand in, and nothing is said about categories.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Sequence

import numpy as np

from tb_memplugin.analysis.answers.step_change import StepChange
from tb_memplugin.analysis.growth.change_effects import ChangeEffect, Level, change_effects
from tb_memplugin.analysis.growth.jumps import MIN_JUMP_BYTES, MIN_JUMP_SHARE, Jump, largest_jump
from tb_memplugin.analysis.steps.step_rows import step_rows
from tb_memplugin.analysis.steps.traced_steps import (
    BatchChange,
    batch_changes,
    category_deltas,
    comparable_steps,
    first_of_level,
    former_of,
)
from tb_memplugin.model import MISSING, PERSISTENT, Category, Integers, Phase, Run, Snapshot
from tb_memplugin.model.units import counted

MAX_NAME_CHARACTERS = 24
"""A single layer with a longer name is counted instead."""
MAX_REASON_CHARACTERS = 40
MAX_PARTS = 2
"""Most categories that a sentence names."""
LEAST_AGREEMENT = 0.5
"""Least ratio of the change between the nearest traced steps to a jump for them to stand in for its medians."""
_LEAST_PART = 0.1
"""Categories that change by less than this share of the largest change are not named."""


def step_changes(run: Run, device: str, phase: Phase) -> list[StepChange]:
    """All changes of a phase on a device that count, in the order of their steps."""
    rows = step_rows(run, device, phase)
    steps, peaks = rows.step, rows.devices[device].peak_bytes
    traced = comparable_steps(run, device, phase)
    at_step = {snapshot.step: snapshot for snapshot in traced}
    effects = change_effects(run.layer_tables, steps, peaks, list(at_step))
    pending = batch_changes(traced)
    changes = []
    for effect in effects:
        inside = [one for one in pending if one.before.step < effect.step <= one.after.step]
        pending = [one for one in pending if one not in inside]
        changes.append(_of_tables(effect, inside))
    changes.extend(_of_batch(one, steps, peaks) for one in pending)
    changes = [_explained(change, at_step) for change in changes]
    changes.extend(_of_former(traced, changes, steps, peaks))
    jump = largest_jump(steps, peaks, [change.step for change in changes])
    if jump is not None:
        changes.append(_explained(_of_jump(jump, traced, changes, steps, peaks), at_step))
    return sorted(filter(_counts, changes), key=lambda change: change.step)


def _counts(change: StepChange) -> bool:
    """Whether a change is worth naming: a deliberate one, one that leaves memory behind, or a considerable effect."""
    if change.deliberate or change.slots_bytes or change.others_bytes:
        return True
    delta = change.delta_bytes
    return delta is not None and change.before is not None and abs(delta) >= _considerable(change.before.peak_bytes)


def _considerable(size: int) -> float:
    """The least change of a size that is considerable."""
    return max(MIN_JUMP_BYTES, MIN_JUMP_SHARE * size)


def _of_tables(effect: ChangeEffect, batches: Sequence[BatchChange]) -> StepChange:
    """A change of the layer table, and of the batch size between the same traced steps."""
    titles = [
        f"{verb} {_layers(paths)}" for verb, paths in (("unfroze", effect.unfrozen), ("froze", effect.frozen)) if paths
    ]
    titles += [one.title for one in batches]
    deliberate = bool(titles)
    if not titles:
        titles = [effect.reason if len(effect.reason) <= MAX_REASON_CHARACTERS else "the layer table changed"]
    return StepChange(effect.step, None, tuple(titles), deliberate, effect.before, effect.after)


def _of_batch(change: BatchChange, steps: Integers, peaks: Integers) -> StepChange:
    first = first_of_level(steps, peaks, change)
    before, after = (level_at(steps, peaks, one.step) for one in change)
    unknown = first is None
    step = change.after.step if first is None else first
    return StepChange(step, change.before.step if unknown else None, (change.title,), True, before, after)


def _of_former(
    traced: Sequence[Snapshot], changes: Sequence[StepChange], steps: Integers, peaks: Integers
) -> Iterable[StepChange]:
    """Earlier optimizers and models that stay from one traced step to the next, without another change between."""
    for before, after in itertools.pairwise(traced):
        if any(before.step < change.step <= after.step for change in changes):
            continue
        since = before.step if after.step - before.step > 1 else None
        levels = level_at(steps, peaks, before.step), level_at(steps, peaks, after.step)
        change = _with_former(StepChange(after.step, since, (), False, *levels), before, after)
        if change.slots_bytes or change.others_bytes:
            yield change


def _of_jump(
    jump: Jump, traced: Sequence[Snapshot], changes: Sequence[StepChange], steps: Integers, peaks: Integers
) -> StepChange:
    """A jump; its levels are those of the nearest traced steps if these differ by at least half of it."""
    before = max((one.step for one in traced if one.step < jump.step), default=None)
    after = min((one.step for one in traced if one.step >= jump.step), default=None)
    medians = StepChange(jump.step, None, (), False, jump.before, jump.after)
    if before is None or after is None or any(before < change.step <= after for change in changes):
        return medians
    levels = level_at(steps, peaks, before), level_at(steps, peaks, after)
    of_traced = StepChange(jump.step, None, (), False, *levels)
    agrees = of_traced.delta_bytes is not None and of_traced.delta_bytes / jump.delta_bytes >= LEAST_AGREEMENT
    return of_traced if agrees else medians


def level_at(steps: Integers, peaks: Integers, step: int) -> Level | None:
    """The peak of a step; `steps` ascending, with their `peaks`."""
    at = int(np.searchsorted(steps, step))
    if at == len(steps) or steps[at] != step or peaks[at] == MISSING:
        return None
    return Level(step, int(peaks[at]))


def _explained(change: StepChange, traced: dict[int, Snapshot]) -> StepChange:
    """The change with its categories and with what stays of earlier optimizers, if both its steps were traced."""
    before = None if change.before is None else traced.get(change.before.step)
    after = None if change.after is None else traced.get(change.after.step)
    if before is None or after is None:
        return change
    parts = _main_parts(category_deltas(before, after), change.delta_bytes or 0)
    return _with_former(dataclasses.replace(change, parts=parts), before, after)


def _with_former(change: StepChange, before: Snapshot, after: Snapshot) -> StepChange:
    was, now = former_of(before), former_of(after)
    least = _considerable(before.in_use_bytes)
    slots, others = now.slots - was.slots, now.others - was.others
    if slots + others < least:
        return change
    others = others if others >= least else 0
    return dataclasses.replace(
        change, slots_bytes=max(0, slots), others_bytes=others, former_bytes=now.slots + now.others
    )


def _main_parts(deltas: dict[Category, int], whole: int) -> tuple[tuple[Category, int], ...]:
    """The largest changes: of persistent categories, and of others that change as the whole does."""
    named = [
        (category, delta)
        for category, delta in deltas.items()
        if category != "rounding" and (category in PERSISTENT or delta * whole > 0)
    ]
    largest = sorted(named, key=lambda one: -abs(one[1]))[:MAX_PARTS]
    least = _LEAST_PART * max((abs(delta) for _, delta in largest), default=0)
    return tuple(one for one in named if one in largest and abs(one[1]) >= least)


def _layers(paths: tuple[str, ...]) -> str:
    name = paths[0].rsplit("/", 1)[-1]
    return name if len(paths) == 1 and len(name) <= MAX_NAME_CHARACTERS else counted(len(paths), "layer")
