"""Collects samples on the training's thread at minimal cost: it appends integers to an array."""

import array
import collections
import dataclasses
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tb_memplugin.schema import MISSING, SAMPLE_COLUMNS, DeviceSamples, Samples

_DEVICE_FIGURES = tuple(field.name for field in dataclasses.fields(DeviceSamples))
MAX_ROWS = 1 << 18
"""Most rows that wait: about 30 MiB for one device. More wait only if the files cannot be written for hours."""
DROPPED = -1

SAMPLE_INTEGERS = tuple(name for name in SAMPLE_COLUMNS if name != "wall_time")
"""The order of a row's figures, before those of the devices."""
_COMMON_FIGURES = len(SAMPLE_INTEGERS)
_POOL = _DEVICE_FIGURES.index("pool_bytes")
_LARGEST_FREE = _DEVICE_FIGURES.index("largest_free_bytes")


class SampleBuffer:
    """Takes rows of figures from one thread and returns them as columns on another. Every method is thread-safe."""

    def __init__(self, devices: Sequence[str]) -> None:
        self.devices = tuple(devices)
        self._width = _COMMON_FIGURES + len(self.devices) * len(_DEVICE_FIGURES)
        self._values, self._times = array.array("q"), array.array("d")  # row after row, without an object for each
        self._taken = self._dropped = 0
        self._short: collections.deque[tuple[float, ...]] = collections.deque()
        self._rest: tuple[int, ...] = ()  # what short rows leave out
        self._lock = threading.Lock()

    def append(self, wall_time: float, row: tuple[int, ...]) -> int:
        """Add a row and return its number, for `measure`; `DROPPED` if `MAX_ROWS` wait already. A row is
        `SAMPLE_INTEGERS`, then each device's figures in the order of the fields of `DeviceSamples`; `MISSING` for a
        figure that is unknown, or not known yet."""
        with self._lock:
            self._complete()
            return self._append(wall_time, row)

    def like(self, row: tuple[int, ...]) -> Callable[[tuple[float, ...]], None]:
        """A function that adds a short row, which has the other figures of the given one; valid until the next call. It
        takes no lock and builds no row. A short row is wall time, step, host_resident_bytes, and the bytes in use and
        the peak of each device; the buffers in host memory are unknown in it. It must not be called while another
        thread calls `append`."""
        with self._lock:
            self._complete()
            self._rest = row
        return self._short.append

    def _complete(self) -> None:
        rest, figures = self._rest, len(_DEVICE_FIGURES)
        while self._short:
            wall_time, step, resident, *sizes = self._short.popleft()
            row = [step, rest[1], rest[2], resident, MISSING, MISSING]
            for at in range(len(self.devices)):
                start = _COMMON_FIGURES + at * figures
                row += (*sizes[2 * at : 2 * at + 2], *rest[start + 2 : start + figures])
            self._append(wall_time, row)

    def _append(self, wall_time: float, row: Sequence[Any]) -> int:
        if len(self._times) >= MAX_ROWS:
            self._dropped += 1
            return DROPPED
        self._values.extend(array.array("q", row))  # raises before anything is added
        self._times.append(wall_time)
        return self._taken + len(self._times) - 1

    def measure(self, number: int, device: str, pool_bytes: int, largest_free_bytes: int) -> bool:
        """Fill in the pool at the step end of a row from `append`; False if the row was taken already."""
        start = _COMMON_FIGURES + self.devices.index(device) * len(_DEVICE_FIGURES)
        with self._lock:
            at = number - self._taken
            if not 0 <= at < len(self._times):
                return False
            start += at * self._width
            self._values[start + _POOL], self._values[start + _LARGEST_FREE] = pool_bytes, largest_free_bytes
            return True

    def take_dropped(self) -> int:
        with self._lock:
            dropped, self._dropped = self._dropped, 0
        return dropped

    def take(self) -> Samples | None:
        with self._lock:
            self._complete()
            values, self._values = self._values, array.array("q")
            times, self._times = self._times, array.array("d")
            self._taken += len(times)
        if not times:
            return None
        columns = np.frombuffer(values, np.int64).reshape(len(times), self._width).T
        devices = {}
        for at, device in enumerate(self.devices):
            start = _COMMON_FIGURES + at * len(_DEVICE_FIGURES)
            devices[device] = DeviceSamples(*columns[start : start + len(_DEVICE_FIGURES)])
        own = dict(zip(SAMPLE_INTEGERS, columns[:_COMMON_FIGURES], strict=True))
        return Samples(**own, wall_time=np.asarray(times, np.float64), devices=devices)
