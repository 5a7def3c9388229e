"""The samples of several workers as one table.

Each worker has rows of its own, so a column of one device has no value in most rows of the table. Columns are built
when they are read: those of all devices of many workers would need gigabytes.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from tb_memplugin.schema import MISSING, SAMPLE_COLUMNS, DeviceSamples, Integers, Samples, full_device_name
from tb_memplugin.storage.files import MAX_RUN_DEVICES
from tb_memplugin.storage.read.columns import DEVICE_FIELDS, empty_samples, shown_devices

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
    sources: dict[str, tuple[DeviceSamples, npt.NDArray[np.intp]]] = {}
    begin = 0
    for worker, part in parts.items():
        rows = place[begin : begin + len(part)]
        sources.update((full_device_name(worker, device), (figures, rows)) for device, figures in part.devices.items())
        begin += len(part)
    names, sentence = shown_devices(
        {name: len(rows) for name, (_, rows) in sources.items()}, len(step), MAX_RUN_DEVICES, MAX_COLUMN_BYTES
    )
    own = {name: np.concatenate([getattr(part, name) for part in every])[order] for name in SAMPLE_COLUMNS}
    devices = _WorkerDevices({name: sources[name] for name in names}, len(step))
    return Samples(**own, devices=devices), sentence


class _WorkerDevices(Mapping[str, DeviceSamples]):
    """Device to its figures in a table of `length` rows, from its own figures and the rows that these have there."""

    def __init__(self, sources: Mapping[str, tuple[DeviceSamples, npt.NDArray[np.intp]]], length: int) -> None:
        self._sources = sources
        self._length = length

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def __contains__(self, name: object) -> bool:
        return name in self._sources  # that of `Mapping` would make the figures

    def __getitem__(self, name: str) -> DeviceSamples:
        figures, rows = self._sources[name]

        def widened(column: Integers) -> Integers:
            if column.strides == (0,) and column[0] == MISSING:
                return np.broadcast_to(np.int64(MISSING), self._length)
            values = np.full(self._length, MISSING, np.int64)
            values[rows] = column
            return values

        return DeviceSamples(**{field: widened(getattr(figures, field)) for field in DEVICE_FIELDS})
