"""What ends a row of ordinary steps: a time, a step or a peak that is known beforehand, or a change that is not."""

import math
from typing import NamedTuple


class Due(NamedTuple):
    """When more is to be done than to sample a step: whatever comes first."""

    seconds: float = math.inf  # from now
    step: float = math.inf  # as a step of this number or a later one begins
    peak_bytes: float = math.inf  # after a step with a higher peak


class Changes:
    """Changes of the program, for all recorders of the process: each one compares `last` with what it saw."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.note()

    def note(self) -> None:
        """Make every recorder look what is due before its next step. Any thread and any finalizer may call this."""
        self.last = object()  # unlike a number that two threads increment at once, it loses no change


changes = Changes()
