"""What a run showed of batch sizes, which no prediction contradicts, and the search for the largest one. Pure."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from tb_memplugin.schema import format_bytes

SMALLER = 0.98
"""Factor between the batch sizes, or the capacities, that are tried one after the other. With 0.5,
`test_the_failed_training_fails_and_every_simulated_fix_passes` fails."""


def bisected(passing: int, failing: int, passes: Callable[[int], bool]) -> int:
    """The number next to one that fails, between one that passes and one that fails."""
    while abs(failing - passing) > 1:
        middle = (passing + failing) // 2
        if passes(middle):
            passing = middle
        else:
            failing = middle
    return passing


def largest(ran: int, below: int, possible: Callable[[int], bool], passes: Callable[[int], bool]) -> int:
    """The largest batch size below another that passes, of those above one that is known to; 0 if none does.

    Whether a size passes is not monotonic: a larger batch may leave better pieces. So the search goes down from the
    first size that no allocator could serve, which `possible` says quickly.
    """
    passing, impossible = ran, ran + 1
    while impossible < below and possible(impossible):
        passing, impossible = impossible, min(impossible * 2, below)
    passing = bisected(passing, impossible, possible)
    failing = passing + 1
    while passing > ran and not passes(passing):
        failing, passing = passing, max(ran, min(passing - 1, int(passing * SMALLER)))
    return bisected(passing, failing, passes)  # between two of these steps


@dataclasses.dataclass(frozen=True)
class Peaks:
    """The lowest, the median and the highest peak of the recorded steps of a batch size, in bytes.

    `capacity_bytes` is the smallest limit within which they ran; None if unknown.
    """

    low_bytes: int
    median_bytes: int
    high_bytes: int
    capacity_bytes: int | None = None


@dataclasses.dataclass(frozen=True)
class Failure:
    batch_size: int
    capacity_bytes: int | None
    step: int


@dataclasses.dataclass(frozen=True)
class Evidence:
    """The batch sizes that a run trained with, and their failures. Each proves something under its own capacity only.

    `growth` says, as a sentence, why no step proves that later ones fit, if memory grows over the steps.
    """

    peaks: Mapping[int, Peaks] = dataclasses.field(default_factory=dict)
    failures: Sequence[Failure] = ()
    growth: str | None = None

    def fits(self, batch_size: int | None, capacity_bytes: int | None) -> bool | None:
        """Whether a batch size fits into a capacity; None if the run does not show it."""
        if batch_size is None or capacity_bytes is None:
            return None
        if self._failure(batch_size, capacity_bytes) is not None:
            return False
        return True if self._proof(batch_size, capacity_bytes) is not None else None

    def _failure(self, batch_size: int, capacity_bytes: int) -> Failure | None:
        """The failure that shows that a batch size does not fit: of this size, or of a smaller one if none ran."""
        failed = [
            one for one in self.failures if one.batch_size <= batch_size and capacity_bytes <= (one.capacity_bytes or 0)
        ]
        last = max(failed, key=lambda one: one.batch_size, default=None)
        if last is None or last.batch_size == batch_size:
            return last
        return None if any(size >= batch_size for size in self._ran(capacity_bytes)) else last

    def _proof(self, batch_size: int, capacity_bytes: int) -> int | None:
        """The smallest batch size whose steps prove that this one fits.

        A batch size that ran and failed later, within no smaller capacity, shows that steps that pass prove nothing
        in this training: memory may leak.
        """
        outlived = any(
            size >= one.batch_size and (peaks.capacity_bytes or 0) <= (one.capacity_bytes or 0)
            for one in self.failures
            for size, peaks in self.peaks.items()
        )
        if self.growth is not None or outlived:
            return None
        return min((size for size in self._ran(capacity_bytes) if size >= batch_size), default=None)

    def proven_within(self, batch_size: int | None, capacity_bytes: int) -> int | None:
        """The capacity within which the steps ran that prove that a batch size fits; None without such steps."""
        ran = None if batch_size is None else self._proof(batch_size, capacity_bytes)
        return None if ran is None else self.peaks[ran].capacity_bytes

    def _ran(self, capacity_bytes: int) -> list[int]:
        return [size for size, one in self.peaks.items() if one.capacity_bytes and one.capacity_bytes <= capacity_bytes]

    def largest(self, capacity_bytes: int) -> int:
        return max((size for size in self.peaks if self.fits(size, capacity_bytes)), default=0)

    def smallest_failed(self, capacity_bytes: int) -> int | None:
        """The smallest batch size from which on none is known to fit into a capacity; None without any."""
        failed = [one.batch_size for one in self.failures if self.fits(one.batch_size, capacity_bytes) is False]
        return min((size for size in failed if size > self.largest(capacity_bytes)), default=None)

    def sentences(self, batch_size: int | None, capacity_bytes: int | None) -> list[str]:
        if batch_size is None or capacity_bytes is None:
            return []
        failed, ran = self._failure(batch_size, capacity_bytes), self._proof(batch_size, capacity_bytes)
        if failed is not None:
            within = format_bytes(failed.capacity_bytes)
            return [
                f"Recorded: batch size {failed.batch_size:,} ran out of memory in step {failed.step:,}, with {within}."
            ]
        if ran is None or ran == batch_size:
            return []
        return [f"Recorded: batch size {ran:,} ran within {format_bytes(self.peaks[ran].capacity_bytes)}."]


NOTHING = Evidence()
