"""Changes of the layer table with their effect on the measured peak; and what changed over the
steps of a run, as sentences: other layers trained, another batch size, an earlier optimizer that
stays in memory, or a jump of the peak without a known cause. Pure.

Traced steps are compared, the nearest on both sides of a change. Where one side has none, the
highest measured peaks of the steps near the change stand in, and nothing is said about
categories."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tb_memplugin.analysis.composition import (
    LayerTotals,
    epochs,
    layer_totals,
    snapshots_of,
    step_rows,
    trainable_layers,
)
from tb_memplugin.analysis.trend import WINDOW, Level, largest_jump, least_change
from tb_memplugin.schema import (
    CATEGORIES,
    MISSING,
    PERSISTENT,
    Category,
    Integers,
    LayerTable,
    Phase,
    Run,
    Snapshot,
    counted,
    format_bytes,
    format_figure,
    former_name,
    sums_by,
    unit_for,
)

_LASTING = 2
"""Traced steps on either side of a change of the batch size that must have one size, if there are
any: batches of varying sizes do not count as a change."""


# nearest traced steps on both sides of a change of the batch size
BatchChange: TypeAlias = tuple[Snapshot, Snapshot]


def comparable_steps(run: Run, device: str, phase: Phase) -> list[Snapshot]:
    """The snapshots of the traced and failed steps of a phase, one for each, without partial
    batches.

    A partial batch is smaller than the batch traced before it and ends an epoch, or the batch
    traced after it is as large as that before it."""
    last_of_step = {snapshot.step: snapshot for snapshot in snapshots_of(run, device, phase)}
    traced = list(last_of_step.values())
    ends = {epoch.last_step for epoch in epochs(run)} if phase == "train" else set()
    found: list[Snapshot] = []
    for at, snapshot in enumerate(traced):
        size = next((one.batch_size for one in reversed(found) if one.batch_size is not None), None)
        if size is not None and snapshot.batch_size is not None and snapshot.batch_size < size:
            after = next(
                (one.batch_size for one in traced[at + 1 :] if one.batch_size is not None), None
            )
            if not snapshot.at_failure and (snapshot.step in ends or after == size):
                continue
        found.append(snapshot)
    return found


def batch_changes(snapshots: Sequence[Snapshot]) -> list[BatchChange]:
    """The lasting changes of the batch size between `comparable_steps`; a failed step counts
    alone."""
    known = [snapshot for snapshot in snapshots if snapshot.batch_size is not None]
    changes = []
    for at in range(1, len(known)):
        before, after = known[at - 1], known[at]
        earlier = {one.batch_size for one in known[max(0, at - _LASTING) : at]}
        later = {one.batch_size for one in known[at : at + (1 if after.at_failure else _LASTING)]}
        if before.batch_size != after.batch_size and len(earlier) == len(later) == 1:
            changes.append((before, after))
    return changes


def first_of_level(measured: "_Measured", before: Snapshot, after: Snapshot) -> int | None:
    """The first step after a change by the measured peaks between its traced steps; None if they do
    not show it."""
    first, last = before.step + 1, after.step
    inside = (measured.steps >= first) & (measured.steps <= last) & (measured.peaks >= 0)
    steps, peaks = measured.steps[inside], measured.peaks[inside]
    closer = np.abs(peaks - after.in_use_bytes) < np.abs(peaks - before.in_use_bytes)
    if not closer.any():
        return last if first == last else None
    at = int(np.argmax(closer))
    # Every step from there on has the new level, and every step was measured.
    contiguous = len(steps) == last - first + 1
    return int(steps[at]) if contiguous and closer[at:].all() else None


def former_bytes(snapshot: Snapshot) -> tuple[int, int]:
    """Requested bytes of optimizers and models that the program no longer uses: slots, and all
    other bytes."""
    rows = (row for row in snapshot.ledger if former_name(row.layer) is not None)
    sums = sums_by(rows, lambda row: row.category)
    slots = sums["optimizer_state"]
    return slots, sums.total() - sums["rounding"] - slots


@dataclasses.dataclass(frozen=True, kw_only=True)
class _TableChange:
    step: int
    reason: str
    became_trainable: tuple[str, ...]
    became_frozen: tuple[str, ...]
    peak_before_bytes: int | None = None
    peak_before_step: int | None = None
    peak_after_bytes: int | None = None
    peak_after_step: int | None = None
    stayed_slots_bytes: int = 0
    """Growth of the slots of earlier optimizers, which stay beside `optimizer_bytes`; 0 if small or
    not traced."""


@dataclasses.dataclass(frozen=True)
class LayerChange(LayerTotals, _TableChange):
    """A layer table that took effect at `step`, with its totals, and the layers with weights that
    became trainable or frozen. The peaks are None if none was measured, and at the start. Tables of
    neighbouring steps are one change of the peak: an unfreezing, then a new optimizer."""


def _became(
    before: Mapping[str, bool], table: LayerTable
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The paths of layers that became trainable, and of those that became frozen."""
    changed = {
        path: on for path, on in trainable_layers(table).items() if before.get(path, on) is not on
    }
    return tuple(path for path, on in changed.items() if on), tuple(
        path for path, on in changed.items() if not on
    )


