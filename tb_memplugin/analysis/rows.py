"""The recorded rows of the steps of one phase on one device, one row a step; its traced steps: which can be compared,
lasting changes of the batch size, categories; epochs and validation passes. Pure."""

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tb_memplugin.schema import (
    CATEGORIES,
    MISSING,
    PHASES,
    SAMPLE_COLUMNS,
    Category,
    DeviceSamples,
    Floats,
    Integers,
    Phase,
    Run,
    Samples,
    Snapshot,
    extreme_rows,
    former_name,
    join_rows,
    measured_pools,
    one_row_a_step,
    optional_column,
    take_rows,
)

_RATIO_STEPS = 1 << 40
"""Resolution of a ratio as an integer."""


def step_rows(run: Run, device: str, phase: Phase) -> tuple[Integers, DeviceSamples]:
    """Every step of a phase on a device, ascending, and its figures: the unreduced rows of `overview`."""
    rows, _ = rows_of_steps(run, device, phase, None, None, limit=None)
    return rows.step, rows.devices[device]


def snapshots_of(run: Run, device: str, phase: Phase) -> tuple[Snapshot, ...]:
    """The snapshots of a phase on a device, sorted by step and then by bytes in use."""
    own = (one for one in run.snapshots if one.device == device and one.phase == phase)
    return tuple(sorted(own, key=lambda snapshot: (snapshot.step, snapshot.in_use_bytes)))


def rows_of_steps(
    run: Run, device: str, phase: Phase, first_step: int | None, last_step: int | None, limit: int | None
) -> tuple[Samples, int]:
    """The rows of an overview, and their number before reduction.

    Missing peaks are those of snapshots; a traced step without a sample has a row, too.
    """
    figures = run.samples.devices.get(device)
    first, last = first_step or 0, np.iinfo(np.int64).max if last_step is None else last_step
    chosen = phase_steps(run, device, phase)
    steps = run.samples.step[chosen]
    chosen = chosen[(steps >= first) & (steps <= last)]
    steps = run.samples.step[chosen]
    # The last snapshot of a step has the most bytes in use.
    highest = {one.step: one for one in snapshots_of(run, device, phase) if first <= one.step <= last}
    traced = np.asarray(list(highest), np.int64)
    is_sampled = np.isin(traced, steps)
    unsampled = [highest[step] for step in traced[~is_sampled].tolist()]
    total = len(chosen) + len(unsampled)
    if figures is None or not len(chosen):
        figures = _no_figures(len(run.samples))
    elif limit is not None and len(chosen) > limit:
        shown = take_rows(figures, chosen)
        always = np.searchsorted(steps, traced[is_sampled]).tolist()
        extremes, measured = [shown.peak_bytes, shown.in_use_bytes], measured_pools(shown)
        if measured.any():
            pools, ratio = (shown.pool_bytes, shown.largest_free_bytes), fragmentation(shown)
            extremes += [np.where(measured, column, MISSING) for column in pools]
            extremes += [np.where(np.isnan(ratio), MISSING, np.nan_to_num(ratio) * _RATIO_STEPS).astype(np.int64)]
        chosen = chosen[extreme_rows(extremes, limit, always)]
    rows = take_rows(dataclasses.replace(run.samples, devices={device: figures}), chosen)
    own = rows.devices[device]
    for at in np.flatnonzero(own.peak_bytes == MISSING).tolist():
        if int(rows.step[at]) in highest:
            own.peak_bytes[at] = highest[int(rows.step[at])].in_use_bytes
    if not unsampled:
        return rows, total
    missing = np.full(len(unsampled), MISSING)
    of_device = dataclasses.replace(
        _no_figures(len(unsampled)),
        peak_bytes=np.asarray([snapshot.in_use_bytes for snapshot in unsampled], np.int64),
        capacity_bytes=optional_column(snapshot.capacity_bytes for snapshot in unsampled),
    )
    times = np.asarray([snapshot.wall_time for snapshot in unsampled])
    phases = np.full(len(unsampled), PHASES.index(phase))
    added = Samples(traced[~is_sampled], phases, missing, times, missing, {})
    columns = {name: np.append(getattr(rows, name), getattr(added, name)) for name in SAMPLE_COLUMNS}
    joined = Samples(**columns, devices={device: join_rows([own, of_device])})
    return take_rows(joined, np.argsort(joined.step, kind="stable")), total


