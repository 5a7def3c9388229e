"""The recorded rows of the steps of one phase on one device: one row a step, with the peaks of traced steps. Pure."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tb_memplugin.model import (
    MISSING,
    PHASES,
    DeviceSamples,
    Floats,
    Integers,
    Phase,
    Run,
    Samples,
    Snapshot,
    take_figures,
    take_samples,
)
from tb_memplugin.model.basics import optional_column
from tb_memplugin.model.downsample import extreme_rows
from tb_memplugin.model.samples import measured_pools, one_row_a_step

_RATIO_STEPS = 1 << 40
"""Resolution of a ratio as an integer."""


def step_rows(run: Run, device: str, phase: Phase) -> Samples:
    """Every step of a phase on a device, one row each, sorted by step: the unreduced rows of `overview`."""
    rows, _ = rows_of_steps(run, device, phase, snapshots_of(run, device, phase), None, None, limit=None)
    return rows


def snapshots_of(run: Run, device: str, phase: Phase) -> tuple[Snapshot, ...]:
    """The snapshots of a phase on a device, sorted by step and then by bytes in use."""
    return tuple(
        snapshot
        for snapshot in sorted(run.snapshots, key=lambda snapshot: (snapshot.step, snapshot.in_use_bytes))
        if snapshot.device == device and snapshot.phase == phase
    )


def rows_of_steps(
    run: Run,
    device: str,
    phase: Phase,
    snapshots: Sequence[Snapshot],
    first_step: int | None,
    last_step: int | None,
    limit: int | None,
) -> tuple[Samples, int]:
    """The rows of an overview, and their number before reduction."""
    figures = run.samples.devices.get(device)
    chosen = phase_steps(run.samples, figures, phase)
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
        if limit is not None and len(chosen) > limit:
            shown = take_figures(figures, chosen)
            extremes = [shown.peak_bytes, shown.in_use_bytes, *pool_extremes(shown)]
            chosen = chosen[extreme_rows(extremes, limit, traced)]
    else:
        figures, total = _no_figures(len(run.samples)), len(unsampled)
    rows = take_samples(dataclasses.replace(run.samples, devices={device: figures}), chosen)
    return _with_snapshots(rows, device, phase, highest, unsampled), total


def phase_steps(samples: Samples, figures: DeviceSamples | None, phase: Phase) -> npt.NDArray[np.intp]:
    """The rows of a phase with a value of the device, sorted by step; for each step the row of the highest peak."""
    if figures is None:
        return np.empty(0, np.intp)
    return one_row_a_step(samples.step, figures, samples.phase == PHASES.index(phase))


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
    capacity = optional_column(snapshot.capacity_bytes for snapshot in unsampled)
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
    return take_samples(joined, np.argsort(joined.step, kind="stable"))


def _no_figures(rows: int) -> DeviceSamples:
    missing = np.full(rows, MISSING)
    return DeviceSamples(**{field.name: missing for field in dataclasses.fields(DeviceSamples)})


def fragmentation(figures: DeviceSamples) -> Floats:
    """1 − largest free chunk / free bytes of each row; NaN if nothing is free or the pool was not measured."""
    free = figures.pool_bytes - figures.in_use_bytes
    known = measured_pools(figures) & (free > 0)
    ratio: Floats = np.where(known, 1 - figures.largest_free_bytes / np.where(known, free, 1), np.nan)
    return ratio


def pool_extremes(figures: DeviceSamples) -> list[Integers]:
    """Columns whose extremes a reduction keeps; none if no pool was measured."""
    measured = measured_pools(figures)
    if not measured.any():
        return []
    ratio = fragmentation(figures)
    return [
        np.where(measured, figures.pool_bytes, MISSING),
        np.where(measured, figures.largest_free_bytes, MISSING),
        np.where(np.isnan(ratio), MISSING, np.nan_to_num(ratio) * _RATIO_STEPS).astype(np.int64),
    ]
