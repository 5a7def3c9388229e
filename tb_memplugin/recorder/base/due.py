"""What ends a row of ordinary steps: a time, a step or a peak that is known beforehand, or a change that is not."""

import math
from typing import NamedTuple


class Due(NamedTuple):
    """When more is to be done than to sample a step: whatever comes first.

    Attributes:
        seconds: After this many seconds.
        step: As a step of this number or a later one begins.
        peak_bytes: After a step with a higher peak.
    """

    seconds: float = math.inf
    step: float = math.inf
    peak_bytes: float = math.inf


class Changes:
    """Changes of the program, for all recorders of the process: each one compares `last` with what it saw.

    Attributes:
        last: Another object after each change. Unlike a number that two threads increment at once, it loses none.
    """

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last = object()

    def note(self) -> None:
        """Make every recorder look what is due before its next step. Any thread and any finalizer may call this."""
        self.last = object()


changes = Changes()
