"""The allocator's address space at an instant of a traced step, as far as the trace proves it. Pure.

Every byte that the trace ever speaks of is known at every instant: no chunk covers it between a deallocation and the
next allocation, because each of them is in the trace. Between such stretches lie bytes that nothing was seen of: chunks
that live through the whole window, free blocks that it never touched, or the space between two regions. Which of these,
the allocator's figures say where they leave only one possibility.
"""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tb_memplugin.analysis.bfc import ROUNDING
from tb_memplugin.analysis.pool_growth import regions_by_rule
from tb_memplugin.analysis.seen_step import SeenStep
from tb_memplugin.codec import MISSING
from tb_memplugin.model import FREE, IN_USE, OWNER_SOURCES, UNKNOWN_STATE, AllocatorMap, Integers
from tb_memplugin.units import format_bytes

_TRACE, _VARIABLE = OWNER_SOURCES.index("trace"), OWNER_SOURCES.index("variable")

_PAGE, _MALLOC_HEADER = 4096, 64
"""Bytes of a page, and where in one a large block begins that malloc hands out aligned as TensorFlow asks for it."""

Ages = Mapping[tuple[int, int], tuple[int, bool]]
"""(address, bytes) of a chunk to the step of the first snapshot that saw it, and whether it saw its allocation."""


def ages_after(known: Ages, seen: SeenStep) -> Ages:
    """The ages of what is there at the end of a traced step."""
    rows = np.flatnonzero(seen.death == seen.events)
    keys = zip(seen.address[rows].tolist(), seen.allocated[rows].tolist(), seen.birth[rows].tolist(), strict=True)
    return {
        (address, size): known.get((address, size), (seen.step, False)) if birth < 0 else (seen.step, True)
        for address, size, birth in keys
    }


def allocator_map(
    seen: SeenStep,
    event: int,
    *,
    device: str,
    wall_time: float,
    in_use_bytes: int,
    pool_bytes: int | None,
    capacity_bytes: int | None,
    ages: Ages,
) -> AllocatorMap:
    """The map just after an event of a traced step (-1: as the window opened).

    Args:
        seen: The step's chunks and their owners.
        event: Number of the event.
        device, wall_time: Of the trace.
        in_use_bytes, pool_bytes, capacity_bytes: The allocator's figures after the event.
        ages: Of what was there before the window.
    """
    placed = _in_the_pool(seen)
    live = np.flatnonzero(placed & (seen.birth <= event) & (seen.death > event))
    live = _apart(seen, live[np.argsort(seen.address[live], kind="stable")])
    free_start, free_end = _free_stretches(seen, live)
    starts = np.concatenate([seen.address[live], free_start])
    ends = np.concatenate([seen.address[live] + seen.allocated[live], free_end])
    order = np.argsort(starts, kind="stable")
    row = np.concatenate([live, np.full(len(free_start), -1)])[order]
    starts, ends = starts[order], ends[order]
    unseen_used = max(0, in_use_bytes - int(seen.allocated[live].sum()))
    limit = pool_bytes if pool_bytes is not None else capacity_bytes
    unseen_free = None if limit is None else max(0, limit - in_use_bytes - int((free_end - free_start).sum()))
    largest = _largest_region(pool_bytes, capacity_bytes)
    gap_state = _gap_state(starts, ends, unseen_used, unseen_free, largest)
    return _assemble(
        seen,
        (starts, ends, row, gap_state),
        ages,
        notes=[*_bounds(seen, live, ages), *_notes(unseen_used, unseen_free if pool_bytes else None, pool_bytes)],
        complete=unseen_used == 0 and unseen_free == 0 and pool_bytes is not None,
        figures=(device, wall_time, in_use_bytes, pool_bytes, capacity_bytes),
    )


def _in_the_pool(seen: SeenStep) -> npt.NDArray[np.bool_]:
    """Which chunks are known to lie in the allocator's regions.

    Of what stood there before the window, not everything is known by its address, and on the CPU a tensor that NumPy
    made may lie outside of the pool. Chunks of one region are whole multiples of 256 bytes apart: what is that from
    no chunk that the trace saw is not drawn.
    """
    traced = (seen.birth >= 0) | (seen.death < seen.events)
    offsets = np.unique(seen.address[traced & (seen.address >= 0)] % ROUNDING)
    known: npt.NDArray[np.bool_] = (seen.address >= 0) & (traced | np.isin(seen.address % ROUNDING, offsets))
    return known


