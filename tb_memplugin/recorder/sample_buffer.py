"""Collects samples on the training's thread as cheaply as Python can: plain integers appended to one list."""

import threading
from collections.abc import Sequence

import numpy as np

from tb_memplugin.model import DeviceSamples, Samples

_DEVICE_FIGURES = 6
_COMMON_FIGURES = 4


class SampleBuffer:
    """Rows of figures from one thread, taken as columns by another.

    Args:
        devices: Names, in the order in which every row lists their figures.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        self.devices = tuple(devices)
        self._rows: list[tuple[int, ...]] = []
        self._times: list[float] = []
        self._lock = threading.Lock()

    def append(self, wall_time: float, row: tuple[int, ...]) -> None:
        """Adds (step, phase, epoch, host_resident_bytes, then six figures for each device as in `DeviceSamples`)."""
        with self._lock:
            self._rows.append(row)
            self._times.append(wall_time)

    def take(self) -> Samples | None:
        """Everything appended since the last call, or None."""
        with self._lock:
            rows, self._rows = self._rows, []
            times, self._times = self._times, []
        if not rows:
            return None
        columns = np.asarray(rows, np.int64).T
        devices = {}
        for at, device in enumerate(self.devices):
            start = _COMMON_FIGURES + at * _DEVICE_FIGURES
            devices[device] = DeviceSamples(*(columns[start + figure] for figure in range(_DEVICE_FIGURES)))
        return Samples(
            step=columns[0],
            phase=columns[1],
            epoch=columns[2],
            wall_time=np.asarray(times, np.float64),
            host_resident_bytes=columns[3],
            devices=devices,
        )
