"""Samples, traced steps and their composition at the steps of one phase on one device. Pure.

``server/http_api.md`` states the rules of the composition: bytes by category at every step's peak, measured at traced
steps, inferred between them. Each row sums to the measured peak: a stack above the peak is cut from the top, a
difference below it is ``unattributed``. The row of a failed step sums to the bytes in use at its failure.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tb_memplugin.analysis.changes import layer_totals
from tb_memplugin.analysis.rows import phase_steps, rows_of_steps, snapshots_of
from tb_memplugin.schema import (
    CATEGORIES,
    MISSING,
    PERSISTENT,
    DeviceSamples,
    Group,
    Integers,
    LayerTable,
    Phase,
    Run,
    Samples,
    Snapshot,
    group_sums,
    is_cpu,
)


@dataclasses.dataclass(frozen=True)
class Overview:
    """The steps of one phase on one device; arrays have one value per row, int64 with `MISSING` unless noted.

    Attributes:
        total_rows: Rows before reduction.
        rows: Samples of the device; a peak without a sample is that of the snapshot.
        groups: Columns of `composition`, in stack order.
        composition: Shape [rows, groups]; each row sums to the peak, that of a failed step to the bytes in use at
            the failure; `MISSING` if the peak is unknown.
        snapshot: Index into `snapshots` of the composition's source, `NO_SNAPSHOT` if none.
        traced: Whether that snapshot is of the same step: traced, or at its failure.
    """

    device: str
    total_rows: int
    rows: Samples
    groups: tuple[Group, ...]
    composition: Integers
    snapshot: Integers
    traced: npt.NDArray[np.bool_]
    snapshots: tuple[Snapshot, ...]

    @property
    def figures(self) -> DeviceSamples:
        return self.rows.devices[self.device]


def overview(
    run: Run, device: str, phase: Phase, first_step: int | None, last_step: int | None, limit: int | None
) -> Overview:
    """The overview of the steps from `first_step` to `last_step`, about `limit` rows at most, of the run of one worker.

    A reduction keeps recorded rows: all traced steps, and every bucket's extremes of the peak, the bytes in use and, if
    measured, the pool, its largest free chunk and its fragmentation.
    """
    snapshots = snapshots_of(run, device, phase)
    rows, total = rows_of_steps(run, device, phase, first_step, last_step, limit)
    snapshot, traced = sources_of(rows.step, snapshots, run.layer_tables)
    figures = rows.devices[device]
    ledgers = [group_sums(one.ledger) for one in snapshots]
    either = (_EITHER,) if any(_EITHER in ledger for ledger in ledgers) else ()
    groups = (_FROZEN, _TRAINABLE, *either, *_OTHER_GROUPS)
    # The model's weights are on the accelerators if the run has any.
    names = {*run.samples.devices, *(one.device for one in run.snapshots)}
    tables = run.layer_tables if not is_cpu(device) or all(map(is_cpu, names)) else ()
    table_steps = np.asarray([table.step for table in tables], np.int64)
    row_table = _table_of(rows.step, table_steps)
    # There are few distinct pairs of snapshot and layer table: compute the stack of each once.
    count = max(1, len(tables))
    pairs, of_row = np.unique((snapshot + 1) * count + row_table, return_inverse=True)
    bases = np.zeros((len(pairs), len(groups)), np.int64)
    own_steps = np.asarray([one.step for one in snapshots], np.int64)
    own_table = [*_table_of(own_steps, table_steps).tolist(), NO_SNAPSHOT]
    for at, pair in enumerate(pairs.tolist()):
        source, table = pair // count - 1, pair % count
        stack = dict(ledgers[source]) if source != NO_SNAPSHOT else {}
        if tables and own_table[source] != table:
            # It changed since the snapshot: weights and optimizer state are those of the table.
            totals = layer_totals(tables[table])
            stack.pop(_EITHER, None)
            stack[_FROZEN] = totals.frozen_weight_bytes + totals.statistics_bytes
            stack[_TRAINABLE] = totals.trainable_weight_bytes
            stack[_OPTIMIZER] = totals.optimizer_bytes
        bases[at] = [stack.get(group, 0) for group in groups]
    stacks = bases[of_row]
    inferred = np.flatnonzero(~traced)
    moments = EndMemory(rows.step[inferred], figures.in_use_bytes[inferred], row_table[inferred])
    # The last snapshot of a step has the most bytes in use.
    steps = {one.step: ledger for one, ledger in zip(snapshots, ledgers, strict=True) if not one.at_failure}
    if steps:
        columns = np.flatnonzero([category in _LONG_LIVED for category, _ in groups])
        number = np.asarray(list(steps), np.int64)
        measured = np.asarray([[sums.get(groups[at], 0) for at in columns.tolist()] for sums in steps.values()])
        # From all samples, so that no zoom changes them.
        chosen = phase_steps(run, device, phase)
        ends = np.full(len(number), MISSING)
        if len(chosen):
            place = np.minimum(np.searchsorted(run.samples.step[chosen], number), len(chosen) - 1)
            found = run.samples.step[chosen][place] == number
            ends[found] = run.samples.devices[device].in_use_bytes[chosen][place[found]]
        own = EndMemory(number, ends, _table_of(number, table_steps))
        values, has_table = long_lived(moments, own, measured)
        stacks[np.ix_(inferred[has_table], columns)] = values[has_table]
    # Memory that outlives the step is still in use at its end: a stack of it above that is cut from the top.
    outlive = sum(category in PERSISTENT for category, _ in groups)  # the lowest ones of the stack
    most = np.where(moments.end_bytes == MISSING, np.iinfo(np.int64).max, moments.end_bytes)
    below = np.minimum(np.cumsum(stacks[inferred, :outlive], axis=1), most[:, None])
    stacks[inferred, :outlive] = np.diff(below, axis=1, prepend=0)
    heights = figures.peak_bytes.copy()
    for at, one in enumerate(snapshots):
        if one.at_failure:
            heights[snapshot == at] = one.in_use_bytes
    # Rows sum to their heights: stacks are cut from the top, or filled up in the last group.
    known = np.where(heights == MISSING, 0, heights)
    tops = np.minimum(np.cumsum(stacks, axis=1), known[:, None])
    fitted = np.diff(tops, axis=1, prepend=0)
    fitted[:, -1] += known - tops[:, -1]
    fitted[heights == MISSING] = MISSING
    return Overview(device, total, rows, groups, fitted, snapshot, traced, snapshots)


_FROZEN: Group = ("weights", False)
_TRAINABLE: Group = ("weights", True)
_EITHER: Group = ("weights", None)
_OPTIMIZER: Group = ("optimizer_state", None)
_OTHER_GROUPS: tuple[Group, ...] = tuple((category, None) for category in CATEGORIES if category != "weights")
_LONG_LIVED = (*PERSISTENT, "rounding")
"""Categories that are interpolated: many small tensors take more rounding than bytes."""
NO_SNAPSHOT = -1


class EndMemory(NamedTuple):
    """Steps, ascending: their numbers, their bytes in use at step end (`MISSING` if unknown), their layer tables."""

    step: Integers
    end_bytes: Integers
    table: Integers


def long_lived(rows: EndMemory, traced: EndMemory, measured: Integers) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Bytes by category of each row, and whether a traced step has the row's layer table; 0 for rows without one.

    Between two traced steps the bytes are interpolated: by the bytes in use at step end if these explain most of the
    change, else by the step. Before the first and after the last one, a rise of the bytes in use belongs to the
    categories that grew between the two nearest traced steps, in the same proportion; with one traced step, the bytes
    stay as they were. `measured` are the bytes of the traced steps, which `traced` has once each: [traced, categories].
    """
    known = np.isin(rows.table, traced.table)
    values = np.zeros((len(rows.step), measured.shape[1]), np.int64)
    if not known.any():
        return values, known
    step, row_ends, table = (column[known] for column in rows)
    first, end = (np.searchsorted(traced.table, table, side=side) for side in ("left", "right"))
    after = np.clip(np.searchsorted(traced.step, step, side="right"), first, end)
    between = (after > first) & (after < end)
    # The traced step that the bytes start from, and the two that tell what changes.
    anchor = np.where(after > first, after - 1, first)
    low = np.clip(after - 1, first, np.maximum(end - 2, first))
    high = np.minimum(low + 1, end - 1)
    change = (measured[high] - measured[low]).astype(np.float64)
    ends = traced.end_bytes
    has_ends = (np.stack([row_ends, ends[anchor], ends[low], ends[high]]) != MISSING).all(axis=0)
    rise = np.where(has_ends, ends[high] - ends[low], 0).astype(np.float64)
    since = np.where(has_ends, row_ends - ends[anchor], 0).astype(np.float64)
    by_step = (step - traced.step[low]) / np.maximum(traced.step[high] - traced.step[low], 1)
    explained = (rise != 0) & (2 * np.abs(rise) >= np.abs(change).sum(axis=1))
    way = np.where(explained, np.clip(since / np.where(rise == 0, 1, rise), 0, 1), by_step)
    grown = np.maximum(change, 0)
    shares = np.where((rise > 0)[:, None], grown / np.maximum(np.maximum(rise, grown.sum(axis=1)), 1)[:, None], 0)
    added = np.where(between[:, None], way[:, None] * change, since[:, None] * shares)
    values[known] = np.rint(np.maximum(measured[anchor] + added, 0))
    return values, known


