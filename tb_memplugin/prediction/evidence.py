"""What a run showed of batch sizes, which no prediction contradicts, and the search for the largest one. Pure."""

import dataclasses
from collections.abc import Callable, Mapping

from tb_memplugin.model.units import format_bytes

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


@dataclasses.dataclass(frozen=True)
class Peaks:
    """The lowest, the median and the highest peak of the recorded steps of a batch size, in bytes."""

    low_bytes: int
    median_bytes: int
    high_bytes: int


@dataclasses.dataclass(frozen=True)
class Evidence:
    """The batch sizes that a run trained with, at its own conditions.

    Attributes:
        capacity_bytes: The allocator's limit in the run; None if unknown.
        peaks: Batch size to the peaks of its steps that passed.
        failed: Batch size to the step in which it ran out of memory.
    """

    capacity_bytes: int | None = None
    peaks: Mapping[int, Peaks] = dataclasses.field(default_factory=dict)
    failed: Mapping[int, int] = dataclasses.field(default_factory=dict)

    def fits(self, batch_size: int | None, capacity_bytes: int | None) -> bool | None:
        """Whether a batch size fits into a capacity, as far as the run shows it; None if it does not.

        A smaller batch fits where a larger one ran, and a larger one fails where a smaller one failed.
        """
        own = self.capacity_bytes
        if own is None or batch_size is None or capacity_bytes is None:
            return None
        if capacity_bytes <= own and batch_size >= min(self.failed, default=batch_size + 1):
            # A batch size that ran before it failed, for example because memory leaked, failed.
            return False if batch_size in self.failed or batch_size > max(self.peaks, default=0) else None
        return True if capacity_bytes >= own and batch_size <= max(self.peaks, default=0) else None

    def largest(self, capacity_bytes: int) -> int:
        """The largest batch size that is known to fit into a capacity; 0 without any."""
        return max((size for size in self.peaks if self.fits(size, capacity_bytes)), default=0)

    def smallest_failed(self, capacity_bytes: int) -> int | None:
        """The smallest batch size from which on none is known to fit into a capacity; None without any."""
        failed = [size for size in self.failed if self.fits(size, capacity_bytes) is False]
        return min((size for size in failed if size > self.largest(capacity_bytes)), default=None)

    def sentences(self, batch_size: int | None, capacity_bytes: int | None) -> list[str]:
        """What the run shows of a batch size and a capacity."""
        fits, own = self.fits(batch_size, capacity_bytes), format_bytes(self.capacity_bytes)
        if batch_size is None or fits is None:
            return []
        if fits:
            ran = min(size for size in self.peaks if size >= batch_size)
            return [f"Recorded: batch size {ran:,} ran within {own}."] if ran != batch_size else []
        size = max(size for size in self.failed if size <= batch_size)
        return [f"Recorded: batch size {size:,} ran out of memory in step {self.failed[size]:,}, with {own}."]


NOTHING = Evidence()
