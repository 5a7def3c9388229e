"""Bytes by category at every step's peak: measured at traced steps, inferred between them. Pure.

``server/http_api.md`` states the rules. Each row sums to the measured peak: a stack above the peak is cut from the top,
a difference below it is ``unattributed``.
"""

from collections.abc import Sequence

import numpy as np

from tb_memplugin.analysis.changes import layer_totals
from tb_memplugin.analysis.ledger_totals import Group, group_sums
from tb_memplugin.model import CATEGORIES, MISSING, Integers, LayerTable, Run, Snapshot

_FROZEN: Group = ("weights", False)
_TRAINABLE: Group = ("weights", True)
_EITHER: Group = ("weights", None)
_OPTIMIZER: Group = ("optimizer_state", None)
_OTHER_GROUPS: tuple[Group, ...] = tuple((category, None) for category in CATEGORIES if category != "weights")
NO_SNAPSHOT = -1


def holds_model(run: Run, device: str) -> bool:
    """Whether the model's weights are on `device`: on the accelerators if the run has any."""
    names = set(run.samples.devices) | {snapshot.device for snapshot in run.snapshots}
    accelerators = {name for name in names if not name.upper().startswith("CPU")}
    return not accelerators or device in accelerators


def snapshot_of(steps: Integers, traced_steps: Integers, table_steps: Integers) -> Integers:
    """Index of the snapshot that describes each step: the last one up to the step, else the first.

    It is the next one if the layer table changed between the last snapshot and the step, but not until the next.
    """
    if not len(traced_steps):
        return np.full(len(steps), NO_SNAPSHOT)
    index = np.searchsorted(traced_steps, steps, side="right") - 1
    # Use the last of several snapshots of the first step, as for any other step.
    first = int(np.searchsorted(traced_steps, traced_steps[0], side="right")) - 1
    index = np.maximum(index, first).astype(np.int64)
    following = np.searchsorted(traced_steps, steps, side="right")
    last_of_step = np.searchsorted(
        traced_steps, traced_steps[np.minimum(following, len(traced_steps) - 1)], side="right"
    )
    step_table, traced_table = _table_of(steps, table_steps), _table_of(traced_steps, table_steps)
    changed = traced_table[index] != step_table
    better = changed & (following < len(traced_steps)) & (traced_table[last_of_step - 1] == step_table)
    chosen: Integers = np.where(better, last_of_step - 1, index)
    return chosen


def _table_of(steps: Integers, table_steps: Integers) -> Integers:
    """Index of the layer table valid at each step."""
    return np.maximum(np.searchsorted(table_steps, steps, side="right") - 1, 0).astype(np.int64)


def composition_of(
    run: Run, device: str, steps: Integers, peaks: Integers, snapshots: Sequence[Snapshot], index: Integers
) -> tuple[tuple[Group, ...], Integers]:
    ledgers = [group_sums(snapshot.ledger) for snapshot in snapshots]
    unknown_weights = any(_EITHER in ledger for ledger in ledgers)
    groups = (_FROZEN, _TRAINABLE, *((_EITHER,) if unknown_weights else ()), *_OTHER_GROUPS)
    tables = run.layer_tables if holds_model(run, device) else ()
    table_steps = np.asarray([table.step for table in tables], np.int64)
    row_table = _table_of(steps, table_steps)
    # There are few distinct pairs of snapshot and layer table: compute the stack of each once.
    count = max(1, len(tables))
    pairs, of_row = np.unique((index + 1) * count + row_table, return_inverse=True)
    bases = np.zeros((len(pairs), len(groups)), np.int64)
    for at, pair in enumerate(pairs.tolist()):
        snapshot, table = pair // count - 1, pair % count
        bases[at] = _base(groups, ledgers, snapshots, snapshot, tables, table_steps, table)
    return groups, _fit(bases[of_row], peaks)


def _base(
    groups: Sequence[Group],
    ledgers: Sequence[dict[Group, int]],
    snapshots: Sequence[Snapshot],
    snapshot: int,
    tables: Sequence[LayerTable],
    table_steps: Integers,
    table: int,
) -> list[int]:
    """The stack of a snapshot; weights and optimizer state from the layer table if it changed since the snapshot."""
    stack = dict(ledgers[snapshot]) if snapshot != NO_SNAPSHOT else {}
    if tables:
        own = NO_SNAPSHOT
        if snapshot != NO_SNAPSHOT:
            own = int(_table_of(np.asarray([snapshots[snapshot].step]), table_steps)[0])
        if own != table:
            totals = layer_totals(tables[table])
            stack.pop(_EITHER, None)
            stack[_FROZEN], stack[_TRAINABLE] = totals.frozen_weight_bytes, totals.trainable_weight_bytes
            stack[_OPTIMIZER] = totals.optimizer_bytes
    return [stack.get(group, 0) for group in groups]


def _fit(stacks: Integers, peaks: Integers) -> Integers:
    """`stacks`, shape [rows, groups], cut from the top or filled up in the last group so that rows sum to `peaks`."""
    known = np.where(peaks == MISSING, 0, peaks)
    heights = np.minimum(np.cumsum(stacks, axis=1), known[:, None])
    fitted = np.diff(heights, axis=1, prepend=0)
    fitted[:, -1] += known - heights[:, -1] if stacks.shape[1] else 0
    fitted[peaks == MISSING] = MISSING
    return np.asarray(fitted, np.int64)
