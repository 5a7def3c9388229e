"""The rules of TensorFlow's best-fit-with-coalescing (BFC) allocator: sizes of chunks, and how the
pool grows. Pure.

Source: ``tsl/framework/bfc_allocator.cc`` of TensorFlow 2.21 (``Extend``, ``DeallocateFreeRegions``
and others); these rules are the same since 2.16."""

import dataclasses
import itertools
from collections.abc import Iterable

from tb_memplugin.schema import MemoryMap, is_gpu, rows_of

ROUNDING = 256
"""Chunk sizes are multiples of this many bytes."""
BINS = 21
SPLIT_AT_BYTES = 128 << 20
"""A chunk is split, whatever the request, if the remainder would have this many bytes."""
FIRST_REGION_BYTES = 2 << 20
"""The first region of a pool that grows."""


def rounded_bytes(requested: int) -> int:
    """The request rounded up to a possible chunk size."""
    return -(-requested // ROUNDING) * ROUNDING or ROUNDING


def bin_bytes(size: int) -> int:
    """Smallest chunk of the bin for free chunks of `size` bytes; the last bin has no upper
    limit."""
    return ROUNDING << min(BINS - 1, max(0, (size // ROUNDING).bit_length() - 1))


@dataclasses.dataclass(frozen=True)
class PoolRules:
    """The limits of a pool.

    Attributes:
        capacity_bytes: Most bytes of all regions together.
        grows: Whether the pool starts small. Otherwise its first region has all of the capacity.
        returns_regions: Whether regions that are entirely free are returned to the device before a
            request fails: on a GPU by default, on the CPU never.
        descends: Whether a new region lies below the older ones, as Linux and CUDA place them, or
            above. Of equally large free chunks, a request takes the one at the lowest address."""

    capacity_bytes: int
    grows: bool = True
    returns_regions: bool = False
    descends: bool = True

    @property
    def first_region_bytes(self) -> int:
        """Size of the first region, if no request is larger."""
        whole = self.capacity_bytes // ROUNDING * ROUNDING
        return min(whole, FIRST_REGION_BYTES) if self.grows else whole


def next_region_bytes(rules: PoolRules, regions: Iterable[int]) -> int:
    """Size that the allocator wants for its next region, given its present ones. A region has the
    wanted size, which then doubles, or for a larger request the next power of two times it."""
    wanted = rules.first_region_bytes
    for size in sorted(regions):
        if size == wanted:
            wanted *= 2
        elif size > wanted:
            wanted = size
    return wanted


def region_for(rules: PoolRules, pool_bytes: int, wanted: int, rounded: int) -> tuple[int, int]:
    """(bytes of the new region, size wanted for the next one) for a rounded request; no bytes at
    the limit."""
    available = max(0, rules.capacity_bytes - pool_bytes) // ROUNDING * ROUNDING
    if rounded > available or wanted <= 0:
        return 0, wanted
    enough = wanted
    while rounded > enough:
        enough *= 2
    return min(enough, available), max(enough, 2 * wanted)


def rules_of(memory_map: MemoryMap) -> PoolRules | None:
    """The rules of the allocator of a map; None if its capacity is unknown. A pool whose first
    region has all of the capacity does not grow. It descends if most regions lie below the next
    smaller one: every region is larger than the ones before."""
    capacity = memory_map.capacity_bytes
    if capacity is None:
        return None
    whole = capacity // ROUNDING * ROUNDING
    regions = sorted(rows_of(memory_map.region_bytes, memory_map.region_address))
    grows = not (len(regions) == 1 and regions[0][0] >= whole > FIRST_REGION_BYTES)
    below = [
        address < before
        for (smaller, before), (size, address) in itertools.pairwise(regions)
        if size > smaller
    ]
    return PoolRules(capacity, grows, is_gpu(memory_map.device), 2 * sum(below) >= len(below))
