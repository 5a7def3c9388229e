"""Which category holds how many bytes at every step's peak. Pure.

It is measured at traced steps (snapshots) and inferred in between, as ``server/http_api.md`` says; in every row it sums
to the measured peak exactly: what lies above a peak is cut from the top of the stack, and what the peak has above it is
``unattributed``.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tb_memplugin.analysis.changes import layer_totals
from tb_memplugin.analysis.reduce import extreme_rows
from tb_memplugin.codec import MISSING
from tb_memplugin.model import (
    CATEGORIES,
    PHASES,
    Category,
    DeviceSamples,
    Integers,
    LayerTable,
    LedgerRow,
    Phase,
    Run,
    Samples,
    Snapshot,
)

Group: TypeAlias = tuple[Category, bool | None]
"""A category and, for weights, whether they are trainable."""

_FROZEN: Group = ("weights", False)
_TRAINABLE: Group = ("weights", True)
_EITHER: Group = ("weights", None)
_OPTIMIZER: Group = ("optimizer_state", None)
_OTHER_GROUPS: tuple[Group, ...] = tuple((category, None) for category in CATEGORIES if category != "weights")
NO_SNAPSHOT = -1


@dataclasses.dataclass(frozen=True)
class Overview:
    """The steps of one phase on one device; arrays have one value a row, int64 with `MISSING` unless said.

    Attributes:
        total_rows: Rows before reduction.
        step, epoch, wall_time (float64, NaN), host_resident_bytes: Of the step.
        figures: The device's figures; the peak is that of the snapshot where no sample tells it.
        groups: What the columns of `composition` are, in stack order.
        composition: Shape [rows, groups]; sums to the peak in every row; a row without a known peak is all `MISSING`.
        snapshot: Index into `snapshots` of the one that the composition is from, `NO_SNAPSHOT` if none.
        traced: Whether that snapshot is of this very step.
        snapshots: Those of this phase and device, in order of steps.
    """

    total_rows: int
    step: Integers
    epoch: Integers
    wall_time: npt.NDArray[np.float64]
    host_resident_bytes: Integers
    figures: DeviceSamples
    groups: tuple[Group, ...]
    composition: Integers
    snapshot: Integers
    traced: npt.NDArray[np.bool_]
    snapshots: tuple[Snapshot, ...]


def overview(
    run: Run, device: str, phase: Phase, first_step: int | None, last_step: int | None, limit: int
) -> Overview:
    """The overview of the steps from `first_step` to `last_step`, about `limit` rows at most.

    Args:
        run: As one worker saw it; `device` is one of its devices, or of its snapshots'.
        limit: Rows; fewer than the steps are real rows with every bucket's extremes of peak and in use, and all traced
            steps.
    """
    snapshots = snapshots_of(run, device, phase)
    figures = run.samples.devices.get(device)
    chosen = _one_row_a_step(run.samples, figures, phase)
    steps = run.samples.step[chosen]
    begin = 0 if first_step is None else int(np.searchsorted(steps, first_step, side="left"))
    end = len(steps) if last_step is None else int(np.searchsorted(steps, last_step, side="right"))
    chosen, steps = chosen[begin:end], steps[begin:end]
    # The last one of a step is the one with the most in use.
    highest = {
        taken.step: taken
        for taken in snapshots
        if (first_step is None or taken.step >= first_step) and (last_step is None or taken.step <= last_step)
    }
    traced, alone = _places(steps, highest)
    if figures is not None and len(chosen):
        extremes = [figures.peak_bytes[chosen], figures.in_use_bytes[chosen]]
        chosen, total = chosen[extreme_rows(extremes, limit, traced)], len(chosen) + len(alone)
    else:
        figures, total = _no_figures(len(run.samples)), len(alone)
    rows = _take(dataclasses.replace(run.samples, devices={device: figures}), chosen)
    rows = _with_snapshots(rows, device, phase, highest, alone)
    figures = rows.devices[device]
    taken_steps = np.asarray([taken.step for taken in snapshots], np.int64)
    table_steps = np.asarray([table.step for table in run.layer_tables], np.int64)
    index = _snapshot_of(rows.step, taken_steps, table_steps)
    groups, composition = _composition(run, device, rows.step, figures.peak_bytes, snapshots, index)
    return Overview(
        total_rows=total,
        step=rows.step,
        epoch=rows.epoch,
        wall_time=rows.wall_time,
        host_resident_bytes=rows.host_resident_bytes,
        figures=figures,
        groups=groups,
        composition=composition,
        snapshot=index,
        traced=(index != NO_SNAPSHOT) & (taken_steps[index] == rows.step) if len(taken_steps) else index > NO_SNAPSHOT,
        snapshots=snapshots,
    )


def snapshots_of(run: Run, device: str, phase: Phase) -> tuple[Snapshot, ...]:
    """The snapshots of a phase on a device in order of steps; of several of a step the fullest is last."""
    return tuple(
        taken
        for taken in sorted(run.snapshots, key=lambda taken: (taken.step, taken.in_use_bytes))
        if taken.device == device and taken.phase == phase
    )


def holds_model(run: Run, device: str) -> bool:
    """Whether the model's weights lie on `device`: on the accelerators if the run has any."""
    names = set(run.samples.devices) | {taken.device for taken in run.snapshots}
    accelerators = {name for name in names if not name.upper().startswith("CPU")}
    return not accelerators or device in accelerators


