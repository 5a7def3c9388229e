"""`Clock`: wall time that does not run backwards."""

import time


class Clock:
    """Wall time of one session. When the system's clock is set back, it goes on from the last time at the same pace.

    Without this, hours of a training could lie before its start. One thread owns it.

    Attributes:
        behind: Seconds by which the system's clock is behind this one.
    """

    def __init__(self) -> None:
        self._last = 0.0
        self.behind = 0.0

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
