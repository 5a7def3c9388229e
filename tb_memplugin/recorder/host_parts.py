"""`HostParts`: measures the parts of host memory at step end, as the overhead budget allows."""

import math
import threading
import time
from collections.abc import Callable

from tb_memplugin.importers.allocator.memory_dump import pool_ranges
from tb_memplugin.model import HOST_COLUMNS, MISSING, HostSamples
from tb_memplugin.recorder.native.mapped_memory import MappedMemory, resident_bytes
from tb_memplugin.recorder.native.memory_maps import PINNED, MemoryMaps
from tb_memplugin.recorder.observe.calls.datasets import data_pipelines
from tb_memplugin.recorder.sampling import heaps
from tb_memplugin.recorder.sampling.host import resident_parts

SHARE = 0.2
"""Share of the overhead budget that these measurements may cost."""
MIN_SECONDS = 0.2
"""Least time between two of them."""
MAX_ROWS_PER_DOUBLING = 1500
"""About this many rows are recorded while the run time doubles, so that days of training do not fill the disk."""
_CPU = "CPU:0"


class HostParts:
    """Selects the steps after which the parts are measured, and keeps the rows until they are written.

    The training's thread calls `due_in` and `measure`, the background thread `take`.

    Args:
        maps: Reads the memory maps of ``CPU:0``, if that is recorded and has one, and of pinned memory.
        overhead: Share of run time that recording may cost.
        spend: Called with the seconds that a measurement cost, which reduce the budget for traces.
    """

    def __init__(self, maps: MemoryMaps, overhead: float, spend: Callable[[float], None]) -> None:
        self._maps = maps
        self._share = SHARE * overhead
        self._spend = spend
        self._began = time.perf_counter()
        self._last = -MIN_SECONDS
        self._spent_seconds = 0.0
        self._known = resident_parts() is not None
        self._shared_ranges: list[tuple[int, int]] = []
        self._rows: list[tuple[float, ...]] = []
        self._lock = threading.Lock()
        if self._known and self._share > 0:
            # Warm up, so that one-time loading is not charged to a step.
            heaps.python_objects_bytes()
            heaps.c_heap()

    def due_in(self) -> float:
        """Seconds until all measurements so far cost at most their share of the run time, and rows are not too many.

        Infinite if the system does not tell the parts.
        """
        if not self._known or self._share <= 0:
            return math.inf
        rarely = self._last * MAX_ROWS_PER_DOUBLING / (MAX_ROWS_PER_DOUBLING - 1)
        earliest = max(self._last + MIN_SECONDS, rarely, self._spent_seconds / self._share)
        return self._began + earliest - time.perf_counter()

    def measure(self, step: int, phase: int, wall_time: float) -> int | None:
        """Keep the row of a step and return its RSS; None if the system does not tell.

        Other threads may allocate meanwhile: a part that does not fit into the pages of its kind stays unknown.
        """
        began = time.perf_counter()
        self._last = began - self._began
        on_cpu, pinned = self._pool(_CPU), self._pool(PINNED)
        parts = resident_parts()
        if parts is None:
            return None
        cpu_pool = None if on_cpu is None else resident_bytes(on_cpu)
        pinned_pool = None if pinned is None else self._shared_bytes(pinned)
        python, heap, tf_data = heaps.python_objects_bytes(), heaps.c_heap(), data_pipelines.buffered_bytes()
        python = _fitting(python, parts.anonymous_bytes)
        cpu_pool = _fitting(cpu_pool, parts.anonymous_bytes - (python or 0))
        pinned_pool = _fitting(pinned_pool, parts.shared_memory_bytes)
        row = {
            "step": step,
            "phase": phase,
            "wall_time": wall_time,
            "resident_bytes": parts.resident_bytes,
            "file_bytes": parts.file_bytes,
            "shared_memory_bytes": parts.shared_memory_bytes - (pinned_pool or 0),
            "pinned_pool_bytes": pinned_pool,
            "cpu_pool_bytes": cpu_pool,
            "python_objects_bytes": python,
            "c_heap_bytes": None if heap is None else heap.allocated_bytes,
            "c_heap_free_bytes": None if heap is None else heap.free_bytes,
            "tf_data_bytes": tf_data,
        }
        with self._lock:
            self._rows.append(tuple(MISSING if (figure := row[name]) is None else figure for name in HOST_COLUMNS))
        seconds = time.perf_counter() - began
        self._spent_seconds += seconds
        self._spend(seconds)
        return parts.resident_bytes

    def take(self) -> HostSamples | None:
        """Remove and return all rows, None if there are none."""
        with self._lock:
            rows, self._rows = self._rows, []
        if not rows:
            return None
        return HostSamples.of(dict(zip(HOST_COLUMNS, zip(*rows, strict=True), strict=True)))

    def _pool(self, device: str) -> list[tuple[int, int]] | None:
        dump = self._maps.read(device) if self._maps.available(device) else None
        return None if dump is None else pool_ranges(dump)

    def _shared_bytes(self, ranges: list[tuple[int, int]]) -> int | None:
        """Resident bytes of ranges of shared memory; None if some are not shared: the kernel counts those elsewhere."""
        if ranges != self._shared_ranges:
            mapped = MappedMemory()
            if not all(mapped.is_shared(begin, end) for begin, end in ranges):
                return None
            self._shared_ranges = ranges
        return resident_bytes(ranges)


def _fitting(size: int | None, room: int) -> int | None:
    return size if size is not None and size <= room else None
