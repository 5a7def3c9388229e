"""`HostParts`: measures the parts of host memory at step end, as the overhead budget allows."""

import threading
import time
from collections.abc import Callable

from tb_memplugin.importers.allocator.memory_dump import pool_ranges
from tb_memplugin.model import HOST_COLUMNS, MISSING, HostSamples
from tb_memplugin.recorder.native.allocators import PINNED
from tb_memplugin.recorder.native.mapped_memory import MappedMemory
from tb_memplugin.recorder.native.memory_maps import MemoryMaps
from tb_memplugin.recorder.native.resident_pages import resident_bytes
from tb_memplugin.recorder.observe.data_pipelines import data_pipelines
from tb_memplugin.recorder.sampling import heaps
from tb_memplugin.recorder.sampling.host import resident_parts

SHARE = 0.2
"""Share of the overhead budget that these measurements may cost."""
MIN_SECONDS = 0.2
"""Least time between two of them."""
MAX_ROWS_PER_DOUBLING = 1500
"""About so many rows are recorded while the run time doubles, so that days of training do not fill the disk."""
Measured = tuple[dict[str, float], bytes | None, bytes | None]
"""A row by column, and the memory maps of ``CPU:0`` and of pinned memory, None if unknown."""
_CPU = "CPU:0"


class HostParts:
    """Selects the steps after which the parts are measured, and keeps the rows until they are written.

    The training's thread calls `due` and `read`, the background thread `measure` and `take`.

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
            # What the first calls load is no cost of a step.
            heaps.python_objects_bytes()
            heaps.c_heap()

    def due(self) -> bool:
        """Whether the system tells the parts, and all measurements so far cost at most their share of the run time."""
        elapsed = time.perf_counter() - self._began
        if not self._known or elapsed - self._last < max(MIN_SECONDS, elapsed / MAX_ROWS_PER_DOUBLING):
            return False
        return self._share > 0 and self._spent_seconds <= self._share * elapsed

    def read(self, step: int, phase: int, wall_time: float) -> Measured | None:
        """The row of a step without pools, and their memory maps, for `measure`; None if the system does not tell."""
        began = time.perf_counter()
        self._last = began - self._began
        parts = resident_parts()
        if parts is None:
            return None
        python, heap, tf_data = heaps.python_objects_bytes(), heaps.c_heap(), data_pipelines.buffered_bytes()
        on_cpu, pinned = (self._maps.read(name) if self._maps.available(name) else None for name in (_CPU, PINNED))
        row = {
            "step": step,
            "phase": phase,
            "wall_time": wall_time,
            "resident_bytes": parts.resident_bytes,
            "file_bytes": parts.file_bytes,
            "shared_memory_bytes": parts.shared_memory_bytes,
            "pinned_pool_bytes": MISSING,
            "cpu_pool_bytes": MISSING,
            "python_objects_bytes": MISSING if python is None else python,
            "c_heap_bytes": MISSING if heap is None else heap.allocated_bytes,
            "c_heap_free_bytes": MISSING if heap is None else heap.free_bytes,
            "tf_data_bytes": MISSING if tf_data is None else tf_data,
        }
        self._count(time.perf_counter() - began)
        return row, on_cpu, pinned

    def measure(self, row: dict[str, float], on_cpu: bytes | None, pinned: bytes | None) -> None:
        """Add the resident pages of the pools, and keep the row.

        Other threads go on allocating meanwhile: parts that do not fit into the anonymous pages were not measured at
        the same moment, and stay unknown.
        """
        began = time.thread_time()
        room = row["resident_bytes"] - row["file_bytes"] - row["shared_memory_bytes"]
        pool = None if on_cpu is None else resident_bytes(pool_ranges(on_cpu))
        for name, size in (("python_objects_bytes", row["python_objects_bytes"]), ("cpu_pool_bytes", pool)):
            fits = size is not None and size != MISSING and size <= room
            row[name] = size if fits and size is not None else MISSING
            room -= row[name] if fits else 0
        shared = None if pinned is None else self._shared_bytes(pool_ranges(pinned))
        if shared is not None and shared <= row["shared_memory_bytes"]:
            row["pinned_pool_bytes"] = shared
            row["shared_memory_bytes"] -= shared
        with self._lock:
            self._rows.append(tuple(row[name] for name in HOST_COLUMNS))
        self._count(time.thread_time() - began)

    def take(self) -> HostSamples | None:
        """Remove and return all rows, None if there are none."""
        with self._lock:
            rows, self._rows = self._rows, []
        if not rows:
            return None
        return HostSamples.of(dict(zip(HOST_COLUMNS, zip(*rows, strict=True), strict=True)))

    def _shared_bytes(self, ranges: list[tuple[int, int]]) -> int | None:
        """Resident bytes of ranges of shared memory; None if some are not shared: the kernel counts those elsewhere."""
        if ranges != self._shared_ranges:
            mapped = MappedMemory()
            if not all(mapped.is_shared(begin, end) for begin, end in ranges):
                return None
            self._shared_ranges = ranges
        return resident_bytes(ranges)

    def _count(self, seconds: float) -> None:
        self._spent_seconds += seconds
        self._spend(seconds)