def _apart(seen: SeenStep, live: Integers) -> Integers:
    """The chunks without those from before the window, of bounded size only, that reach into the next one."""
    kept: list[int] = []
    for row in live.tolist():
        while kept and seen.address[kept[-1]] + seen.allocated[kept[-1]] > seen.address[row]:
            kept.pop()
        kept.append(row)
    return np.asarray(kept, np.int64)


def _free_stretches(seen: SeenStep, live: Integers) -> tuple[Integers, Integers]:
    """(starts, ends) of what the trace speaks of at any time and that no chunk covers at the instant."""
    placed = _in_the_pool(seen)
    start, end = _union(seen.address[placed], (seen.address + seen.allocated)[placed])
    used_start, used_end = _union(seen.address[live], seen.address[live] + seen.allocated[live])
    # Sweep: +1 where a stretch of the whole begins, -2 where a used one does; free is where the sum is 1.
    places = np.concatenate([start, end, used_start, used_end])
    weights = np.concatenate(
        [np.ones(len(start)), -np.ones(len(end)), np.full(len(used_start), -2), np.full(len(used_end), 2)]
    )
    order = np.argsort(places, kind="stable")
    places, level = places[order], np.cumsum(weights[order])
    free = np.flatnonzero((level[:-1] == 1) & (places[:-1] < places[1:]))
    return places[free].astype(np.int64), places[free + 1].astype(np.int64)


def _union(start: Integers, end: Integers) -> tuple[Integers, Integers]:
    """Stretches that are covered by at least one of the intervals; those that touch are one."""
    if not len(start):
        return start, end
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(end[order])
    first = np.append(True, start[1:] > reach[:-1])
    last = np.append(first[1:], True)
    return start[first], reach[last]


def _gap_state(
    starts: Integers, ends: Integers, unseen_used: int, unseen_free: int | None, largest_region: int | None
) -> Integers:
    """What lies in the gap after each stretch: a state, -1 for the space between two regions, -2 for no gap.

    Args:
        starts, ends: Of the stretches that are known.
        unseen_used: Bytes in use whose place is not known.
        unseen_free: The same of free bytes; None if the pool is not known.
        largest_region: Bytes that no region has more than; None if the pool is not known.
    """
    gaps = starts[1:] - ends[:-1]
    states = np.full(len(gaps), -1)
    inside = _inside(starts, ends, unseen_used + (unseen_free or 0), largest_region)
    total = int(gaps[inside].sum())
    if largest_region is not None and unseen_free == 0 and total and total == unseen_used:
        states[inside] = IN_USE
    elif largest_region is not None and unseen_used == 0 and total and total == unseen_free:
        states[inside] = FREE
    elif unseen_used or unseen_free:
        states[inside] = UNKNOWN_STATE
    states[gaps == 0] = -2
    return states


def _inside(starts: Integers, ends: Integers, unseen: int, largest_region: int | None) -> npt.NDArray[np.bool_]:
    """Which gaps may lie inside of a region; the narrowest ones first, as long as all of that fits the figures."""
    gaps = starts[1:] - ends[:-1]
    inside = gaps == 0
    # Chunks of one region are whole multiples of 256 bytes apart. What begins where malloc lets a large block begin may
    # be a region of the CPU's: rather one region in two pieces than two as one.
    begins = (gaps >= _PAGE) & ((starts[1:] - _MALLOC_HEADER) % _PAGE == 0)
    possible = (gaps > 0) & (np.diff(starts) % ROUNDING == 0) & ~begins
    # Of the stretches that are one by now: at the last one which is the first, at the first one which is the last.
    first, last = list(range(len(starts))), list(range(len(starts)))

    def join(gap: int) -> None:
        one, other = first[gap], last[gap + 1]
        last[one], first[other] = other, one

    for gap in np.flatnonzero(inside).tolist():
        join(gap)
    for gap in np.flatnonzero(possible)[np.argsort(gaps[possible], kind="stable")].tolist():
        if gaps[gap] > unseen:
            break
        if largest_region is None or ends[last[gap + 1]] - starts[first[gap]] <= largest_region:
            join(gap)
            inside[gap] = True
            unseen -= int(gaps[gap])
    between: npt.NDArray[np.bool_] = inside & (gaps > 0)
    return between