# --- rows ------------------------------------------------------------------------------------------------------------


def _one_row_a_step(samples: Samples, figures: DeviceSamples | None, phase: Phase) -> npt.NDArray[np.intp]:
    """The rows of a phase with any figure of the device, in order of steps; of several of a step the highest peak's."""
    if figures is None:
        return np.empty(0, np.intp)
    known = (figures.peak_bytes != MISSING) | (figures.in_use_bytes != MISSING)
    known |= figures.driver_process_bytes != MISSING
    chosen = np.flatnonzero((samples.phase == PHASES.index(phase)) & known)
    steps = samples.step[chosen]
    if (np.diff(steps) <= 0).any():
        # Sorted by step and peak, the last row of a step has its highest peak.
        chosen = chosen[np.lexsort((figures.peak_bytes[chosen], steps))]
        steps = samples.step[chosen]
        chosen = chosen[np.append(steps[1:] != steps[:-1], True)]
    return chosen


def _places(steps: Integers, highest: Mapping[int, Snapshot]) -> tuple[list[int], list[Snapshot]]:
    """Where the traced steps are among `steps` (ascending), and the snapshots of those that are not there."""
    places, alone = [], []
    for step, taken in highest.items():
        at = int(np.searchsorted(steps, step))
        if at < len(steps) and steps[at] == step:
            places.append(at)
        else:
            alone.append(taken)
    return places, alone


def _with_snapshots(
    rows: Samples, device: str, phase: Phase, highest: Mapping[int, Snapshot], alone: Sequence[Snapshot]
) -> Samples:
    """`rows` with the peaks that only a snapshot tells, and with a row for each traced step that has no sample."""
    figures = rows.devices[device]
    for at in np.flatnonzero(figures.peak_bytes == MISSING).tolist():
        if int(rows.step[at]) in highest:
            figures.peak_bytes[at] = highest[int(rows.step[at])].in_use_bytes
    if not alone:
        return rows
    missing = np.full(len(alone), MISSING)
    capacity = np.asarray(
        [MISSING if taken.capacity_bytes is None else taken.capacity_bytes for taken in alone], np.int64
    )
    peaks = np.asarray([taken.in_use_bytes for taken in alone], np.int64)
    added = DeviceSamples(missing, peaks, capacity, missing, missing, missing)
    joined = Samples(
        step=np.append(rows.step, np.asarray([taken.step for taken in alone], np.int64)),
        phase=np.append(rows.phase, np.full(len(alone), PHASES.index(phase))),
        epoch=np.append(rows.epoch, missing),
        wall_time=np.append(rows.wall_time, [taken.wall_time for taken in alone]),
        host_resident_bytes=np.append(rows.host_resident_bytes, missing),
        devices={
            device: DeviceSamples(
                **{
                    field.name: np.append(getattr(figures, field.name), getattr(added, field.name))
                    for field in dataclasses.fields(DeviceSamples)
                }
            )
        },
    )
    return _take(joined, np.argsort(joined.step, kind="stable"))


