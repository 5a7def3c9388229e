"""Counters of a program: what is kept of them, the memory left by earlier sessions, and the objects that it keeps."""

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tb_memplugin.recorder.heap import kept_objects
from tb_memplugin.schema import MISSING, CounterKind, Counters

Value: TypeAlias = tuple[CounterKind, str | None, int, int, str | None]
"""Kind, name, count, bytes and detail, as in `Counters`."""

DENSE_ROWS = 256  # rows of a counter that are kept at every change; after them, one row for each `take`


class CounterRows:
    """Takes values on the training's thread and returns the rows that changed on another. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[tuple[str, str | None], Value] = {}
        self._rows: list[tuple[int, Value]] = []
        self._kept: dict[tuple[str, str | None], int] = {}
        self._pending: dict[tuple[str, str | None], tuple[int, Value]] = {}

    def add(self, step: int, values: Sequence[Any]) -> None:
        """Keep the values that changed since the last call. A counter that is missing in `values` became zero."""
        with self._lock:
            now: dict[tuple[str, str | None], Value] = {(value[0], value[1]): tuple(value) for value in values}
            for key, last in self._last.items():
                if key not in now:
                    now[key] = (last[0], last[1], 0, min(0, last[3]), None)
            for key, value in now.items():
                if self._last.get(key, (None,) * 5)[2:4] == value[2:4]:
                    continue
                self._kept[key] = self._kept.get(key, 0) + 1
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
        return Counters(
            step=np.asarray([step for step, _ in rows], np.int64),
            kind=tuple(value[0] for _, value in rows),
            name=tuple(value[1] for _, value in rows),
            count=np.asarray([value[2] for _, value in rows], np.int64),
            bytes=np.asarray([value[3] for _, value in rows], np.int64),
            detail=tuple(value[4] for _, value in rows),
        )


MAX_SESSIONS = 128  # most earlier sessions that a run is told, spread evenly: the first and the last are among them


class SessionEnds:
    """Process-wide; any thread may call a method."""

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
        return [
            [("earlier_sessions", device, one, size, None) for device, size in left.items()]
            for one, left in _spread(ends)
        ]


def _spread(ends: Sequence[tuple[int, Mapping[str, int]]]) -> list[tuple[int, Mapping[str, int]]]:
    if len(ends) <= MAX_SESSIONS:
        return list(ends)
    return [ends[round(at * (len(ends) - 1) / (MAX_SESSIONS - 1))] for at in range(MAX_SESSIONS)]


session_ends = SessionEnds()


FREE_SECONDS = 0.25  # processor time that it may take at any cost, so that short programs are told
SHARE = 0.2  # share of the overhead budget that it may take beyond that
GROWTH_BYTES = 8 << 20  # least growth of host RSS from one look to the next; twice as much each time


class KeptRows:
    """For the training's thread."""

    def __init__(self, overhead: float) -> None:
        self.values: list[Value] = []
        self._overhead = overhead
        self._began = time.monotonic()
        self._spent_seconds = 0.0
        self._next_bytes = 0
        self._step_bytes = GROWTH_BYTES

    def look(self, resident_bytes: int) -> float:
        """Look if host RSS has grown and the budget allows; the processor seconds spent."""
        budget = FREE_SECONDS + SHARE * self._overhead * (time.monotonic() - self._began)
        if not self._overhead or resident_bytes < self._next_bytes or self._spent_seconds > budget:
            return 0.0
        if self._next_bytes:
            self._step_bytes *= 2
        self._next_bytes = resident_bytes + self._step_bytes
        began = time.thread_time()
        arrays, iterators = kept_objects()
        self.values = [
            *(
                ("kept_arrays", one.holder, one.number, MISSING if one.size is None else one.size, None)
                for one in arrays
            ),
            *(("kept_iterators", one.holder, one.number, MISSING, None) for one in iterators),
        ]
        seconds = time.thread_time() - began
        self._spent_seconds += seconds
        return seconds