def _largest_region(pool_bytes: int | None, capacity_bytes: int | None) -> int | None:
    """Bytes that no region of the pool has more than: by the rule of its growth, if it has only one way to be so."""
    if pool_bytes is None:
        return None
    limit = None if capacity_bytes is None else capacity_bytes // ROUNDING * ROUNDING
    regions = regions_by_rule([pool_bytes], limit) if pool_bytes != limit else None
    return max(regions[0]) if regions else pool_bytes


def _bounds(seen: SeenStep, live: Integers, ages: Ages) -> list[str]:
    """A sentence on the chunks whose sizes no event told: what lies there is known by its address only."""
    stands = live[(seen.birth[live] < 0) & (seen.death[live] == seen.events)]
    keys = zip(seen.address[stands].tolist(), seen.allocated[stands].tolist(), strict=True)
    count = sum(not ages.get(key, (0, False))[1] for key in keys)
    if not count:
        return []
    return [
        f"The exact sizes of {count} chunks are not available, because they were allocated before any traced step: "
        "sizes that the bytes in use allow are shown."
    ]


def _notes(unseen_used: int, unseen_free: int | None, pool_bytes: int | None) -> list[str]:
    notes = []
    if unseen_used:
        notes.append(
            f"The place of {format_bytes(unseen_used)} in use is not available, because they were allocated before any "
            "traced step and no variable or tensor was found there."
        )
    if unseen_free:
        notes.append(
            f"The place of {format_bytes(unseen_free)} of free memory is not available, because no traced step touched "
            "it."
        )
    if pool_bytes is None:
        notes.append("The size of the pool is not available, because the allocator's events do not prove it.")
    return notes


def _assemble(
    seen: SeenStep,
    parts: tuple[Integers, Integers, Integers, Integers],
    ages: Ages,
    *,
    notes: list[str],
    complete: bool,
    figures: tuple[str, float, int, int | None, int | None],
) -> AllocatorMap:
    starts, ends, row, gap_state = parts
    rows: list[tuple[int, int, int, int, int, int, int, int]] = []
    regions: list[list[int]] = []
    free = (MISSING, FREE, -1, 0, MISSING)
    for at in range(len(starts)):
        gap = int(gap_state[at - 1]) if at else -1
        if gap == -1:
            regions.append([int(starts[at]), int(ends[at])])
        elif gap != -2:
            unknown = (MISSING, gap, -1, 0, MISSING)
            rows.append((int(ends[at - 1]), int(starts[at] - ends[at - 1]), *unknown, len(regions) - 1))
        regions[-1][1] = int(ends[at])
        chunk = _chunk(seen, int(row[at]), ages) if row[at] >= 0 else free
        rows.append((int(starts[at]), int(ends[at] - starts[at]), *chunk, len(regions) - 1))
    columns = np.asarray(rows, np.int64).reshape(-1, 8)
    address, size, requested, state, owner, source, since, region = (np.ascontiguousarray(one) for one in columns.T)
    bounds = np.asarray(regions, np.int64).reshape(-1, 2)
    device, wall_time, in_use, pool, capacity = figures
    return AllocatorMap(
        step=seen.step,
        phase=seen.phase,
        device=device,
        wall_time=wall_time,
        address=address,
        bytes=size,
        requested_bytes=requested,
        state=state,
        owner=owner,
        source=source,
        since=since,
        region=region,
        owners=seen.owners,
        region_address=np.ascontiguousarray(bounds[:, 0]),
        region_bytes=bounds[:, 1] - bounds[:, 0],
        in_use_bytes=in_use,
        pool_bytes=pool,
        capacity_bytes=capacity,
        complete=complete,
        not_available=tuple(notes),
    )


def _chunk(seen: SeenStep, row: int, ages: Ages) -> tuple[int, int, int, int, int]:
    """(requested bytes, state, owner, source, since) of a chunk in use."""
    birth, requested, owner = int(seen.birth[row]), int(seen.requested[row]), int(seen.owner[row])
    known = seen.owners[owner].category != "unattributed"
    key = (int(seen.address[row]), int(seen.allocated[row]))
    since = seen.step if birth >= 0 else ages.get(key, (MISSING, False))[0]
    source = (_TRACE if birth >= 0 else _VARIABLE) if known else 0
    return (requested if requested >= 0 else MISSING, IN_USE, owner if known else -1, source, since)
