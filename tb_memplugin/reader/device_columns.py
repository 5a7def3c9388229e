"""The figures of the devices of a table of samples, kept in few bytes and widened when they are read."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_memplugin.model import DeviceSamples, Integers, Samples
from tb_memplugin.reader.narrow import Narrow, kept

DEVICE_FIELDS = tuple(field.name for field in dataclasses.fields(DeviceSamples))
_PLACES = {name: at for at, name in enumerate(DEVICE_FIELDS)}


class _Figures(DeviceSamples):
    """Figures whose columns are widened when they are first read."""

    def __getattr__(self, name: str) -> Any:
        if name not in _PLACES or "widen" not in self.__dict__:
            raise AttributeError(name)
        object.__setattr__(self, name, self.__dict__["widen"](_PLACES[name]))
        return self.__dict__[name]


def figures_of(widen: Callable[[int], Integers]) -> DeviceSamples:
    """Figures whose columns, by their index in `DEVICE_FIELDS`, `widen` makes."""
    figures = object.__new__(_Figures)
    object.__setattr__(figures, "widen", widen)
    return figures


class ByDevice(Mapping[str, DeviceSamples]):
    """Device to its figures, which a subclass makes from what it keeps of each device."""

    def __init__(self, kept: Mapping[str, Any]) -> None:
        self._kept = kept

    def __iter__(self) -> Iterator[str]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, name: object) -> bool:
        return name in self._kept  # that of `Mapping` would make the figures


class DeviceColumns(ByDevice):
    """Device to its figures, which are made anew whenever they are read; columns of one value are read-only.

    Args:
        columns: Device to its columns, in the order of `DEVICE_FIELDS`.

    Attributes:
        columns: As passed.
        nbytes: Bytes in memory.
    """

    def __init__(self, columns: Mapping[str, tuple[Narrow, ...]]) -> None:
        super().__init__(columns)
        self.columns = columns
        self.nbytes = sum(column.nbytes for of_device in columns.values() for column in of_device)

    def __getitem__(self, name: str) -> DeviceSamples:
        columns = self.columns[name]
        return figures_of(lambda at: columns[at].wide())


def columns_of(samples: Samples) -> Mapping[str, tuple[Narrow, ...]]:
    """Device to its columns, in the order of `DEVICE_FIELDS`."""
    if isinstance(samples.devices, DeviceColumns):
        return samples.devices.columns
    return {
        name: tuple(kept(getattr(figures, field)) for field in DEVICE_FIELDS)
        for name, figures in samples.devices.items()
    }


def compact(samples: Samples) -> Samples:
    """The same samples in few bytes; columns of one value are read-only."""
    if isinstance(samples.devices, DeviceColumns):
        return samples
    return dataclasses.replace(
        samples,
        phase=flat(samples.phase),
        epoch=flat(samples.epoch),
        host_resident_bytes=flat(samples.host_resident_bytes),
        devices=DeviceColumns(columns_of(samples)),
    )


def take_rows(samples: Samples, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> Samples:
    """The given rows of samples, with one device widened at a time."""
    return Samples(
        samples.step[rows],
        samples.phase[rows],
        samples.epoch[rows],
        samples.wall_time[rows],
        samples.host_resident_bytes[rows],
        DeviceColumns(
            {
                name: tuple(Narrow(column.wide()[rows]) for column in columns)
                for name, columns in columns_of(samples).items()
            }
        ),
    )


def samples_bytes(samples: Samples) -> int:
    """Bytes of samples in memory."""
    every = (samples.step, samples.phase, samples.epoch, samples.wall_time, samples.host_resident_bytes)
    # A column of one value has no stride.
    own = sum(column.nbytes for column in every if column.strides != (0,))
    devices = samples.devices.nbytes if isinstance(samples.devices, DeviceColumns) else 0
    return own + devices + 500


def flat(column: Integers) -> Integers:
    """A column; one of equal values takes no memory and is read-only."""
    if len(column) < 2 or (column != column[0]).any():
        return column
    return np.broadcast_to(column[0], len(column))
