"""Counters of a program: what is kept of them, the memory left by earlier sessions, and the objects that it keeps."""

import collections
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tb_memplugin.recorder.heap import kept_objects, unreachable
from tb_memplugin.recorder.watch import program_counters
from tb_memplugin.schema import MISSING, CounterKind, Counters

Value: TypeAlias = tuple[CounterKind, str | None, int, int, str | None]
"""Kind, name, count, bytes and detail, as in `Counters`."""

DENSE_ROWS = 256  # rows of a counter that are kept at every change; after them, one row for each `take`
MAX_SESSIONS = 128  # most earlier sessions that a run is told, spread evenly: the first and the last are among them
FREE_SECONDS = 0.25  # processor time that looking at kept objects may take at any cost, for short programs
SHARE = 0.2  # share of the overhead budget that it may take beyond that


class CounterRows:
    """Takes values on the training's thread and returns the rows that changed on another. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[tuple[str, str | None], Value] = {}
        self._rows: list[tuple[int, Value]] = []
        self._kept: collections.Counter[tuple[str, str | None]] = collections.Counter()
        self._pending: dict[tuple[str, str | None], tuple[int, Value]] = {}

    def add(self, step: int, values: Sequence[Any]) -> None:
        """Keep the values that changed since the last call. A counter that is missing in `values` became zero."""
        with self._lock:
            now: dict[tuple[str, str | None], Value] = {(value[0], value[1]): tuple(value) for value in values}
            for key, last in self._last.items():
                now.setdefault(key, (last[0], last[1], 0, min(0, last[3]), None))
            for key, value in now.items():
                if self._last.get(key, (None,) * 5)[2:4] == value[2:4]:
                    continue
                self._kept[key] += 1
                if self._kept[key] <= DENSE_ROWS:
                    self._rows.append((step, value))
                else:
                    self._pending[key] = (step, value)
            self._last = now

    def take(self) -> Counters | None:
        with self._lock:
            rows = [*self._rows, *self._pending.values()]
            self._rows, self._pending = [], {}
        if not rows:
            return None
        steps, values = zip(*rows, strict=True)
        kinds, names, counts, sizes, details = zip(*values, strict=True)
        step, count, size = (np.asarray(column, np.int64) for column in (steps, counts, sizes))
        return Counters(step, kinds, names, count, size, details)


class SessionEnds:
    """What the sessions of this process left in use. Any thread may call a method."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = 0
        self._ends: dict[int, Mapping[str, int]] = {}  # by number; bytes by device

    def begin(self) -> int:
        with self._lock:
            self._begun += 1
            return self._begun

    def note(self, number: int, left_bytes: Mapping[str, int]) -> None:
        with self._lock:
            self._ends[number] = dict(left_bytes)

    def earlier(self, number: int) -> list[list[Value]]:
        """The counters of each session before one, in order."""
        with self._lock:
            ends = sorted((one, left) for one, left in self._ends.items() if one < number)
        if len(ends) > MAX_SESSIONS:
            ends = [ends[round(at * (len(ends) - 1) / (MAX_SESSIONS - 1))] for at in range(MAX_SESSIONS)]
        return [[("earlier_sessions", device, one, size, None) for device, size in left.items()] for one, left in ends]


session_ends = SessionEnds()


class ProgramCounts:
    """Counts the program for one session, on the training's thread."""

    def __init__(self, overhead: float) -> None:
        self.rows = CounterRows()
        self._number = session_ends.begin()
        self._overhead = overhead
        self._began = time.monotonic()
        self._spent_seconds = 0.0
        self._earlier: Sequence[Value] | None = None  # the last earlier session; None before the first `count`
        self._kept: list[Value] = []  # the objects that the program keeps

    def count(self, step: int, grew: Callable[[], bool]) -> float:
        """Keep the counters that changed, and once those of earlier sessions. Looks at the program's objects if its
        memory `grew` and the budget allows. Returns the cost in processor seconds."""
        budget = FREE_SECONDS + SHARE * self._overhead * (time.monotonic() - self._began)
        cost = self._look() if self._overhead and self._spent_seconds <= budget and grew() else 0.0
        if program_counters.due_in() > 0.0 and self._earlier is not None and not cost:
            return 0.0
        if self._earlier is None:
            self._earlier = ()
            for values in session_ends.earlier(self._number):
                self.rows.add(step, values)
                self._earlier = values
        cost += program_counters.models.find_unreachable(self._overhead, unreachable)
        self.rows.add(step, [*program_counters.values(), *self._kept, *self._earlier])
        return cost

    def _look(self) -> float:
        began = time.thread_time()
        arrays, iterators = kept_objects()
        sized = [(one, MISSING if one.size is None else one.size) for one in arrays]
        self._kept = [("kept_arrays", one.holder, one.number, size, None) for one, size in sized]
        self._kept += [("kept_iterators", one.holder, one.number, MISSING, None) for one in iterators]
        seconds = time.thread_time() - began
        self._spent_seconds += seconds
        return seconds

    def note_end(self, in_use: Mapping[str, int], own: Mapping[str, int]) -> None:
        """Note for later sessions what this one leaves in use beside its model."""
        # On the CPU, TensorFlow may use a NumPy array's memory for a weight, which its allocator does not know.
        left = {name: max(0, size - own.get(name, 0)) for name, size in in_use.items()}
        if left:
            session_ends.note(self._number, left)
