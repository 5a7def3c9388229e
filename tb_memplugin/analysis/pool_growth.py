"""How the pool grew over the traced steps: by how much, between which steps, in which regions, and beside what. Pure.

The pool's size is known at traced steps. A region that is there at one of them is there at the next: a pool gives
regions back only where an allocation would fail otherwise, and a CPU's never does.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from tb_memplugin.analysis.bfc import ROUNDING
from tb_memplugin.model import Category, Run, Snapshot
from tb_memplugin.units import format_bytes

FIRST_REGION = 2 << 20
"""Bytes of the first region of a pool that grows, unless the first request is larger."""
MAX_TRIALS = 5_000
"""Steps of the search for the regions of a pool; sound figures need some dozens."""
MAX_SENTENCES = 30


@dataclasses.dataclass(frozen=True)
class PoolGrowth:
    """What the pool was at a traced step more, or less, than at the one before.

    Attributes:
        after: The traced step before, None for the first one of a session.
        by: The traced step that saw it.
        bytes: The difference; of the first step of a session, all of the pool.
        regions: Bytes of the regions it came in, in the order they were taken, where the allocator's rule for their
            sizes leaves only one possibility; else None.
    """

    after: Snapshot | None
    by: Snapshot
    bytes: int
    regions: tuple[int, ...] | None

    @property
    def pool_bytes(self) -> int:
        """Bytes of the pool then."""
        return self.by.pool_bytes or 0

    def sentence(self) -> str:
        """What happened, with its figures."""
        if self.after is None:
            return f"The pool had {format_bytes(self.pool_bytes)} at step {self.by.step}{self._regions()}."
        between = f"Between step {self.after.step} and step {self.by.step}"
        if self.bytes < 0:
            return (
                f"{between} the pool shrank by {format_bytes(-self.bytes)} to {format_bytes(self.pool_bytes)}: the "
                "allocator gave back regions that were free."
            )
        grew = f"{between} the pool grew by {format_bytes(self.bytes)} to {format_bytes(self.pool_bytes)}"
        return f"{grew}{self._regions()}: {self._beside()}."

    def _regions(self) -> str:
        if self.regions is None:
            return ""
        sizes = [format_bytes(size) for size in self.regions]
        if len(sizes) == 1:
            return f", a region of {sizes[0]}"
        return f", regions of {', '.join(sizes[:-1])} and {sizes[-1]}"

    def _beside(self) -> str:
        """What was in use more at the step's peak."""
        more = self.by.in_use_bytes - (self.after.in_use_bytes if self.after is not None else 0)
        if more <= 0:
            return "not for more in use at the traced peaks, but because no free block was large enough for a request"
        category, share = _grown_most(self.after, self.by)
        named = f", {format_bytes(share)} of it {category.replace('_', ' ')}" if category is not None else ""
        return f"at the peak {format_bytes(more)} more were in use{named}"


def knows_pool(taken: Snapshot) -> bool:
    """Whether the snapshot says how large the pool was, and that can be: what is in use lies in it."""
    return taken.pool_bytes is not None and taken.pool_bytes >= taken.in_use_bytes


def pool_snapshots(run: Run, device: str) -> list[list[Snapshot]]:
    """The snapshots of a device that know the pool, by session, in order of time."""
    taken = sorted(
        (one for one in run.snapshots if one.device == device and knows_pool(one)),
        key=lambda one: (one.wall_time, one.step),
    )
    starts = np.sort(np.asarray(run.session_starts, np.float64))
    sessions: dict[int, list[Snapshot]] = {}
    for one in taken:
        sessions.setdefault(int(np.searchsorted(starts, one.wall_time, side="right")), []).append(one)
    return list(sessions.values())


