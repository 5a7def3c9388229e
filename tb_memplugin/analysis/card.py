"""Where a card's memory is: what the driver says of it, what the allocator says of its pool, and what fills that. Pure.

The driver knows the card, all processes together and this one; the allocator knows its limit, its pool and what is in
use; the ledger knows what that is. Together they are one bar.
"""

import dataclasses
from typing import Literal, TypeAlias

import numpy as np

from tb_memplugin.codec import MISSING
from tb_memplugin.model import Category, Run, Snapshot

Part: TypeAlias = Literal[
    "in_use", "free_largest", "free_rest", "pool_free", "process_other", "others", "unreserved", "card_free"
]


@dataclasses.dataclass(frozen=True)
class Segment:
    """A part of the bar.

    Attributes:
        part: ``in_use`` (by category); of the pool ``free_largest`` and ``free_rest``, or ``pool_free`` where they are
            not told apart; ``process_other``: this process outside the pool (context, libraries, other allocators);
            ``others``: other processes, and this one's rest where the driver does not tell them apart; ``card_free``.
            Without a driver, ``unreserved`` is what the pool may still grow by.
        category, trainable: Of what is in use.
        bytes: Its length.
    """

    part: Part
    category: Category | None
    trainable: bool | None
    bytes: int


@dataclasses.dataclass(frozen=True)
class Card:
    """The bar at one traced step.

    Attributes:
        snapshot: Whose ledger it is.
        total_bytes: The card's memory, or the allocator's limit if the driver does not say.
        driver_process_bytes, driver_used_bytes, driver_total_bytes: The driver's figures, None where it does not say.
        segments: They sum to `total_bytes`; empty if no total is known.
        notes: Sentences on what does not fit or is not known.
    """

    snapshot: Snapshot
    total_bytes: int | None
    driver_process_bytes: int | None
    driver_used_bytes: int | None
    driver_total_bytes: int | None
    segments: tuple[Segment, ...]
    notes: tuple[str, ...]


def card(run: Run, device: str, step: int | None = None) -> Card | None:
    """The bar at the last snapshot up to a step (default: of all), the first if none is so early; None without any."""
    taken = [snapshot for snapshot in run.snapshots if snapshot.device == device]
    if not taken:
        return None
    earlier = [snapshot for snapshot in taken if step is None or snapshot.step <= step]
    snapshot = earlier[-1] if earlier else taken[0]
    process, used, total = _driver(run, device, snapshot.step)
    notes: list[str] = []
    segments = _pool_segments(snapshot, notes)
    pool = sum(segment.bytes for segment in segments)
    if total is not None and used is not None:
        segments += _outside_pool(pool, process, used, total, notes)
        length: int | None = total
    else:
        length = snapshot.capacity_bytes
        notes.append("The card's other users are not available, because no driver answered for this device.")
        if length is not None and length >= pool:
            segments.append(Segment("unreserved", None, None, length - pool))
    if length is None or sum(segment.bytes for segment in segments) != length:
        notes.append("The bar is not available, because its parts were measured at different moments and do not fit.")
        segments = []
    kept = tuple(segment for segment in segments if segment.bytes)
    return Card(snapshot, length, process, used, total, kept, tuple(notes))


def _driver(run: Run, device: str, step: int) -> tuple[int | None, int | None, int | None]:
    """(process, used, total) as the driver said last up to a step; else as it first said."""
    figures = run.samples.devices.get(device)
    if figures is None:
        return None, None, None
    known = np.flatnonzero((figures.driver_used_bytes != MISSING) & (figures.driver_total_bytes != MISSING))
    if not len(known):
        return None, None, None
    before = known[run.samples.step[known] <= step]
    row = int(before[-1] if len(before) else known[0])
    columns = (figures.driver_process_bytes, figures.driver_used_bytes, figures.driver_total_bytes)
    process, used, total = (None if column[row] == MISSING else int(column[row]) for column in columns)
    return process, used, total


def _pool_segments(snapshot: Snapshot, notes: list[str]) -> list[Segment]:
    sums: dict[tuple[Category, bool | None], int] = {}
    for row in snapshot.ledger:
        key = (row.category, row.trainable if row.category == "weights" else None)
        sums[key] = sums.get(key, 0) + row.bytes
    segments = [Segment("in_use", category, trainable, size) for (category, trainable), size in sums.items()]
    if snapshot.pool_bytes is None:
        notes.append("The free part of the pool is not available, because the size of the pool is not known.")
        return segments
    free = max(0, snapshot.pool_bytes - snapshot.in_use_bytes)
    largest = snapshot.largest_free_bytes
    if largest is None or largest > free:
        return [*segments, Segment("pool_free", None, None, free)]
    return [*segments, Segment("free_largest", None, None, largest), Segment("free_rest", None, None, free - largest)]


def _outside_pool(pool: int, process: int | None, used: int, total: int, notes: list[str]) -> list[Segment]:
    if process is not None and process >= pool and used >= process:
        mine, others = process - pool, used - process
    else:
        mine, others = 0, max(0, used - pool)
        if process is None:
            notes.append("This process's own part is not available, because the driver does not tell processes apart.")
        else:
            notes.append(
                "This process's part outside the pool is not available, because the driver's figure for it is smaller "
                "than the pool: they are of different moments."
            )
    return [
        Segment("process_other", None, None, mine),
        Segment("others", None, None, others),
        Segment("card_free", None, None, max(0, total - pool - mine - others)),
    ]
