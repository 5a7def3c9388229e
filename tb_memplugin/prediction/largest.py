"""The search for the largest batch size that passes. Pure."""

from collections.abc import Callable

SMALLER = 0.98
"""Factor between the batch sizes, or the capacities, that are tried one after the other."""


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
    least, most = ran, ran + 1
    while most < below and possible(most):
        least, most = most, min(most * 2, below)
    while most - least > 1:
        middle = (least + most) // 2
        if possible(middle):
            least = middle
        else:
            most = middle
    failing = least + 1
    while least > ran and not passes(least):
        failing, least = least, max(ran, min(least - 1, int(least * SMALLER)))
    while failing - least > 1:  # between two of these steps
        middle = (least + failing) // 2
        if passes(middle):
            least = middle
        else:
            failing = middle
    return least
