"""The size of the allocator's pool, and of its largest free block, as far as the event stream proves them.

The stream says how many bytes are in use and ``fragmentation`` F = (free - largest) / free of the pool, to six digits.
So the largest free block is (1 - F) × (pool - in use), linear in the one unknown. An allocation never makes the largest
free block larger, a deallocation never smaller: each event bounds the pool's size from above, and those events that
left the largest block as it was bound it to within the rounding of F. The pool is a sum of regions whose sizes are
multiples of 1 MiB, or the limit itself: where several events bound it to just above such a size, that is its size.
An allocator that does not grow takes its whole limit at once: where that is known, it only must not be contradicted.
"""

import math
from typing import NamedTuple

import numpy as np

from tb_memplugin.model import Floats
from tb_memplugin.trace import AllocationTrace

REGION_UNIT = 1 << 20
"""Sizes of the pool's regions are multiples of this many bytes."""
TIGHT = REGION_UNIT // 50
"""How far above a possible size, in bytes, a bound may be to speak for it: by chance one in fifty would be."""
WITNESSES = 3
"""Least number of events that must speak for a size."""
CHUNK_UNIT = 256
"""Sizes of chunks are multiples of this many bytes."""


MOST_UNCERTAIN = 0.001
"""Share of the largest free block's size by which it may be uncertain; otherwise it is not told."""


class Pool(NamedTuple):
    """Bytes of the pool and of its largest free block; None where the stream does not prove them.

    The largest free block may be `uncertain` bytes larger or smaller.
    """

    bytes: int | None
    largest_free_bytes: int | None
    uncertain: int = 0


def proven_pool(trace: AllocationTrace, event: int, grows: bool | None = None) -> Pool:
    """The pool after an event.

    Args:
        grows: Whether the allocator takes memory from the device as it needs it (and not its whole limit at once), None
            if that is not known.
    """
    if event < 0 or np.isnan(trace.fragmentation).any() or trace.missed:
        return Pool(None, None)
    limit = int(trace.in_use[event] + trace.available[event])
    low, upper = _bounds(trace)
    pool = _whole_limit(limit, low, upper) if grows is False else _witnessed(limit, low, upper)
    return Pool(None, None) if pool is None else Pool(pool, *_largest(trace, event, pool))


def _whole_limit(limit: int, low: float, upper: Floats) -> int | None:
    """The pool that an allocator takes at once; None where the stream contradicts it."""
    pool = limit // CHUNK_UNIT * CHUNK_UNIT
    return pool if low <= pool and (not len(upper) or pool <= upper[0] + TIGHT) else None


def _witnessed(limit: int, low: float, upper: Floats) -> int | None:
    """The pool that enough events speak for."""
    if not len(upper):
        return None
    high = float(upper[0])
    pool = limit if abs(high - limit) <= TIGHT else int(high // REGION_UNIT) * REGION_UNIT
    tight = int((np.abs(upper - pool) <= TIGHT).sum())
    return pool if tight >= WITNESSES and low <= pool <= limit else None


def _largest(trace: AllocationTrace, event: int, pool: int) -> tuple[int | None, int]:
    """The largest free block in a pool, as near as six digits tell it, and by how much it may differ."""
    share = 1 - float(trace.fragmentation[event])
    error = float(_errors(trace.fragmentation)[event])
    free = pool - int(trace.in_use[event])
    least = math.ceil(max(0.0, share - error) * free / CHUNK_UNIT) * CHUNK_UNIT
    most = math.floor(min(1.0, share + error) * free / CHUNK_UNIT) * CHUNK_UNIT
    if least >= most:
        return (least, 0) if least == most else (None, 0)
    nearest = min(most, max(least, round(share * free / CHUNK_UNIT) * CHUNK_UNIT))
    uncertain = max(most - nearest, nearest - least)
    return (nearest, uncertain) if uncertain < MOST_UNCERTAIN * nearest else (None, 0)


def _errors(fragmentation: Floats) -> Floats:
    """Largest difference between a figure of six significant digits and what it was rounded from."""
    positive = np.maximum(fragmentation, 1e-12)
    errors: Floats = 0.51 * 10.0 ** (np.floor(np.log10(positive)) - 5)
    return errors


def _bounds(trace: AllocationTrace) -> tuple[float, Floats]:
    """Least bytes that the pool can have, and what each event allows at most, sorted.

    For a pool of one size throughout.
    """
    share, error = 1 - trace.fragmentation, _errors(trace.fragmentation)
    least, most, used = share - error, share + error, trace.in_use.astype(np.float64)
    allocated = trace.kind[1:] == 1
    # Of two neighbours the largest free block is the smaller one where more is in use, whichever came first:
    # least[fuller] × (pool - used[fuller]) <= most[emptier] × (pool - used[emptier])
    fuller = np.where(allocated, np.arange(1, len(used)), np.arange(len(used) - 1))
    emptier = np.where(allocated, np.arange(len(used) - 1), np.arange(1, len(used)))
    slope = least[fuller] - most[emptier]
    constant = least[fuller] * used[fuller] - most[emptier] * used[emptier]
    bounding = slope > 0
    upper: Floats = np.sort(constant[bounding] / slope[bounding])
    return float(used.max()), upper
