"""Samples, traced steps and their composition at the steps of one phase on one device. Pure."""

import dataclasses

import numpy as np
import numpy.typing as npt

from tb_memplugin.analysis.steps.composition import composition_of, sources_of
from tb_memplugin.analysis.steps.step_rows import rows_of_steps, snapshots_of
from tb_memplugin.model import DeviceSamples, Integers, Phase, Run, Snapshot
from tb_memplugin.model.groups import Group


@dataclasses.dataclass(frozen=True)
class Overview:
    """The steps of one phase on one device; arrays have one value per row, int64 with `MISSING` unless noted.

    Attributes:
        total_rows: Rows before reduction.
        step, epoch, wall_time (float64, NaN), host_resident_bytes: Of the step.
        figures: Samples of the device; a peak without a sample is that of the snapshot.
        groups: Columns of `composition`, in stack order.
        composition: Shape [rows, groups]; each row sums to the peak, that of a failed step to the bytes in use at
            the failure; `MISSING` if the peak is unknown.
        snapshot: Index into `snapshots` of the composition's source, `NO_SNAPSHOT` if none.
        traced: Whether that snapshot is of the same step: traced, or at its failure.
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
    rows, total = rows_of_steps(run, device, phase, snapshots, first_step, last_step, limit)
    figures = rows.devices[device]
    sources = sources_of(rows.step, snapshots, run.layer_tables)
    groups, composition = composition_of(run, device, phase, rows, snapshots, sources)
    return Overview(
        total_rows=total,
        step=rows.step,
        epoch=rows.epoch,
        wall_time=rows.wall_time,
        host_resident_bytes=rows.host_resident_bytes,
        figures=figures,
        groups=groups,
        composition=composition,
        snapshot=sources.snapshot,
        traced=sources.own,
        snapshots=snapshots,
    )
