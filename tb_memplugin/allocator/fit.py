"""Whether a request fits into a memory map by the rules of `rules`, and which chunks split its free
memory. Pure."""

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
    rounded = rounded_bytes(requested)
    unreserved = unreserved_bytes(memory_map)
    if int(free_sizes(memory_map).max(initial=0)) >= rounded or (
        unreserved is not None and unreserved >= rounded
    ):
        return True
    returnable = 0
    if is_gpu(memory_map.device):  # on a CPU, free regions are never returned
        free_regions = np.setdiff1d(memory_map.region, memory_map.region[memory_map.state != FREE])
        returnable = int(memory_map.region_bytes[free_regions[free_regions >= 0]].sum())
    if unreserved is not None and returnable and returnable + unreserved >= rounded:
        return True
    is_unknown = unreserved is None or (
        not memory_map.complete and _unknown_free(memory_map) >= rounded
    )
    return None if is_unknown else False


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
        return memory_map.capacity_bytes if memory_map.capacity_bytes is not None else 1 << 62
    # Unknown free memory may be adjacent to the largest known chunk.
    return max(0, pool.free_bytes - int(free_sizes(memory_map).sum())) + (
        pool.largest_free_bytes or 0
    )


# --- verdict --------------------------------------------------------------------------------------


def verdict(memory_map: MemoryMap, requested: int) -> tuple[Verdict | None, str]:
    """Why a request of that many bytes failed, and the figures behind it as a sentence.

    ``fragmentation``: enough memory was free, but in pieces. ``capacity``: less was free than
    requested. A region within the limit that the device refused does not count as free."""
    pool = pool_at(memory_map)
    if pool is None:
        return None, "The verdict is unknown: the pool's size or the bytes in use are missing."
    rounded = rounded_bytes(requested)
    unreserved = unreserved_bytes(memory_map) or 0
    refused = unreserved >= rounded
    usable = pool.free_bytes + (0 if refused else unreserved)
    figures = (
        f"{format_bytes(requested)} requested; {format_bytes(pool.free_bytes)} free in the pool, "
        f"the largest chunk {format_bytes(pool.largest_free_bytes or 0)}"
    )
    if unreserved and not refused:
        figures += f"; {format_bytes(unreserved)} unreserved"
    if refused:
        figures += (
            f". The limit leaves {format_bytes(unreserved)}, but the device refused: another "
            "process holds that memory"
        )
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
    bins: dict[int, dict[str, int]] = {}
    for size in sorted(free_sizes(memory_map).tolist()):
        smallest = bin_bytes(size)
        entry = bins.setdefault(smallest, {"bin_bytes": smallest, "chunks": 0, "free_bytes": 0})
        entry["chunks"] += 1
        entry["free_bytes"] += size
    return list(bins.values())


def map_summary(memory_map: MemoryMap) -> Mapping[str, Any]:
    sizes = free_sizes(memory_map)
    in_use = memory_map.state == IN_USE
    known = in_use & (memory_map.requested_bytes >= 0)
    owned = in_use & (memory_map.owner >= 0)
    return {
        "free_bytes": int(sizes.sum()),
        "largest_free_bytes": int(sizes.max(initial=0)),
        "unreserved_bytes": unreserved_bytes(memory_map),
        "rounding_bytes": int((memory_map.bytes[known] - memory_map.requested_bytes[known]).sum()),
        "owned_bytes": int(memory_map.bytes[owned].sum()),
        "owner_unknown_bytes": int(memory_map.bytes[in_use & (memory_map.owner < 0)].sum()),
        "unknown_bytes": int(memory_map.bytes[memory_map.state == UNKNOWN_STATE].sum()),
        "bins": free_bins(memory_map),
        "blocking_chunks": blocking_chunks(memory_map)[:50],
    }