class _Measured(NamedTuple):
    """Steps, ascending, with their peaks, and the snapshots of those that can be compared."""

    steps: Integers
    peaks: Integers
    traced: dict[int, Snapshot]

    def at(self, snapshot: Snapshot) -> Level | None:
        """The measured peak of a traced step."""
        row = int(np.searchsorted(self.steps, snapshot.step))
        is_measured = row < len(self.steps) and self.steps[row] == snapshot.step
        return self.highest(row, row + is_measured)

    def highest(self, begin: int, end: int) -> Level | None:
        """The highest peak of a range of rows."""
        if begin >= end:
            return None
        row = begin + int(np.argmax(self.peaks[begin:end]))
        size = int(self.peaks[row])
        return None if size == MISSING else Level(int(self.steps[row]), size)


def _measured(run: Run, device: str, phase: Phase) -> _Measured:
    steps, figures = step_rows(run, device, phase)
    traced = {snapshot.step: snapshot for snapshot in comparable_steps(run, device, phase)}
    return _Measured(steps, figures.peak_bytes, traced)


def layer_changes(run: Run, device: str, phase: Phase) -> list[LayerChange]:
    """The changes of the layer table, each with the peaks before and after, from every step of the
    phase."""
    tables, measured = run.layer_tables, _measured(run, device, phase)
    effects: dict[int, dict[str, Any]] = {}
    for _, first, last, before, after in _table_effects(tables, measured):
        change = StepChange(tables[first].step, None, (), True, before, after)
        of_table = {"stayed_slots_bytes": _explained(change, measured.traced).slots_bytes}
        for name, level in (("before", before), ("after", after)):
            if level is not None:
                of_table[f"peak_{name}_bytes"] = level.peak_bytes
                of_table[f"peak_{name}_step"] = level.step
        effects |= dict.fromkeys(range(first, last + 1), of_table)
    changes = []
    flags: dict[str, bool] = {}
    for at, table in enumerate(tables):
        trainable, frozen = _became(flags, table)
        changes.append(
            LayerChange(
                step=table.step,
                reason=table.reason,
                became_trainable=trainable,
                became_frozen=frozen,
                **vars(layer_totals(table)),
                **effects.get(at, {}),
            )
        )
        flags = trainable_layers(table)
    return changes


def _table_effects(
    tables: Sequence[LayerTable], measured: _Measured
) -> Iterator[tuple[int, int, int, Level | None, Level | None]]:
    """Indices of the table before each change after the start, and of its first and last table; the
    peaks before and after."""
    starts = [
        at for at, table in enumerate(tables) if not at or table.step > tables[at - 1].step + 1
    ]
    places = np.searchsorted(measured.steps, [tables[at].step for at in starts]).tolist()
    is_traced = np.isin(measured.steps, list(measured.traced)) & (measured.peaks != MISSING)
    traced = np.flatnonzero(is_traced)
    ends = [len(tables)], [len(measured.steps)]
    bounds = list(zip(starts + ends[0], places + ends[1], strict=True))
    for (_, start), (first, row), (following, end) in zip(
        bounds, bounds[1:], bounds[2:], strict=False
    ):
        at = int(np.searchsorted(traced, row))
        sides = [(max(start, row - WINDOW), row), (row, min(end, row + WINDOW))]
        if 0 < at < len(traced) and traced[at - 1] >= start and traced[at] < end:
            # the nearest ones
            sides = [(one, one + 1) for one in traced[at - 1 : at + 1].tolist()]
        before, after = (measured.highest(*side) for side in sides)
        yield first - 1, first, following - 1, before, after


