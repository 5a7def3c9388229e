"""`Measurements`: what is measured at the end of some steps beside a sample, as a share of the
overhead budget allows. For the training's thread."""

import math
import time
from collections.abc import Callable
from typing import NamedTuple

from tb_memplugin.importers import summarize_dump
from tb_memplugin.recorder.base import Faults
from tb_memplugin.recorder.devices import PINNED, MemoryMaps, Sample, SampleBuffer
from tb_memplugin.recorder.helper import Dumps
from tb_memplugin.recorder.watch import data_pipelines
from tb_memplugin.schema import MISSING

SHARE = 0.2  # share of the overhead budget that measurements may cost
READ_SECONDS = 0.2  # least time between two of them

HOST_BUFFERS = "buffers in host memory"


class Measured(NamedTuple):
    """Bytes that ``tf.data`` buffers, and bytes of the pool of pinned memory, `MISSING` if unknown;
    the maps of the devices."""

    host_buffers: tuple[int, int]
    dumps: Dumps


class Measurements:
    """Measures for a share of the run time. `spend` is called with each cost, which reduces the
    budget for traces."""

    def __init__(
        self,
        maps: MemoryMaps,
        buffer: SampleBuffer,
        overhead: float,
        spend: Callable[[float], None],
        faults: Faults,
    ) -> None:
        self._maps = maps
        self._devices = [device for device in buffer.devices if maps.available(device)]
        self._buffer = buffer
        self._share = SHARE * overhead
        self._spend = spend
        self._faults = faults
        self._began = time.perf_counter()
        self._spent_seconds = 0.0
        self._next = -math.inf

    def due_in(self) -> float:
        """Seconds until all costs so far are at most their share of the run time; infinite without
        a budget."""
        if self._share <= 0:
            return math.inf
        affordable = self._began + self._spent_seconds / self._share
        return max(affordable, self._next) - time.perf_counter()

    def read(self) -> Measured:
        began = time.perf_counter()
        self._next = began + READ_SECONDS
        dumps = {device: self._maps.read(device) for device in self._devices}
        buffered = self._faults.run(HOST_BUFFERS, data_pipelines.buffered_bytes)
        dump = self._maps.read(PINNED) if self._maps.available(PINNED) else None
        pinned = MISSING if dump is None else summarize_dump(dump).pool_bytes
        self._count(began)
        return Measured((MISSING if buffered is None else buffered, pinned), dumps)

    def fill(self, sample: Sample, dumps: Dumps) -> None:
        """Add the figures of maps to a sample, which waits for them. Maps with other bytes in use
        are of another moment."""
        began = time.perf_counter()
        for device, dump in dumps.items():
            summary = None if dump is None else summarize_dump(dump)
            if summary is not None and summary.in_use_bytes == sample.in_use_bytes[device]:
                figures = summary.pool_bytes, summary.largest_free_bytes
                self._buffer.measure(sample.number, device, *figures)
        self._count(began)

    def _count(self, began: float) -> None:
        seconds = time.perf_counter() - began
        self._spent_seconds += seconds
        self._spend(seconds)
