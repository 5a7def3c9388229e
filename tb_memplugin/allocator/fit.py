"""Whether a request fits into a memory map by the rules of `rules`, and which chunks split its free
memory. Pure."""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from tb_memplugin.allocator.rules import ROUNDING, bin_bytes, rounded_bytes
from tb_memplugin.schema import (
    FREE,
    IN_USE,
    UNKNOWN_STATE,
    Integers,
    MemoryMap,
    Pool,
    Verdict,
    format_bytes,
    is_gpu,
)


def free_sizes(memory_map: MemoryMap) -> Integers:
    sizes: Integers = memory_map.bytes[memory_map.state == FREE]
    return sizes


def pool_at(memory_map: MemoryMap) -> Pool | None:
    """The pool at the instant of the map, with the largest free chunk that the map shows; None if
    unknown."""
    if memory_map.pool_bytes is None or memory_map.in_use_bytes is None:
        return None
    return Pool(
        memory_map.pool_bytes, memory_map.in_use_bytes, int(free_sizes(memory_map).max(initial=0))
    )


def would_fit(memory_map: MemoryMap, requested: int) -> bool | None:
    """Whether a request of that many bytes would succeed at the instant of the map; None if
    unknown.

    The page says the same and why; ``tests/golden/fits.json`` holds cases for both."""
    rounded, unreserved = rounded_bytes(requested), unreserved_bytes(memory_map)
    largest, returnable = int(free_sizes(memory_map).max(initial=0)), 0
    if is_gpu(memory_map.device):  # on a CPU, free regions are never returned
        free_regions = np.setdiff1d(memory_map.region, memory_map.region[memory_map.state != FREE])
        returnable = int(memory_map.region_bytes[free_regions[free_regions >= 0]].sum())
    if largest >= rounded or (unreserved is not None and returnable + unreserved >= rounded):
        return True
    if unreserved is None or (not memory_map.complete and _unknown_free(memory_map) >= rounded):
        return None
    return False


def unreserved_bytes(memory_map: MemoryMap) -> int | None:
    """Bytes that the pool can still grow by within the allocator's limit, a multiple of 256; None
    if unknown."""
    if memory_map.capacity_bytes is None or memory_map.pool_bytes is None:
        return None
    return max(0, memory_map.capacity_bytes - memory_map.pool_bytes) // ROUNDING * ROUNDING


def _unknown_free(memory_map: MemoryMap) -> int:
    """Most bytes that may be free in one piece, counting those missing from the map."""
    pool = pool_at(memory_map)
    if pool is None:
        return 1 << 62 if memory_map.capacity_bytes is None else memory_map.capacity_bytes
    # Unknown free memory may be adjacent to the largest known chunk.
    sizes = free_sizes(memory_map)
    return max(0, pool.free_bytes - int(sizes.sum())) + int(sizes.max(initial=0))


# --- verdict --------------------------------------------------------------------------------------


def verdict(memory_map: MemoryMap, requested: int) -> tuple[Verdict | None, str]:
    """Why a request of that many bytes failed, and the figures behind it as a sentence.

    ``fragmentation``: enough memory was free, but in pieces. ``capacity``: less was free than
    requested. A region within the limit that the device refused does not count as free."""
    pool = pool_at(memory_map)
    if pool is None:
        return None, "The pool's size or the bytes in use are unknown."
    rounded, unreserved = rounded_bytes(requested), unreserved_bytes(memory_map) or 0
    usable = pool.free_bytes
    figures = (
        f"{format_bytes(requested)} requested; {format_bytes(usable)} free in the pool, "
        f"the largest chunk {format_bytes(pool.largest_free_bytes or 0)}"
    )
    if unreserved >= rounded:
        figures += (
            f". The limit leaves {format_bytes(unreserved)}, but the pool could not grow: less "
            "was free outside it"
        )
    elif unreserved:
        usable += unreserved
        figures += f"; {format_bytes(unreserved)} unreserved"
    return ("fragmentation" if usable >= rounded else "capacity"), figures + "."


# --- chunks that split free memory ----------------------------------------------------------------


def blocking_chunks(memory_map: MemoryMap) -> list[dict[str, int]]:
    """Owners of single chunks in use between two free ones.

    `owner` is an index into the map's owners, -1 if unknown; `joined_bytes` is the largest free
    chunk that would result without one of its chunks, by which the owners are sorted."""
    state, region, size = memory_map.state, memory_map.region, memory_map.bytes
    splits = (state[1:-1] == IN_USE) & (state[:-2] == FREE) & (state[2:] == FREE)
    splits &= (region[:-2] == region[1:-1]) & (region[2:] == region[1:-1])
    by_owner: dict[int, dict[str, int]] = {}
    for row in (np.flatnonzero(splits) + 1).tolist():
        owner = int(memory_map.owner[row])
        entry = by_owner.setdefault(
            owner, {"owner": owner, "chunks": 0, "bytes": 0, "joined_bytes": 0}
        )
        entry["chunks"] += 1
        entry["bytes"] += int(size[row])
        entry["joined_bytes"] = max(entry["joined_bytes"], int(size[row - 1 : row + 2].sum()))
    return sorted(by_owner.values(), key=lambda entry: (-entry["joined_bytes"], entry["owner"]))


def free_bins(memory_map: MemoryMap) -> list[dict[str, int]]:
    bins = itertools.groupby(sorted(free_sizes(memory_map).tolist()), bin_bytes)
    sizes_of = {smallest: list(sizes) for smallest, sizes in bins}
    return [
        {"bin_bytes": smallest, "chunks": len(sizes), "free_bytes": sum(sizes)}
        for smallest, sizes in sizes_of.items()
    ]


def map_summary(memory_map: MemoryMap) -> Mapping[str, Any]:
    sizes, requested = memory_map.bytes, memory_map.requested_bytes
    free, in_use = free_sizes(memory_map), memory_map.state == IN_USE
    has_owner = memory_map.owner >= 0
    known = in_use & (requested >= 0)
    return {
        "free_bytes": int(free.sum()),
        "largest_free_bytes": int(free.max(initial=0)),
        "unreserved_bytes": unreserved_bytes(memory_map),
        "rounding_bytes": int((sizes[known] - requested[known]).sum()),
        "owned_bytes": int(sizes[in_use & has_owner].sum()),
        "owner_unknown_bytes": int(sizes[in_use & ~has_owner].sum()),
        "unknown_bytes": int(sizes[memory_map.state == UNKNOWN_STATE].sum()),
        "bins": free_bins(memory_map),
        "blocking_chunks": blocking_chunks(memory_map)[:50],
    }