@dataclasses.dataclass(frozen=True)
class StepChange:
    """A change, and the compared steps, None if no peak was measured.

    Attributes:
        step, after_step: First step after it, and None; if that is unknown, the traced steps after
            and before it.
        titles: What changed: "batch 4 → 96", "unfroze 8 layers"; empty if that is unknown.
        deliberate: Whether the batch size or the trained layers changed.
        parts: Change of the categories between two traced steps that make up most of it, persistent
            ones first.
        slots_bytes, others_bytes: Growth of the memory of earlier optimizers and of earlier models;
            0 if it is small.
    """

    step: int
    after_step: int | None
    titles: tuple[str, ...]
    deliberate: bool
    before: Level | None
    after: Level | None
    parts: tuple[tuple[Category, int], ...] = ()
    slots_bytes: int = 0
    others_bytes: int = 0
    former_bytes: int = 0

    @property
    def delta_bytes(self) -> int | None:
        if self.before is None or self.after is None:
            return None
        return self.after.peak_bytes - self.before.peak_bytes

    def sentence(self) -> str:
        """The change with its cause and its effect on the peak, in few words."""
        where = f"Step {self.step}"
        if self.after_step is not None:
            where = f"Steps {self.after_step} to {self.step}"
        if not self.deliberate and (self.slots_bytes or self.others_bytes):
            kept = "earlier model" if self.others_bytes else "earlier optimizer"
            return f"{where}: {kept} stays, {signed_bytes(self.others_bytes + self.slots_bytes)}"
        title = ", ".join(self.titles)
        size = None if self.delta_bytes is None else signed_bytes(self.delta_bytes)
        if not title:
            return f"{where}: peak {size}"
        return f"{where}: {title}" if size is None else f"{where}: {title}, {size}"

    def details(self) -> tuple[str, ...]:
        """What the sentence leaves out: the categories of the change, and what stays of earlier
        optimizers."""
        found = []
        if self.parts:
            unit = unit_for(delta for _, delta in self.parts)
            named = (self._part(category, delta, unit) for category, delta in self.parts)
            found.append(f"Mainly {', '.join(named)} {unit}.")
        if self.slots_bytes or self.others_bytes:
            what = "New model: variables of the earlier one"
            if not self.others_bytes:
                what = "Compiled again: slots of the earlier optimizer"
            if self.others_bytes or not any(self._stays_apart(*part) for part in self.parts):
                found.append(f"{what} stay, {signed_bytes(self.others_bytes + self.slots_bytes)}.")
            found.append(
                f"Earlier optimizers and models take {format_bytes(self.former_bytes)} in all. "
                "`tb_memplugin.release_unused()` between two trainings frees them."
            )
        return tuple(found)

    def _stays_apart(self, category: Category, delta: int) -> bool:
        """Whether the change of a category is said without what stays of the earlier optimizer."""
        return (
            category == "optimizer_state"
            and 0 < self.slots_bytes <= delta
            and not self.others_bytes
        )

    def own_bytes(self, category: Category, delta: int) -> int:
        """The change of a category, one of the `parts`, without the slots that stay of the earlier
        optimizer."""
        return delta - self.slots_bytes if self._stays_apart(category, delta) else delta

    def _part(self, category: Category, delta: int, unit: str) -> str:
        own = self.own_bytes(category, delta)
        stayed = f" (and {format_figure(delta - own, unit)} of the earlier optimizer stayed)"
        kept = stayed if own < delta else ""
        return (
            f"{category.replace('_', ' ')} "
            f"{'+' if own >= 0 else '−'}{format_figure(abs(own), unit)}{kept}"
        )


def signed_bytes(delta: int) -> str:
    return f"{'+' if delta >= 0 else '−'}{format_bytes(abs(delta))}"


MAX_NAME_CHARACTERS = 24  # a single layer with a longer name is counted instead
MAX_REASON_CHARACTERS = 40
MAX_PARTS = 2  # most categories that a sentence names
# least ratio of a change between traced steps to a jump for them to stand in for its medians
LEAST_AGREEMENT = 0.5
# categories that change by less than this share of the largest change are not named
_LEAST_PART = 0.1


