"""Searches for the largest batch size, or the smallest capacity, that passes, by trials. Pure."""

import math
from collections.abc import Callable

SMALLER = 0.98
"""Factor between the batch sizes, or the capacities, that are tried one after the other. With 0.5,
`test_the_failed_training_fails_and_every_simulated_fix_passes` fails."""
EVERY_SIZE = 50
"""`largest` leaves out no batch size below this one, which follows from `SMALLER`."""


def bisected(
    passing: int, failing: int, passes: Callable[[int], bool], asked: int | None = None
) -> int:
    """The number next to one that fails, between one that passes and one that fails; for `asked`
    see `largest`."""
    while abs(failing - passing) > 1 and (asked is None or passing < asked < failing):
        middle = (passing + failing) // 2
        if passes(middle):
            passing = middle
        else:
            failing = middle
    return passing


def largest(
    ran: int,
    below: int,
    possible: Callable[[int], bool],
    passes: Callable[[int], bool],
    asked: int | None = None,
) -> int:
    """The largest batch size below another that passes, of those above one that is known to; 0 if
    none does. With `asked` only so far that it is known whether that is larger.

    Whether a size passes is not monotonic: a larger batch may leave better pieces. So the search
    goes down from the first size that no allocator could serve, which `possible` says quickly."""
    passing, impossible = ran, ran + 1
    while impossible < below and possible(impossible):
        passing, impossible = impossible, min(impossible * 2, below)
    passing = bisected(passing, impossible, possible)
    failing = passing + 1
    while passing > ran and (asked is None or asked < failing) and not passes(passing):
        failing, passing = passing, max(ran, min(passing - 1, int(passing * SMALLER)))
    return bisected(passing, failing, passes, asked)  # between two of these steps


def smallest_capacity(begin: float, most: int, passes: Callable[[int], bool]) -> int | None:
    """The first whole MiB from a capacity on, in steps of some percent, that passes."""
    while begin <= most:
        rounded = math.ceil(begin / (1 << 20)) << 20
        if passes(rounded):
            return rounded
        begin = rounded / SMALLER
    return None
