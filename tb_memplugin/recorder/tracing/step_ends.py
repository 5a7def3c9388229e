"""What is measured at step end as the overhead budget allows: `StepEnds`, the pool and its largest free chunk;
`HostBuffers`, TensorFlow's buffers in host memory."""

import math
import time
from collections.abc import Callable, Mapping, Sequence

from tb_memplugin.importers import summarize_dump
from tb_memplugin.recorder.devices import PINNED, MemoryMaps, SampleBuffer
from tb_memplugin.recorder.watch import data_pipelines
from tb_memplugin.schema import MISSING

SHARE = 0.2  # share of the overhead budget that each of the two may cost
MAX_WAITING = 16  # most maps that wait to be measured, for example while the background thread cannot write its files
LOOK_SECONDS = 0.1  # time after which to look again whether they wait
HOST_SECONDS = 0.2  # least time between two reads of `HostBuffers`


class _Budget:
    """A share of the run time. `spend` is called with each cost, which reduces the budget for traces."""

    def __init__(self, overhead: float, spend: Callable[[float], None]) -> None:
        self._share = SHARE * overhead
        self._spend = spend
        self._began = time.perf_counter()
        self._spent_seconds = 0.0

    def due_in(self) -> float:
        """Seconds until all costs so far are at most their share of the run time; infinite without a budget."""
        if self._share <= 0:
            return math.inf
        return self._began + self._spent_seconds / self._share - time.perf_counter()

    def count(self, seconds: float) -> None:
        self._spent_seconds += seconds
        self._spend(seconds)


class StepEnds:
    """Selects the steps after which a map is read, and adds the figures to their samples. The training's thread calls
    `due_in` and `read`, the background thread the other methods."""

    def __init__(
        self,
        devices: Sequence[str],
        maps: MemoryMaps,
        buffer: SampleBuffer,
        overhead: float,
        spend: Callable[[float], None],
    ) -> None:
        self._devices = [device for device in devices if maps.available(device)]
        self._maps = maps
        self._buffer = buffer
        self._budget = _Budget(overhead, spend)
        # Each is counted by one thread only.
        self._read = self._measured = 0

    def due_in(self) -> float:
        """Seconds until the budget allows a map, and few of them wait to be measured; infinite if none can be read."""
        seconds = self._budget.due_in() if self._devices else math.inf
        return max(seconds, LOOK_SECONDS) if self._read - self._measured >= MAX_WAITING else seconds

    def read(self) -> Mapping[str, bytes | None]:
        began = time.perf_counter()
        dumps = {device: self._maps.read(device) for device in self._devices}
        self._budget.count(time.perf_counter() - began)
        self._read += 1
        return dumps

    def measure_read(self, row: int, in_use: Mapping[str, int], dumps: Mapping[str, bytes | None]) -> None:
        """The same as `measure`, of maps from `read`: they do not wait any more."""
        self._measured += 1
        self.measure(row, in_use, dumps)

    def measure(self, row: int, in_use: Mapping[str, int], dumps: Mapping[str, bytes | None]) -> None:
        """Add the figures of maps to a step's sample. Maps with other bytes in use are of another moment."""
        began = time.thread_time()
        for device, dump in dumps.items():
            summary = None if dump is None else summarize_dump(dump)
            if summary is not None and summary.in_use_bytes == in_use[device]:
                self._buffer.measure(row, device, summary.pool_bytes, summary.largest_free_bytes)
        self._budget.count(time.thread_time() - began)


class HostBuffers:
    """Reads the buffers of ``tf.data`` and the pool of pinned memory on the training's thread, after some steps."""

    def __init__(self, maps: MemoryMaps, overhead: float, spend: Callable[[float], None]) -> None:
        self._maps = maps
        self._budget = _Budget(overhead, spend)
        self._next = -math.inf

    def due_in(self) -> float:
        return max(self._budget.due_in(), self._next - time.perf_counter())

    def read(self) -> tuple[int, int]:
        """Bytes that ``tf.data`` buffers, and bytes of the pool of pinned memory; `MISSING` if unknown."""
        began = time.perf_counter()
        buffered = data_pipelines.buffered_bytes()
        dump = self._maps.read(PINNED) if self._maps.available(PINNED) else None
        pinned = MISSING if dump is None else summarize_dump(dump).pool_bytes
        self._budget.count(time.perf_counter() - began)
        self._next = began + HOST_SECONDS
        return MISSING if buffered is None else buffered, pinned
