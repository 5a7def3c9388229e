"""`ProgramCounts`: the counters of the program for one session. The training's thread counts at the
end of steps, the background thread takes the rows that changed."""

import collections
import itertools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tb_memplugin.recorder.heap import kept_objects, unreachable
from tb_memplugin.recorder.watch import program_counters
from tb_memplugin.schema import MISSING, CounterKind, Counters

Value: TypeAlias = tuple[CounterKind, str | None, int, int]
"""Kind, name, count and bytes, as in `Counters`."""
_Key: TypeAlias = tuple[CounterKind, str | None]
_Row: TypeAlias = tuple[int, CounterKind, str | None, int, int]  # step, then a value

# rows of a counter that are kept at every change; after them, one row for each `take`
DENSE_ROWS = 256
# most earlier sessions that a run is told, spread evenly: the first and the last are among them
MAX_SESSIONS = 128
MAX_ENDS = 10_000  # most sessions of a process whose ends are noted, the first ones
# processor time that looking at kept objects may take at any cost, for short programs
FREE_SECONDS = 0.25
SHARE = 0.2  # share of the overhead budget that it may take beyond that


class CounterRows:
    """Takes values on the training's thread and returns the rows that changed on another.
    Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[_Key, tuple[int, int]] = {}  # count and bytes
        self._rows: list[_Row] = []
        self._kept: collections.Counter[_Key] = collections.Counter()
        self._pending: dict[_Key, _Row] = {}

    def add(self, step: int, values: Sequence[Any]) -> None:
        """Keep the values that changed since the last call. A counter that is missing in `values`
        became zero."""
        with self._lock:
            before = self._last
            self._last = {(kind, name): (count, size) for kind, name, count, size in values}
            for key, (_, size) in before.items():
                self._last.setdefault(key, (0, min(0, size)))
            for key, value in self._last.items():
                if before.get(key) == value:
                    continue
                self._kept[key] += 1
                row = step, *key, *value
                if self._kept[key] <= DENSE_ROWS:
                    self._rows.append(row)
                else:
                    self._pending[key] = row

    def take(self) -> Counters | None:
        with self._lock:
            rows = [*self._rows, *self._pending.values()]
            self._rows, self._pending = [], {}
        if not rows:
            return None
        step, kind, name, count, size = zip(*rows, strict=True)
        numbers = (np.array(column, np.int64) for column in (step, count, size))
        steps, counts, sizes = numbers
        return Counters(steps, kind, name, counts, sizes)


_numbers = itertools.count(1)  # of the sessions of this process
session_ends: dict[int, Mapping[str, int]] = {}
"""What the sessions of this process left in use: bytes by device, by the session's number."""


def earlier_sessions(number: int, since: int = 0) -> list[list[Value]]:
    """The counters of each session from one number to before another one, in order."""
    ends = sorted((one, left) for one, left in session_ends.copy().items() if since <= one < number)
    if len(ends) > MAX_SESSIONS:
        places = np.linspace(0, len(ends) - 1, MAX_SESSIONS).round()
        ends = [ends[int(place)] for place in places]
    return [
        [("earlier_sessions", device, one, size) for device, size in left.items()]
        for one, left in ends
    ]


class ProgramCounts:
    """Counts the program for one session, on the training's thread."""

    def __init__(self, overhead: float) -> None:
        self.rows = CounterRows()
        self._number = next(_numbers)
        self._told = 0  # number of the first session whose end was not told yet
        self._overhead = overhead
        self._began = time.monotonic()
        self._spent_seconds = 0.0
        self._grew = False  # since the last look
        self._earlier: Sequence[Value] = ()  # the last earlier session
        self._kept: list[Value] = []  # the objects that the program keeps

    def count(self, step: int, grew: Callable[[], bool]) -> float:
        """Keep the counters that changed, and once those of earlier sessions. Looks at the
        program's objects if its memory `grew` and the budget allows. Returns the cost in processor
        seconds."""
        budget = FREE_SECONDS + SHARE * self._overhead * (time.monotonic() - self._began)
        self._grew = grew() or self._grew
        cost = 0.0
        if self._grew and self._overhead and self._spent_seconds <= budget:
            self._grew = False
            cost = self._look()
        if program_counters.due_in() > 0.0 and self._told == self._number and not cost:
            return 0.0
        cost += program_counters.models.find_unreachable(self._overhead, unreachable)
        values = [*program_counters.values(), *self._kept]
        for ended in earlier_sessions(self._number, self._told):
            self.rows.add(step, [*values, *ended])
            self._earlier = ended
        self._told = self._number
        self.rows.add(step, [*values, *self._earlier])
        return cost

    def _look(self) -> float:
        began = time.thread_time()
        kept = kept_objects(program_counters.kept_kind, program_counters.kept_bytes)
        self._kept = [
            (one.kind, one.holder, one.number, MISSING if one.size is None else one.size)
            for one in kept
        ]
        seconds = time.thread_time() - began
        self._spent_seconds += seconds
        return seconds

    def note_end(self, in_use: Mapping[str, int], own: Mapping[str, int]) -> None:
        """Note for later sessions what this one leaves in use beside its model."""
        # On the CPU, TensorFlow may use a NumPy array's memory for a weight, which its allocator
        # does not know.
        left = {name: max(0, size - own.get(name, 0)) for name, size in in_use.items()}
        if left and len(session_ends) < MAX_ENDS:
            session_ends[self._number] = left

    def next_session(self) -> None:
        """Count what follows as another session."""
        self._number = next(_numbers)
