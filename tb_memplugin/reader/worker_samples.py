"""The samples of several workers as one table.

Each worker has rows of its own, so a column of one device has no value in most rows of the table. Columns are built
when they are read: those of all devices of many workers would need gigabytes.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tb_memplugin.model import MISSING, DeviceSamples, Integers, Samples, full_device_name
from tb_memplugin.reader.columns import empty_samples, shown_devices
from tb_memplugin.reader.device_columns import ByDevice, columns_of, figures_of
from tb_memplugin.reader.limits import MAX_RUN_DEVICES
from tb_memplugin.reader.narrow import Narrow

MAX_COLUMN_BYTES = 2 << 30
"""Limit of the columns of all devices together, which bounds the time of reading each once."""


def samples_of_workers(by_worker: Mapping[str, Samples]) -> tuple[Samples, str | None]:
    """The rows of all workers by step, with the devices as `full_device_name` names them.

    Also returns a sentence if devices were left out for their number or size.
    """
    parts = {worker: samples for worker, samples in by_worker.items() if len(samples)}
    if not parts:
        return empty_samples(), None
    every = list(parts.values())
    step = np.concatenate([part.step for part in every])
    order = np.argsort(step, kind="stable")
    place = np.empty(len(order), np.intp)
    place[order] = np.arange(len(order))
    sources: dict[str, tuple[tuple[Narrow, ...], npt.NDArray[np.intp]]] = {}
    begin = 0
    for worker, part in parts.items():
        rows = place[begin : begin + len(part)]
        sources.update(
            (full_device_name(worker, device), (columns, rows)) for device, columns in columns_of(part).items()
        )
        begin += len(part)
    names, sentence = shown_devices(
        {name: len(rows) for name, (_, rows) in sources.items()}, len(step), MAX_RUN_DEVICES, MAX_COLUMN_BYTES
    )
    samples = Samples(
        step=step[order],
        phase=np.concatenate([part.phase for part in every])[order],
        epoch=np.concatenate([part.epoch for part in every])[order],
        wall_time=np.concatenate([part.wall_time for part in every])[order],
        host_resident_bytes=np.concatenate([part.host_resident_bytes for part in every])[order],
        devices=_WorkerDevices({name: sources[name] for name in names}, len(step)),
    )
    return samples, sentence


class _WorkerDevices(ByDevice):
    """Device to its figures in a table of `length` rows, from its own figures and the rows that these have there."""

    def __init__(self, sources: Mapping[str, tuple[tuple[Narrow, ...], npt.NDArray[np.intp]]], length: int) -> None:
        super().__init__(sources)
        self._sources = sources
        self._length = length

    def __getitem__(self, name: str) -> DeviceSamples:
        columns, rows = self._sources[name]

        def widened(column: Narrow) -> Integers:
            if column.constant == MISSING:
                return np.broadcast_to(np.int64(MISSING), self._length)
            values = np.full(self._length, MISSING, np.int64)
            values[rows] = column.wide()
            return values

        return figures_of(lambda at: widened(columns[at]))