def phase_steps(run: Run, device: str, phase: Phase) -> npt.NDArray[np.intp]:
    """The rows of a phase with a value of the device, sorted by step; for each step the row of the highest peak."""
    figures = run.samples.devices.get(device)
    if figures is None:
        return np.empty(0, np.intp)
    return one_row_a_step(run.samples.step, figures, run.samples.phase == PHASES.index(phase))


def _no_figures(rows: int) -> DeviceSamples:
    missing = np.full(rows, MISSING)
    return DeviceSamples(**{field.name: missing for field in dataclasses.fields(DeviceSamples)})


def fragmentation(figures: DeviceSamples) -> Floats:
    """1 − largest free chunk / free bytes of each row; NaN if nothing is free or the pool was not measured."""
    free = figures.pool_bytes - figures.in_use_bytes
    known = measured_pools(figures) & (free > 0)
    ratio: Floats = np.where(known, 1 - figures.largest_free_bytes / np.where(known, free, 1), np.nan)
    return ratio


_LASTING = 2
"""Traced steps on either side of a change of the batch size, as far as there are any, that must have one size: batches
of varying sizes are no change."""


BatchChange: TypeAlias = tuple[Snapshot, Snapshot]
"""The nearest traced steps before and after a lasting change of the batch size."""


def comparable_steps(run: Run, device: str, phase: Phase) -> list[Snapshot]:
    """The snapshots of the traced and failed steps of a phase, one for each, without partial batches.

    A partial batch is smaller than the batch traced before it and ends an epoch, or the batch traced after it is as
    large as that before it.
    """
    traced = list({snapshot.step: snapshot for snapshot in snapshots_of(run, device, phase)}.values())
    ends = {epoch.last_step for epoch in epochs(run)} if phase == "train" else set()
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
            changes.append((before, after))
    return changes


def first_of_level(steps: Integers, peaks: Integers, change: BatchChange) -> int | None:
    """The first step after a change by the measured peaks between its traced steps; None if they do not show it."""
    before, after = change
    first, last = before.step + 1, after.step
    inside = (steps >= first) & (steps <= last) & (peaks >= 0)
    steps, peaks = steps[inside], peaks[inside]
    closer = np.abs(peaks - after.in_use_bytes) < np.abs(peaks - before.in_use_bytes)
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


def former_bytes(snapshot: Snapshot) -> tuple[int, int]:
    """Requested bytes of optimizers and models that the program no longer uses: slots, and all other bytes."""
    rows = [row for row in snapshot.ledger if row.category != "rounding" and former_name(row.layer) is not None]
    slots = sum(row.bytes for row in rows if row.category == "optimizer_state")
    return slots, sum(row.bytes for row in rows) - slots


MAX_SPANS = 10_000
"""Most epochs, and most validation passes, that are reported for a run."""


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
    of_training = (samples.phase == PHASES.index("train")) & (samples.epoch != MISSING)
    steps, numbers = samples.step[of_training], samples.epoch[of_training]
    return [
        Epoch(int(numbers[begin]), int(steps[begin:end].min()), int(steps[begin:end].max()))
        for begin, end in _stretches(numbers)
    ]


def validation_passes(run: Run, device: str) -> list[ValidationPass]:
    """The validation passes of a training, with their peak on `device`: the batches after its first step. Batches
    before it count as steps of their own."""
    samples = run.samples
    trained = samples.wall_time[samples.phase == PHASES.index("train")].min(initial=np.inf)
    of_validation = (samples.phase == PHASES.index("validation")) & (samples.wall_time >= trained)
    steps = samples.step[of_validation]
    figures = samples.devices.get(device)
    peaks = np.full(len(steps), MISSING) if figures is None else figures.peak_bytes[of_validation]
    passes = []
    for begin, end in _stretches(steps):
        peak = int(peaks[begin:end].max())
        passes.append(ValidationPass(int(steps[begin]), end - begin, None if peak == MISSING else peak))
    return passes


def _stretches(values: Integers) -> list[tuple[int, int]]:
    """Ranges [begin, end) of equal values, the first `MAX_SPANS`."""
    if not len(values):
        return []
    edges = np.flatnonzero(np.diff(values)) + 1
    begins, ends = np.append(0, edges)[:MAX_SPANS], np.append(edges, len(values))[:MAX_SPANS]
    return list(zip(begins.tolist(), ends.tolist(), strict=True))