def pool_growths(snapshots: Sequence[Snapshot]) -> list[PoolGrowth]:
    """Every change of the pool among the snapshots of one session, in order of time."""
    found: list[PoolGrowth] = []
    before: Snapshot | None = None
    for taken in snapshots:
        difference = (taken.pool_bytes or 0) - (before.pool_bytes or 0 if before is not None else 0)
        if difference:
            found.append(PoolGrowth(before, taken, difference, None))
        before = taken
    regions = regions_by_rule([growth.pool_bytes for growth in found], _limit(snapshots))
    if regions is None:
        return found
    return [dataclasses.replace(one, regions=sizes) for one, sizes in zip(found, regions, strict=True)]


def pool_sentences(sessions: Iterable[tuple[Sequence[Snapshot], Sequence[PoolGrowth]]]) -> list[str]:
    """How the pool of a device grew: of each session its snapshots, and the changes among them."""
    sentences = []
    for snapshots, growths in sessions:
        sentences += [growth.sentence() for growth in growths]
        if len(snapshots) > 1 and growths:
            since = growths[-1].by.step
            if growths[-1].by is not snapshots[-1]:
                sentences.append(f"From step {since} to step {snapshots[-1].step} it did not grow.")
    left_out = len(sentences) - MAX_SENTENCES
    return [f"The first {left_out} changes are not told here.", *sentences[left_out:]] if left_out > 0 else sentences


def regions_by_rule(pools: Sequence[int], limit: int | None) -> list[tuple[int, ...]] | None:
    """The regions by which a growing pool came to each of the sizes, None unless the rule leaves one possibility.

    A region has the size that is due, and then twice that is due; a request that is larger than what is due doubles it
    until it is not, and then the same is due again. Only the limit makes a region smaller.

    Args:
        pools: Sizes of the pool, growing.
        limit: The allocator's.
    """
    if not pools or any(after <= before for before, after in zip([0, *pools], pools, strict=False)):
        return None
    ways = _ways(tuple(pools), limit, 0, min(FIRST_REGION, limit or FIRST_REGION), iter(range(MAX_TRIALS)))
    try:
        first, second = next(ways, None), next(ways, None)
    except _TooManyError:
        return None
    if first is None or second is not None:
        return None
    split: list[tuple[int, ...]] = []
    regions = iter(first)
    total = 0
    for pool in pools:
        taken = []
        while total < pool:
            taken.append(next(regions))
            total += taken[-1]
        split.append(tuple(taken))
    return split


class _TooManyError(Exception):
    """More possibilities were tried than is worth it."""


def _ways(
    pools: tuple[int, ...], limit: int | None, total: int, due: int, trials: Iterator[int]
) -> Iterator[tuple[int, ...]]:
    """Every sequence of regions by which the pool comes from `total` to the last of `pools` through all of them."""
    if next(trials, None) is None:
        raise _TooManyError
    target = next((pool for pool in pools if pool > total), None)
    if target is None:
        yield ()
        return
    if target != limit and (target - total) % due:
        return  # all that follows is a multiple of what is due
    for doublings in range(64):
        size = due << doublings
        if total + size > target:
            if target == limit:
                yield (target - total,)  # whatever was due: there was no more
            return
        for rest in _ways(pools, limit, total + size, 2 * size if doublings == 0 else size, trials):
            yield (size, *rest)


def _limit(snapshots: Sequence[Snapshot]) -> int | None:
    capacity = next((taken.capacity_bytes for taken in snapshots if taken.capacity_bytes is not None), None)
    return None if capacity is None else capacity // ROUNDING * ROUNDING


def _grown_most(before: Snapshot | None, after: Snapshot) -> tuple[Category | None, int]:
    """The category whose bytes at the peak grew most, and by how much."""
    differences: dict[Category, int] = {}
    for sign, taken in ((-1, before), (1, after)):
        for row in taken.ledger if taken is not None else ():
            differences[row.category] = differences.get(row.category, 0) + sign * row.bytes
    most = max(differences, key=lambda category: differences[category], default=None)
    return (None, 0) if most is None or differences[most] <= 0 else (most, differences[most])
