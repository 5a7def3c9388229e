"""Samples, traced steps and their composition at the steps of one phase on one device. Pure."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tb_memplugin.analysis.composition import NO_SNAPSHOT, Group, composition_of, snapshot_of
from tb_memplugin.analysis.pool_figures import pool_extremes
from tb_memplugin.model import (
    MISSING,
    PHASES,
    DeviceSamples,
    Integers,
    Phase,
    Run,
    Samples,
    Snapshot,
)
from tb_memplugin.model.downsample import extreme_rows


@dataclasses.dataclass(frozen=True)
class Overview:
    """The steps of one phase on one device; arrays have one value per row, int64 with `MISSING` unless noted.

    Attributes:
        total_rows: Rows before reduction.
        step, epoch, wall_time (float64, NaN), host_resident_bytes: Of the step.
        figures: Samples of the device; a peak without a sample is that of the snapshot.
        groups: Columns of `composition`, in stack order.
        composition: Shape [rows, groups]; each row sums to the peak, or is `MISSING` if the peak is unknown.
        snapshot: Index into `snapshots` of the composition's source, `NO_SNAPSHOT` if none.
        traced: Whether that snapshot is of the same step.
        snapshots: Snapshots of this phase and device, sorted by step.
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
        run: The run of one worker; `device` is a device of its samples or snapshots.
        limit: Rows. A reduction keeps recorded rows: all traced steps, and every bucket's extremes of the peak, the
            bytes in use and, if measured, the pool, its largest free chunk and its fragmentation.
    """
    snapshots = snapshots_of(run, device, phase)
    figures = run.samples.devices.get(device)
    chosen = _one_row_a_step(run.samples, figures, phase)
    steps = run.samples.step[chosen]
    begin = 0 if first_step is None else int(np.searchsorted(steps, first_step, side="left"))
    end = len(steps) if last_step is None else int(np.searchsorted(steps, last_step, side="right"))
    chosen, steps = chosen[begin:end], steps[begin:end]
    # The last snapshot of a step has the most bytes in use.
    highest = {
        snapshot.step: snapshot
        for snapshot in snapshots
        if (first_step is None or snapshot.step >= first_step) and (last_step is None or snapshot.step <= last_step)
    }
    traced, unsampled = _places(steps, highest)
    if figures is not None and len(chosen):
        total = len(chosen) + len(unsampled)
        if len(chosen) > limit:
            shown = _rows_of(figures, chosen)
            extremes = [shown.peak_bytes, shown.in_use_bytes, *pool_extremes(shown)]
            chosen = chosen[extreme_rows(extremes, limit, traced)]
    else:
        figures, total = _no_figures(len(run.samples)), len(unsampled)
    rows = _take(dataclasses.replace(run.samples, devices={device: figures}), chosen)
    rows = _with_snapshots(rows, device, phase, highest, unsampled)
    figures = rows.devices[device]
    traced_steps = np.asarray([snapshot.step for snapshot in snapshots], np.int64)
    table_steps = np.asarray([table.step for table in run.layer_tables], np.int64)
    index = snapshot_of(rows.step, traced_steps, table_steps)
    groups, composition = composition_of(run, device, rows.step, figures.peak_bytes, snapshots, index)
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
        traced=(index != NO_SNAPSHOT) & (traced_steps[index] == rows.step)
        if len(traced_steps)
        else index > NO_SNAPSHOT,
        snapshots=snapshots,
    )


def snapshots_of(run: Run, device: str, phase: Phase) -> tuple[Snapshot, ...]:
    """The snapshots of a phase on a device, sorted by step and then by bytes in use."""
    return tuple(
        snapshot
        for snapshot in sorted(run.snapshots, key=lambda snapshot: (snapshot.step, snapshot.in_use_bytes))
        if snapshot.device == device and snapshot.phase == phase
    )


# --- rows ------------------------------------------------------------------------------------------------------------


def _one_row_a_step(samples: Samples, figures: DeviceSamples | None, phase: Phase) -> npt.NDArray[np.intp]:
    """The rows of a phase with a value of the device, sorted by step; for each step the row of the highest peak."""
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
    """Indices of the traced steps in `steps` (ascending), and the snapshots of steps that are not in it."""
    places, unsampled = [], []
    for step, snapshot in highest.items():
        at = int(np.searchsorted(steps, step))
        if at < len(steps) and steps[at] == step:
            places.append(at)
        else:
            unsampled.append(snapshot)
    return places, unsampled


def _with_snapshots(
    rows: Samples, device: str, phase: Phase, highest: Mapping[int, Snapshot], unsampled: Sequence[Snapshot]
) -> Samples:
    """`rows` with missing peaks from snapshots, and with a row for each traced step without a sample."""
    figures = rows.devices[device]
    for at in np.flatnonzero(figures.peak_bytes == MISSING).tolist():
        if int(rows.step[at]) in highest:
            figures.peak_bytes[at] = highest[int(rows.step[at])].in_use_bytes
    if not unsampled:
        return rows
    missing = np.full(len(unsampled), MISSING)
    capacity = np.asarray(
        [MISSING if snapshot.capacity_bytes is None else snapshot.capacity_bytes for snapshot in unsampled], np.int64
    )
    peaks = np.asarray([snapshot.in_use_bytes for snapshot in unsampled], np.int64)
    added = dataclasses.replace(_no_figures(len(unsampled)), peak_bytes=peaks, capacity_bytes=capacity)
    joined = Samples(
        step=np.append(rows.step, np.asarray([snapshot.step for snapshot in unsampled], np.int64)),
        phase=np.append(rows.phase, np.full(len(unsampled), PHASES.index(phase))),
        epoch=np.append(rows.epoch, missing),
        wall_time=np.append(rows.wall_time, [snapshot.wall_time for snapshot in unsampled]),
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
        {name: _rows_of(figures, rows) for name, figures in samples.devices.items()},
    )


def _rows_of(figures: DeviceSamples, rows: npt.NDArray[np.intp]) -> DeviceSamples:
    return DeviceSamples(
        **{field.name: getattr(figures, field.name)[rows] for field in dataclasses.fields(DeviceSamples)}
    )


def _no_figures(rows: int) -> DeviceSamples:
    missing = np.full(rows, MISSING)
    return DeviceSamples(**{field.name: missing for field in dataclasses.fields(DeviceSamples)})
