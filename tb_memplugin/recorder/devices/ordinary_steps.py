"""`OrdinarySteps`: ends a step and begins the next one while nothing else is due, with as little work as possible.

A training step takes the processor's caches for itself, so whatever the recorder touches afterwards costs about ten
times as much as in a loop of its own. This path is therefore one function with few calls; all else lies behind its
comparisons.
"""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tb_memplugin.recorder.base import Due, changes
from tb_memplugin.recorder.devices.host import ResidentMemory
from tb_memplugin.recorder.devices.statistics import Statistics


class Clock:
    """Wall time of one session. When the system's clock is set back, it goes on from the last time at the same pace.
    Without this, hours of a training could lie before its start. One thread owns it."""

    def __init__(self) -> None:
        self._last = 0.0
        self.behind = 0.0  # seconds by which the system's clock is behind this one

    def now(self) -> float:
        """Seconds since the epoch, never less than before."""
        now = time.time() + self.behind
        if now < self._last:
            self.behind += self._last - now
            now = self._last
        self._last = now
        return now

    def advance_to(self, wall_time: float) -> None:
        """Go on from a time that was read without `now`, if it is later."""
        self._last = max(self._last, wall_time)


RESIDENT_SECONDS = 0.05
"""Shortest time between two reads of host RSS. A read takes longer than all other figures of an ordinary step."""


class PassedSteps(NamedTuple):
    """Steps that ended here: how many, how long they took together, and the highest peak of any device."""

    steps: int
    seconds: float
    peak_bytes: int


class OrdinarySteps:
    """The training's thread calls all methods except `forbid`, which any thread may call, as it may read `step`,
    `began` (the running step's wall time by the recorder's clock) and `passed` (steps that ended since `allow`)."""

    __slots__ = (
        *("step", "began", "passed"),
        *("_seen", "_until", "_last_step", "_most_bytes", "_highest", "_first", "_behind"),
        *("_handle", "_get", "_reset", "_devices", "_keep", "_host", "_resident", "_next_read"),
    )

    def __init__(self, devices: Sequence[str], host: ResidentMemory) -> None:
        self._devices = tuple(devices)
        self._host = host
        self.step, self.began, self.passed = 0, 0.0, 0
        self._seen: object = None
        self._until = self._first = self._behind = self._next_read = 0.0
        self._last_step = self._most_bytes = math.inf
        self._highest = self._resident = 0
        self._handle: Any = None
        self._get: Any = None
        self._reset: Any = None
        self._keep: Callable[[tuple[float, ...]], None] = lambda row: None

    def next(self, step: int) -> bool:
        """End the running step, keep its sample and begin the next one. False if more is due, or if this fails: nothing
        was done then, and the fault will show on the other path."""
        if changes.last is not self._seen:
            return False
        try:
            wall_time = time.time() + self._behind
            if not self.began <= wall_time < self._until or step >= self._last_step:
                return False
            if wall_time >= self._next_read:
                self._resident = self._host.resident_bytes()
                self._next_read = wall_time + RESIDENT_SECONDS
            handle, get, reset = self._handle, self._get, self._reset
            row: tuple[float, ...] = (wall_time, self.step, self._resident)
            for device in self._devices:
                figures = get(handle, device)
                peak = figures["peak"]
                if peak > self._most_bytes:
                    return False
                if peak > self._highest:
                    self._highest = peak
                row += figures["current"], peak
            for device in self._devices:
                reset(handle, device)
            self._keep(row)
        except Exception:
            return False
        self.step, self.began = step, wall_time
        self.passed += 1
        return True

    def begin(self, step: int, began: float) -> None:
        """Begin a step on the other path. The next one does not begin here, unless `allow` is called."""
        self.step, self.began = step, began
        self._stop()

    def allow(
        self,
        seen: object,
        due: Due,
        behind: float,
        resident: tuple[float, int],
        statistics: Statistics,
        keep: Callable[[tuple[float, ...]], None],
    ) -> None:
        """Let the following steps begin here until more is due.

        Args:
            seen: `changes.last` from before anybody looked what is due.
            due: What they found.
            behind: What the recorder's clock adds to the system's.
            resident: When host RSS was last read, and what it was.
            statistics: TensorFlow's functions.
            keep: Called with a short row for each step: see `SampleBuffer.like`.
        """
        self._until, self._last_step, self._most_bytes = self.began + due.seconds, due.step, due.peak_bytes
        self._behind, self._first = behind, self.began
        self._resident, self._next_read = resident[1], resident[0] + RESIDENT_SECONDS
        self._handle, self._get, self._reset = statistics
        self._keep = keep
        self._seen = seen

    def forbid(self) -> None:
        self._seen = None

    def take(self) -> PassedSteps:
        """What ended here since `allow`; begins no further step here."""
        passed = PassedSteps(self.passed, self.began - self._first if self.passed else 0.0, self._highest)
        self._stop()
        return passed

    def _stop(self) -> None:
        self._seen = self._handle = None  # the context is not kept alive for longer than it is used
        self.passed = self._highest = 0
