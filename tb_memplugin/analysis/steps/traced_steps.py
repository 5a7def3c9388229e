"""The traced steps of a run that can be compared with each other, and what their breakdowns say. Pure."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tb_memplugin.analysis.steps.changes import epochs
from tb_memplugin.analysis.steps.step_rows import snapshots_of
from tb_memplugin.model import CATEGORIES, Category, Integers, Phase, Run, Snapshot
from tb_memplugin.model.layers import former_name

_LASTING = 2
"""Traced steps on either side of a change of the batch size, as far as there are any, that must have one size: batches
of varying sizes are no change."""


class BatchChange(NamedTuple):
    """The nearest traced steps before and after a lasting change of the batch size."""

    before: Snapshot
    after: Snapshot

    @property
    def title(self) -> str:
        """The change in words."""
        return f"batch {self.before.batch_size:,} → {self.after.batch_size:,}"


@dataclasses.dataclass(frozen=True)
class Former:
    """Requested bytes of optimizers and models that the program no longer uses: slots, and all other bytes."""

    slots: int
    others: int


def comparable_steps(run: Run, device: str, phase: Phase) -> list[Snapshot]:
    """The snapshots of the traced and failed steps of a phase, one for each, without partial batches.

    A partial batch is smaller than the batch traced before it and ends an epoch, or the batch traced after it is as
    large as that before it.
    """
    by_step = {snapshot.step: snapshot for snapshot in snapshots_of(run, device, phase)}
    ends = {epoch.last_step for epoch in epochs(run.samples)} if phase == "train" else set()
    traced = list(by_step.values())
    found: list[Snapshot] = []
    for at, snapshot in enumerate(traced):
        size = next((one.batch_size for one in reversed(found) if one.batch_size is not None), None)
        if size is not None and snapshot.batch_size is not None and snapshot.batch_size < size:
            after = next((one.batch_size for one in traced[at + 1 :] if one.batch_size is not None), None)
            if not snapshot.at_failure and (snapshot.step in ends or after == size):
                continue
        found.append(snapshot)
    return found


def batch_changes(snapshots: Sequence[Snapshot]) -> list[BatchChange]:
    """The lasting changes of the batch size between `comparable_steps`; a failed step counts alone."""
    known = [snapshot for snapshot in snapshots if snapshot.batch_size is not None]
    changes = []
    for at in range(1, len(known)):
        before, after = known[at - 1], known[at]
        earlier = {one.batch_size for one in known[max(0, at - _LASTING) : at]}
        later = {one.batch_size for one in known[at : at + (1 if after.at_failure else _LASTING)]}
        if before.batch_size != after.batch_size and len(earlier) == len(later) == 1:
            changes.append(BatchChange(before, after))
    return changes


def first_of_level(steps: Integers, peaks: Integers, change: BatchChange) -> int | None:
    """The first step after a change by the measured peaks between its traced steps; None if they do not show it."""
    first, last = change.before.step + 1, change.after.step
    inside = (steps >= first) & (steps <= last) & (peaks >= 0)
    steps, peaks = steps[inside], peaks[inside]
    closer = np.abs(peaks - change.after.in_use_bytes) < np.abs(peaks - change.before.in_use_bytes)
    if not len(steps) or not closer.any():
        return last if first == last else None
    at = int(np.argmax(closer))
    # Every step from there on has the new level, and every step was measured.
    contiguous = len(steps) == last - first + 1
    return int(steps[at]) if contiguous and closer[at:].all() else None


def category_deltas(before: Snapshot, after: Snapshot) -> dict[Category, int]:
    """Change of the bytes of each category at the peak, in stack order; categories without a change are left out."""
    deltas = dict.fromkeys(CATEGORIES, 0)
    for sign, snapshot in ((-1, before), (1, after)):
        for row in snapshot.ledger:
            deltas[row.category] += sign * row.bytes
    return {category: delta for category, delta in deltas.items() if delta}


def former_of(snapshot: Snapshot) -> Former:
    """The bytes of what the program no longer uses, in a breakdown."""
    slots = others = 0
    for row in snapshot.ledger:
        if row.category != "rounding" and former_name(row.layer) is not None:
            slots += row.bytes if row.category == "optimizer_state" else 0
            others += row.bytes if row.category != "optimizer_state" else 0
    return Former(slots, others)