def step_changes(run: Run, device: str, phase: Phase) -> list[StepChange]:
    measured = _measured(run, device, phase)
    traced, tables = list(measured.traced.values()), run.layer_tables
    pending = batch_changes(traced)
    changes = []
    for old, first, last, before, after in _table_effects(tables, measured):
        step, reason = tables[first].step, tables[first].reason
        inside = [one for one in pending if one[0].step < step <= one[1].step]
        pending = [one for one in pending if one not in inside]
        trainable, frozen = _became(trainable_layers(tables[old]), tables[last])
        titles = [f"unfroze {_layers(trainable)}"] if trainable else []
        titles += [f"froze {_layers(frozen)}"] if frozen else []
        titles += [_batch_title(*one) for one in inside]
        reason = reason if len(reason) <= MAX_REASON_CHARACTERS else "the layer table changed"
        changes.append(
            StepChange(step, None, tuple(titles or [reason]), bool(titles), before, after)
        )
    for was, now in pending:
        found = first_of_level(measured, was, now)
        step, since = (now.step, was.step) if found is None else (found, None)
        levels = measured.at(was), measured.at(now)
        changes.append(StepChange(step, since, (_batch_title(was, now),), True, *levels))
    changes = [_explained(change, measured.traced) for change in changes]
    unchanged = []
    for was, now in itertools.pairwise(traced):
        if any(was.step < change.step <= now.step for change in changes):
            continue
        # Earlier optimizers and models that stay, without another change between the two steps.
        since = was.step if now.step - was.step > 1 else None
        change = StepChange(now.step, since, (), False, measured.at(was), measured.at(now))
        stays = _with_former(change, was, now)
        if stays.slots_bytes or stays.others_bytes:
            changes.append(stays)
        else:
            unchanged.append(change)
    jump = largest_jump(measured.steps, measured.peaks, [change.step for change in changes])
    if jump is not None:
        # Its levels are those of the nearest traced steps if these differ by at least half of it,
        # else the medians.
        before, after = jump.before, jump.after
        for one in unchanged:
            agreement = (one.delta_bytes or 0) / jump.delta_bytes
            if (
                one.before is not None
                and one.after is not None
                and one.before.step < jump.step <= one.after.step
                and agreement >= LEAST_AGREEMENT
            ):
                before, after = one.before, one.after
        found_jump = StepChange(jump.step, None, (), False, before, after)
        changes.append(_explained(found_jump, measured.traced))
    # Deliberate changes are worth naming, those that leave memory behind, and considerable effects.
    named = (
        one
        for one in changes
        if one.deliberate
        or one.slots_bytes
        or one.others_bytes
        or (
            one.before is not None
            and abs(one.delta_bytes or 0) >= least_change(one.before.peak_bytes)
        )
    )
    return sorted(named, key=lambda change: change.step)


def _explained(change: StepChange, traced: dict[int, Snapshot]) -> StepChange:
    """The change with its categories and with what stays of earlier optimizers, if both its steps
    were traced."""
    before = None if change.before is None else traced.get(change.before.step)
    after = None if change.after is None else traced.get(change.after.step)
    if before is None or after is None:
        return change
    whole, deltas = change.delta_bytes or 0, sums_by(after.ledger, lambda row: row.category)
    deltas.subtract(sums_by(before.ledger, lambda row: row.category))
    named = [
        (category, deltas[category])
        for category in CATEGORIES
        if category != "rounding"
        and (category in PERSISTENT or deltas[category] * whole > 0)
        and deltas[category]
    ]
    largest = sorted(named, key=lambda one: -abs(one[1]))[:MAX_PARTS]
    least = _LEAST_PART * max((abs(delta) for _, delta in largest), default=0)
    parts = tuple(one for one in named if one in largest and abs(one[1]) >= least)
    return _with_former(dataclasses.replace(change, parts=parts), before, after)


def _with_former(change: StepChange, before: Snapshot, after: Snapshot) -> StepChange:
    now = former_bytes(after)
    slots, others = (size - was for size, was in zip(now, former_bytes(before), strict=True))
    least = least_change(before.in_use_bytes)
    if slots + others < least:
        return change
    others = others if others >= least else 0
    return dataclasses.replace(
        change, slots_bytes=max(0, slots), others_bytes=others, former_bytes=sum(now)
    )


def _batch_title(before: Snapshot, after: Snapshot) -> str:
    return f"batch {before.batch_size:,} → {after.batch_size:,}"


def _layers(paths: tuple[str, ...]) -> str:
    name = paths[0].rsplit("/", 1)[-1]
    return (
        name
        if len(paths) == 1 and len(name) <= MAX_NAME_CHARACTERS
        else counted(len(paths), "layer")
    )
