"""The search for the largest batch size that passes. Pure."""

from collections.abc import Callable

SMALLER = 0.98
"""Factor between the batch sizes, or the capacities, that are tried one after the other. With 0.5,
`test_the_failed_training_fails_and_every_simulated_fix_passes` fails."""


def largest(ran: int, below: int, possible: Callable[[int], bool], passes: Callable[[int], bool]) -> int:
    """The largest batch size that passes; 0 if none does.

    Whether a size passes is not monotonic: a larger batch may leave better pieces. So the search goes down from the
    first size that no allocator could serve.

    Args:
        ran: A batch size that is known to pass; 0 if none is.
        below: Only smaller batch sizes count.
        possible: Whether an allocator could serve a batch size, quickly.
        passes: Whether it passes.
    """
    passing, impossible = ran, ran + 1
    while impossible < below and possible(impossible):
        passing, impossible = impossible, min(impossible * 2, below)
    while impossible - passing > 1:
        middle = (passing + impossible) // 2
        if possible(middle):
            passing = middle
        else:
            impossible = middle
    failing = passing + 1
    while passing > ran and not passes(passing):
        failing, passing = passing, max(ran, min(passing - 1, int(passing * SMALLER)))
    while failing - passing > 1:  # between two of these steps
        middle = (passing + failing) // 2
        if passes(middle):
            passing = middle
        else:
            failing = middle
    return passing
