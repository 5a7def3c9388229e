"""The memory that is left at the end of each recording session of the process, for the runs of later sessions."""

import threading
from collections.abc import Mapping, Sequence

from tb_memplugin.recorder.sampling.counter_rows import Value

MAX_SESSIONS = 128
"""Most earlier sessions that a run is told, spread evenly: the first and the last are among them."""


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
