"""What is measured after some steps beside a sample, as a share of the overhead budget allows:
`StepEnds`, the pool and its largest free chunk; `HostBuffers`. For the training's thread."""

import math
import time
from collections.abc import Callable

from tb_memplugin.importers import summarize_dump
from tb_memplugin.recorder.devices import PINNED, MemoryMaps, Sample, SampleBuffer
from tb_memplugin.recorder.helper import Dumps
from tb_memplugin.recorder.watch import data_pipelines
from tb_memplugin.schema import MISSING

SHARE = 0.2  # share of the overhead budget that each of the two may cost
HOST_SECONDS = 0.2  # least time between two reads of `HostBuffers`


class _Budgeted:
    """Measures for a share of the run time. `spend` is called with each cost, which reduces the
    budget for traces."""

    def __init__(self, maps: MemoryMaps, overhead: float, spend: Callable[[float], None]) -> None:
        self._maps = maps
        self._share = SHARE * overhead
        self._spend = spend
        self._began = time.perf_counter()
        self._spent_seconds = 0.0

    def due_in(self) -> float:
        """Seconds until all costs so far are at most their share of the run time; infinite without
        a budget."""
        if self._share <= 0:
            return math.inf
        return self._began + self._spent_seconds / self._share - time.perf_counter()

    def count(self, began: float) -> None:
        """Count the time since `began` as a cost."""
        seconds = time.perf_counter() - began
        self._spent_seconds += seconds
        self._spend(seconds)


class StepEnds(_Budgeted):
    """Adds to samples what maps show of the step's end."""

    def __init__(
        self,
        maps: MemoryMaps,
        buffer: SampleBuffer,
        overhead: float,
        spend: Callable[[float], None],
    ) -> None:
        super().__init__(maps, overhead, spend)
        self._devices = [device for device in buffer.devices if maps.available(device)]
        self._buffer = buffer

    def due_in(self) -> float:
        """As for others; infinite if no map can be read."""
        return super().due_in() if self._devices else math.inf

    def measure(self, sample: Sample, dumps: Dumps | None = None) -> None:
        """Add the figures of maps, by default of now, to a sample that was just taken. Maps with
        other bytes in use are of another moment."""
        began = time.perf_counter()
        if dumps is None:
            dumps = {device: self._maps.read(device) for device in self._devices}
        for device, dump in dumps.items():
            summary = None if dump is None else summarize_dump(dump)
            if summary is not None and summary.in_use_bytes == sample.in_use_bytes[device]:
                figures = summary.pool_bytes, summary.largest_free_bytes
                self._buffer.measure(sample.number, device, *figures)
        self.count(began)


class HostBuffers(_Budgeted):
    """Reads the buffers of ``tf.data`` and the pool of pinned memory."""

    def __init__(self, maps: MemoryMaps, overhead: float, spend: Callable[[float], None]) -> None:
        super().__init__(maps, overhead, spend)
        self._next = -math.inf

    def due_in(self) -> float:
        return max(super().due_in(), self._next - time.perf_counter())

    def read(self) -> tuple[int, int]:
        """Bytes that ``tf.data`` buffers, and bytes of the pool of pinned memory; `MISSING` if
        unknown."""
        began = time.perf_counter()
        self._next = began + HOST_SECONDS
        buffered = data_pipelines.buffered_bytes()
        dump = self._maps.read(PINNED) if self._maps.available(PINNED) else None
        pinned = MISSING if dump is None else summarize_dump(dump).pool_bytes
        self.count(began)
        return MISSING if buffered is None else buffered, pinned