def _table_of(steps: Integers, table_steps: Integers) -> Integers:
    """Index of the layer table valid at each step."""
    return np.maximum(np.searchsorted(table_steps, steps, side="right") - 1, 0).astype(np.int64)


def sources_of(
    steps: Integers, snapshots: Sequence[Snapshot], tables: Sequence[LayerTable]
) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Index of the snapshot that describes each step, `NO_SNAPSHOT` if none, and whether it is the step's own.

    It is the last one up to the step, else the first, but the next one if the layer table changed between the last one
    and the step, and not until the next. The breakdown at a failure describes its own step alone.
    """
    number = np.asarray([snapshot.step for snapshot in snapshots], np.int64)
    traced = np.flatnonzero([not snapshot.at_failure for snapshot in snapshots])
    table_steps = np.asarray([table.step for table in tables], np.int64)
    index = np.full(len(steps), NO_SNAPSHOT)
    if len(traced):
        own = number[traced]
        following = np.searchsorted(own, steps, side="right")
        # Use the last of several snapshots of the first step, as for any other step.
        chosen = np.maximum(following - 1, int(np.searchsorted(own, own[0], side="right")) - 1)
        last_of_step = np.searchsorted(own, own[np.minimum(following, len(own) - 1)], side="right") - 1
        step_table, own_table = _table_of(steps, table_steps), _table_of(own, table_steps)
        better = (own_table[chosen] != step_table) & (following < len(own)) & (own_table[last_of_step] == step_table)
        index = traced[np.where(better, last_of_step, chosen)].astype(np.int64)
    for at, snapshot in enumerate(snapshots):
        if snapshot.at_failure:
            index[steps == snapshot.step] = at
    return index, (index != NO_SNAPSHOT) & (np.append(number, MISSING)[index] == steps)


def first_described(snapshots: Sequence[Snapshot], tables: Sequence[LayerTable]) -> list[int]:
    """The first step that each snapshot describes: its own, or an earlier one at which the layer table changed."""
    own = [snapshot.step for snapshot in snapshots]
    steps = np.unique(np.asarray([*own, *(table.step for table in tables)], np.int64))
    described = sources_of(steps, snapshots, tables)[0]
    return [min(steps[described == at].tolist(), default=step) for at, step in enumerate(own)]
