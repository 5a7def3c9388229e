"""The rows of the steps of one phase on one device, one row a step, and their composition; sums
over layer tables; epochs and validation passes. Pure.

``server/http_api.md`` states the rules of the composition: bytes by category at every step's peak,
measured at traced steps, inferred between them. Each row sums to the measured peak: a stack above
the peak is cut from the top, a difference below it is ``unattributed``. The row of a failed step
sums to the bytes in use at its failure."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tb_memplugin.schema import (
    CATEGORIES,
    MAX_BYTES,
    MISSING,
    PERSISTENT,
    PHASES,
    DeviceSamples,
    Floats,
    Group,
    Integers,
    LayerTable,
    Phase,
    Run,
    Samples,
    Snapshot,
    extreme_rows,
    group_sums,
    is_cpu,
    join_rows,
    measured_pools,
    missing_rows,
    one_row_a_step,
    optional_column,
    take_rows,
    unfreezing_bytes,
)

_RATIO_STEPS = 1 << 40  # resolution of a ratio as an integer


def step_rows(run: Run, device: str, phase: Phase) -> tuple[Integers, DeviceSamples]:
    """Every step of a phase on a device, ascending, and its figures: the unreduced rows of
    `overview`."""
    rows, _ = rows_of_steps(run, device, phase, None, None, limit=None)
    return rows.step, rows.devices[device]


def snapshots_of(run: Run, device: str, phase: Phase) -> tuple[Snapshot, ...]:
    """The snapshots of a phase on a device, sorted by step and then by bytes in use."""
    own = (one for one in run.snapshots if one.device == device and one.phase == phase)
    return tuple(sorted(own, key=lambda snapshot: (snapshot.step, snapshot.in_use_bytes)))


def rows_of_steps(
    run: Run,
    device: str,
    phase: Phase,
    first_step: int | None,
    last_step: int | None,
    limit: int | None,
) -> tuple[Samples, int]:
    """The rows of an overview, and their number before reduction. Missing peaks are those of
    snapshots; a traced step without a sample has a row, too."""
    recorded, figures = run.samples, run.samples.of(device)
    first, last = first_step or 0, np.iinfo(np.int64).max if last_step is None else last_step
    chosen = phase_steps(run, device, phase)
    steps = recorded.step[chosen]
    inside = (steps >= first) & (steps <= last)
    chosen, steps = chosen[inside], steps[inside]
    # The last snapshot of a step has the most bytes in use.
    highest = {
        one.step: one for one in snapshots_of(run, device, phase) if first <= one.step <= last
    }
    traced = np.asarray(list(highest), np.int64)
    is_sampled = np.isin(traced, steps)
    unsampled = [highest[step] for step in traced[~is_sampled].tolist()]
    total = len(chosen) + len(unsampled)
    if limit is not None and len(chosen) > limit:
        always = np.searchsorted(steps, traced[is_sampled]).tolist()
        chosen = chosen[extreme_rows(_extremes(take_rows(figures, chosen)), limit, always)]
    rows = take_rows(dataclasses.replace(recorded, devices={device: figures}), chosen)
    if unsampled:
        rows = join_rows([rows, _rows_of(unsampled, device)])
        rows = take_rows(rows, np.argsort(rows.step, kind="stable"))
    own = rows.devices[device]
    peaks = own.peak_bytes.copy()  # a column of a run may be read-only
    places = np.searchsorted(rows.step, traced)
    sizes = np.asarray([one.in_use_bytes for one in highest.values()], np.int64)
    peaks[places] = np.where(peaks[places] == MISSING, sizes, peaks[places])
    of_device = {device: dataclasses.replace(own, peak_bytes=peaks)}
    return dataclasses.replace(rows, devices=of_device), total


def _extremes(figures: DeviceSamples) -> list[Integers]:
    """The columns whose extremes a reduction keeps."""
    measured = measured_pools(figures)
    if not measured.any():
        return [figures.peak_bytes, figures.in_use_bytes]
    pools = (figures.pool_bytes, figures.largest_free_bytes)
    ratio = np.nan_to_num(fragmentation(figures), nan=-1)
    return [
        figures.peak_bytes,
        figures.in_use_bytes,
        *(np.where(measured, column, MISSING) for column in pools),
        np.where(ratio < 0, MISSING, ratio * _RATIO_STEPS).astype(np.int64),
    ]


def _rows_of(snapshots: Sequence[Snapshot], device: str) -> Samples:
    """Rows of traced steps without samples."""
    missing = np.full(len(snapshots), MISSING)
    capacities = optional_column(one.capacity_bytes for one in snapshots)
    figures = dataclasses.replace(
        missing_rows(DeviceSamples, len(snapshots)), capacity_bytes=capacities
    )
    return Samples(
        step=np.asarray([one.step for one in snapshots], np.int64),
        phase=np.asarray([PHASES.index(one.phase) for one in snapshots], np.int64),
        epoch=missing,
        wall_time=np.asarray([one.wall_time for one in snapshots]),
        host_resident_bytes=missing,
        devices={device: figures},
    )


def phase_steps(run: Run, device: str, phase: Phase) -> npt.NDArray[np.intp]:
    """The rows of a phase with a value of the device, sorted by step; for each step the row of the
    highest peak."""
    samples = run.samples
    return one_row_a_step(samples.step, samples.of(device), samples.is_of(phase))


def fragmentation(figures: DeviceSamples) -> Floats:
    """1 − largest free chunk / free bytes of each row; NaN if nothing is free or the pool was not
    measured."""
    free = figures.pool_bytes - figures.in_use_bytes
    known = measured_pools(figures) & (free > 0)
    ratio: Floats = np.where(
        known, 1 - figures.largest_free_bytes / np.where(known, free, 1), np.nan
    )
    return ratio


MAX_SPANS = 10_000  # most epochs, and most validation passes, that are reported for a run


@dataclasses.dataclass(frozen=True)
class Epoch:
    epoch: int
    first_step: int
    last_step: int


@dataclasses.dataclass(frozen=True)
class ValidationPass:
    """The validation batches between two training steps; `peak_bytes` is None if unknown."""

    after_step: int
    batches: int
    peak_bytes: int | None


def epochs(run: Run) -> list[Epoch]:
    samples = run.samples
    of_training = samples.is_of("train") & (samples.epoch != MISSING)
    steps, numbers = samples.step[of_training], samples.epoch[of_training]
    return [
        Epoch(int(numbers[begin]), int(steps[begin:end].min()), int(steps[begin:end].max()))
        for begin, end in _stretches(numbers)
    ]


def validation_passes(run: Run, device: str) -> list[ValidationPass]:
    """The validation passes of a training, with their peak on `device`: the batches after its first
    step. Batches before it count as steps of their own."""
    samples = run.samples
    trained = samples.wall_time[samples.is_of("train")].min(initial=np.inf)
    of_validation = samples.is_of("validation") & (samples.wall_time >= trained)
    steps, peaks = samples.step[of_validation], samples.of(device).peak_bytes[of_validation]
    passes = []
    for begin, end in _stretches(steps):
        peak = int(peaks[begin:end].max())
        passes.append(
            ValidationPass(int(steps[begin]), end - begin, None if peak == MISSING else peak)
        )
    return passes


def _stretches(values: Integers) -> list[tuple[int, int]]:
    """Ranges [begin, end) of equal values, the first `MAX_SPANS`."""
    if not len(values):
        return []
    edges = np.flatnonzero(np.diff(values)) + 1
    begins, ends = np.append(0, edges)[:MAX_SPANS], np.append(edges, len(values))[:MAX_SPANS]
    return list(zip(begins.tolist(), ends.tolist(), strict=True))


@dataclasses.dataclass(frozen=True)
class LayerTotals:
    """Sums over a layer table; layers without weights count neither as frozen nor as trainable.
    `statistics_bytes` are never trained, such as moving statistics; `optimizer_bytes` include
    `other_optimizer_bytes`."""

    frozen_weight_bytes: int
    trainable_weight_bytes: int
    statistics_bytes: int
    unfreezing_weight_bytes: int
    optimizer_bytes: int
    other_optimizer_bytes: int
    frozen_layers: int
    trainable_layers: int


def layer_totals(table: LayerTable) -> LayerTotals:
    flags = trainable_layers(table).values()
    frozen = [layer for layer in table.layers if not layer.trainable]
    sums = {
        "frozen_weight_bytes": sum(layer.weight_bytes for layer in frozen),
        "trainable_weight_bytes": sum(layer.trainable_weight_bytes for layer in table.layers),
        "statistics_bytes": sum(
            layer.weight_bytes - layer.trainable_weight_bytes
            for layer in table.layers
            if layer.trainable
        ),
        "unfreezing_weight_bytes": sum(map(unfreezing_bytes, frozen)),
        "optimizer_bytes": sum(layer.optimizer_bytes for layer in table.layers)
        + table.other_optimizer_bytes,
        "other_optimizer_bytes": table.other_optimizer_bytes,
    }
    # Fields of a hostile table are in range, but their sums may not be.
    limited = {name: min(max(0, size), MAX_BYTES) for name, size in sums.items()}
    return LayerTotals(
        **limited, frozen_layers=sum(not on for on in flags), trainable_layers=sum(flags)
    )


def trainable_layers(table: LayerTable) -> dict[str, bool]:
    """Path to whether the layer is trainable, for layers with weights: the others are neither
    frozen nor trainable."""
    return {layer.path: layer.trainable for layer in table.layers if layer.weight_bytes}


def table_at(tables: Sequence[LayerTable], step: int | None) -> LayerTable | None:
    """The table valid at `step` (None: the last one); the first for earlier steps; None without
    tables."""
    valid = [table for table in tables if step is None or table.step <= step]
    return valid[-1] if valid else next(iter(tables), None)


@dataclasses.dataclass(frozen=True)
class Overview:
    """The steps of one phase on one device; arrays have one value per row, int64 with `MISSING`
    unless noted.

    Attributes:
        total_rows: Rows before reduction.
        groups, composition: In stack order; shape [rows, groups], `MISSING` if the peak is unknown.
        snapshot: Index into `snapshots` of the composition's source, `NO_SNAPSHOT` if none.
        traced: Whether that snapshot is of the same step: traced, or at its failure."""

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
    run: Run,
    device: str,
    phase: Phase,
    first_step: int | None,
    last_step: int | None,
    limit: int | None,
) -> Overview:
    """The overview of the steps from `first_step` to `last_step`, about `limit` rows at most, of
    the run of one worker.

    A reduction keeps recorded rows: all traced steps, and every bucket's extremes of the peak, the
    bytes in use and, if measured, the pool, its largest free chunk and its fragmentation."""
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
    steps = {
        one.step: ledger
        for one, ledger in zip(snapshots, ledgers, strict=True)
        if not one.at_failure
    }
    if steps:
        columns = np.flatnonzero([category in _LONG_LIVED for category, _ in groups])
        number = np.asarray(list(steps), np.int64)
        measured = np.asarray(
            [[sums.get(groups[at], 0) for at in columns.tolist()] for sums in steps.values()]
        )
        # From all samples, so that no zoom changes them.
        chosen = phase_steps(run, device, phase)
        every = run.samples.step[chosen]
        ends = np.full(len(number), MISSING)
        if len(chosen):
            place = np.minimum(np.searchsorted(every, number), len(chosen) - 1)
            in_use = run.samples.of(device).in_use_bytes[chosen[place]]
            ends = np.where(every[place] == number, in_use, MISSING)
        own = EndMemory(number, ends, _table_of(number, table_steps))
        values, has_table = long_lived(moments, own, measured)
        stacks[np.ix_(inferred[has_table], columns)] = values[has_table]
    # Memory that outlives the step is still in use at its end: a stack of it above that is cut from
    # the top.
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
_OTHER_GROUPS: tuple[Group, ...] = tuple(
    (category, None) for category in CATEGORIES if category != "weights"
)
# are interpolated: many small tensors take more rounding than bytes
_LONG_LIVED = (*PERSISTENT, "rounding")
NO_SNAPSHOT = -1


class EndMemory(NamedTuple):
    """Steps, ascending: their numbers, their bytes in use at step end (`MISSING` if unknown), their
    layer tables."""

    step: Integers
    end_bytes: Integers
    table: Integers


def long_lived(
    rows: EndMemory, traced: EndMemory, measured: Integers
) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Bytes by category of each row, and whether a traced step has the row's layer table; 0 for
    rows without one.

    Between two traced steps the bytes are interpolated: by the bytes in use at step end if these
    explain most of the change, else by the step. Before the first and after the last one, a rise of
    the bytes in use belongs to the categories that grew between the two nearest traced steps, in
    the same proportion; with one traced step, the bytes stay as they were. `measured` are the bytes
    of the traced steps, which `traced` has once each: [traced, categories].
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
    shares = np.where(
        (rise > 0)[:, None], grown / np.maximum(np.maximum(rise, grown.sum(axis=1)), 1)[:, None], 0
    )
    added = np.where(between[:, None], way[:, None] * change, since[:, None] * shares)
    values[known] = np.rint(np.maximum(measured[anchor] + added, 0))
    return values, known


def _table_of(steps: Integers, table_steps: Integers) -> Integers:
    """Index of the layer table valid at each step."""
    return np.maximum(np.searchsorted(table_steps, steps, side="right") - 1, 0).astype(np.int64)


def sources_of(
    steps: Integers, snapshots: Sequence[Snapshot], tables: Sequence[LayerTable]
) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Index of the snapshot that describes each step, `NO_SNAPSHOT` if none, and whether it is the
    step's own.

    It is the last one up to the step, else the first, but the next one if the layer table changed
    between the last one and the step, and not until the next. The breakdown at a failure describes
    its own step alone."""
    number = np.asarray([snapshot.step for snapshot in snapshots], np.int64)
    traced = np.flatnonzero([not snapshot.at_failure for snapshot in snapshots])
    table_steps = np.asarray([table.step for table in tables], np.int64)
    index = np.full(len(steps), NO_SNAPSHOT)
    if len(traced):
        own = number[traced]
        following = np.searchsorted(own, steps, side="right")
        # Use the last of several snapshots of the first step, as for any other step.
        chosen = np.maximum(following - 1, int(np.searchsorted(own, own[0], side="right")) - 1)
        last_of_step = (
            np.searchsorted(own, own[np.minimum(following, len(own) - 1)], side="right") - 1
        )
        step_table, own_table = _table_of(steps, table_steps), _table_of(own, table_steps)
        better = (
            (own_table[chosen] != step_table)
            & (following < len(own))
            & (own_table[last_of_step] == step_table)
        )
        index = traced[np.where(better, last_of_step, chosen)].astype(np.int64)
    for at, snapshot in enumerate(snapshots):
        if snapshot.at_failure:
            index[steps == snapshot.step] = at
    return index, (index != NO_SNAPSHOT) & (np.append(number, MISSING)[index] == steps)


def first_described(snapshots: Sequence[Snapshot], tables: Sequence[LayerTable]) -> list[int]:
    """The first step that each snapshot describes: its own, or an earlier one at which the layer
    table changed."""
    own = [snapshot.step for snapshot in snapshots]
    steps = np.unique(np.asarray([*own, *(table.step for table in tables)], np.int64))
    described = sources_of(steps, snapshots, tables)[0]
    return [min(steps[described == at].tolist(), default=step) for at, step in enumerate(own)]