def _take(samples: Samples, rows: npt.NDArray[np.intp]) -> Samples:
    return Samples(
        samples.step[rows],
        samples.phase[rows],
        samples.epoch[rows],
        samples.wall_time[rows],
        samples.host_resident_bytes[rows],
        {
            name: DeviceSamples(
                **{field.name: getattr(figures, field.name)[rows] for field in dataclasses.fields(DeviceSamples)}
            )
            for name, figures in samples.devices.items()
        },
    )


def _no_figures(rows: int) -> DeviceSamples:
    missing = np.full(rows, MISSING)
    return DeviceSamples(missing, missing, missing, missing, missing, missing)


# --- composition -----------------------------------------------------------------------------------------------------


def _snapshot_of(steps: Integers, taken_steps: Integers, table_steps: Integers) -> Integers:
    """For each step the last snapshot that is not after it; before the first one, the first.

    If the layer table has changed since that snapshot and not until the next one, the next one.
    """
    if not len(taken_steps):
        return np.full(len(steps), NO_SNAPSHOT)
    index = np.searchsorted(taken_steps, steps, side="right") - 1
    # Of several snapshots of the first step the last one counts, as for any other step.
    first = int(np.searchsorted(taken_steps, taken_steps[0], side="right")) - 1
    index = np.maximum(index, first).astype(np.int64)
    following = np.searchsorted(taken_steps, steps, side="right")
    # Of several of that step, too.
    last_of_step = np.searchsorted(taken_steps, taken_steps[np.minimum(following, len(taken_steps) - 1)], side="right")
    own, snapshots = _table_of(steps, table_steps), _table_of(taken_steps, table_steps)
    better = (snapshots[index] != own) & (following < len(taken_steps)) & (snapshots[last_of_step - 1] == own)
    chosen: Integers = np.where(better, last_of_step - 1, index)
    return chosen


def _table_of(steps: Integers, table_steps: Integers) -> Integers:
    """Which layer table holds at each step."""
    return np.maximum(np.searchsorted(table_steps, steps, side="right") - 1, 0).astype(np.int64)


def _composition(
    run: Run, device: str, steps: Integers, peaks: Integers, snapshots: Sequence[Snapshot], index: Integers
) -> tuple[tuple[Group, ...], Integers]:
    ledgers = [_ledger_groups(taken.ledger) for taken in snapshots]
    unknown_weights = any(_EITHER in ledger for ledger in ledgers)
    groups = (_FROZEN, _TRAINABLE, *((_EITHER,) if unknown_weights else ()), *_OTHER_GROUPS)
    tables = run.layer_tables if holds_model(run, device) else ()
    table_steps = np.asarray([table.step for table in tables], np.int64)
    row_table = _table_of(steps, table_steps)
    # Few different pairs of snapshot and layer table occur: each is stacked once.
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
    """The stack of a snapshot, with what stays taken from the layer table where that is not the snapshot's."""
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


def _ledger_groups(ledger: Sequence[LedgerRow]) -> dict[Group, int]:
    sums: dict[Group, int] = {}
    for row in ledger:
        group: Group = (row.category, row.trainable if row.category == "weights" else None)
        sums[group] = sums.get(group, 0) + row.bytes
    return sums


def _fit(stacks: Integers, peaks: Integers) -> Integers:
    """`stacks`, shape [rows, groups], cut from the top or filled up in the last group to sum to `peaks`."""
    known = np.where(peaks == MISSING, 0, peaks)
    heights = np.minimum(np.cumsum(stacks, axis=1), known[:, None])
    fitted = np.diff(heights, axis=1, prepend=0)
    fitted[:, -1] += known - heights[:, -1] if stacks.shape[1] else 0
    fitted[peaks == MISSING] = MISSING
    return np.asarray(fitted, np.int64)
