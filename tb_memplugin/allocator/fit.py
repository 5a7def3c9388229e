"""Whether a request fits into a memory map, and which chunks split its free memory. Pure.

A request is rounded up to 256 bytes and takes the smallest free chunk that is large enough. The chunk is split if it is
at least twice the request, or if the remainder would have 128 MiB. If no chunk is large enough, the pool grows by a
region, up to the limit; a GPU's allocator first returns regions that are entirely free. Source:
``tsl/framework/bfc_allocator.cc``.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_memplugin.allocator.rules import ROUNDING, bin_bytes, chunk_after_split, rounded_bytes
from tb_memplugin.model import FREE, IN_USE, UNKNOWN_STATE, MemoryMap, Pool, Verdict, is_gpu
from tb_memplugin.model.units import format_bytes


@dataclasses.dataclass(frozen=True)
class Bin:
    """Free chunks of one bin: from `bin_bytes` to twice that, without an upper limit in the last bin."""

    bin_bytes: int
    chunks: int
    free_bytes: int


def free_bins(memory_map: MemoryMap) -> tuple[Bin, ...]:
    """The bins with free chunks, smallest first."""
    bins: dict[int, list[int]] = {}
    for size in free_sizes(memory_map).tolist():
        bins.setdefault(bin_bytes(size), []).append(size)
    return tuple(Bin(start, len(sizes), sum(sizes)) for start, sizes in sorted(bins.items()))


def free_sizes(memory_map: MemoryMap) -> npt.NDArray[np.int64]:
    """Bytes of the known free chunks, in address order."""
    sizes: npt.NDArray[np.int64] = memory_map.bytes[memory_map.state == FREE]
    return sizes


def pool_at(memory_map: MemoryMap) -> Pool | None:
    """The pool at the instant of the map, with the largest free chunk that the map shows; None if unknown."""
    if memory_map.pool_bytes is None or memory_map.in_use_bytes is None:
        return None
    return Pool(memory_map.pool_bytes, memory_map.in_use_bytes, int(free_sizes(memory_map).max(initial=0)))


def free_regions_bytes(memory_map: MemoryMap) -> int:
    """Bytes of the regions that are entirely free."""
    busy = np.unique(memory_map.region[memory_map.state != FREE])
    free = np.setdiff1d(np.unique(memory_map.region), busy)
    return int(memory_map.region_bytes[free[free >= 0]].sum())


@dataclasses.dataclass(frozen=True)
class Fit:
    """Whether a request would succeed.

    Attributes:
        fits: None if unknown.
        requested_bytes, rounded_bytes: The request, and the request as the allocator rounds it.
        bin_bytes: Bin in which the search begins.
        chunk_bytes: The free chunk that the request takes, None without one.
        allocated_bytes: Bytes of that chunk that the request gets, None if unknown.
        reason: The reason, as a sentence.
    """

    fits: bool | None
    requested_bytes: int
    rounded_bytes: int
    bin_bytes: int
    chunk_bytes: int | None
    allocated_bytes: int | None
    reason: str


def would_fit(memory_map: MemoryMap, requested: int) -> Fit:
    """Whether a request of that many bytes would succeed at the instant of the map.

    The page makes the same sentences; ``tests/golden/fits.json`` holds cases for both.
    """
    rounded = rounded_bytes(requested)
    sizes = free_sizes(memory_map)
    large = sizes[sizes >= rounded]
    if len(large):
        chunk = int(large.min())
        given = chunk_after_split(chunk, rounded)
        split = (
            f"the allocator splits it and {format_bytes(chunk - given)} stay free"
            if given < chunk
            else "the allocator does not split it, because the chunk is smaller than twice the request"
        )
        if chunk == rounded:
            split = "an exact fit"
        reason = f"A free chunk of {format_bytes(chunk)} serves the request: {split}."
        return _fit(True, requested, reason, chunk, given)
    largest = int(sizes.max()) if len(sizes) else 0
    chunks = f"the largest free chunk is {format_bytes(largest)} of {format_bytes(int(sizes.sum()))} free in the pool"
    return _growth(memory_map, requested, rounded, chunks)


def _growth(memory_map: MemoryMap, requested: int, rounded: int, chunks: str) -> Fit:
    """The answer if no known free chunk is large enough."""
    unreserved = unreserved_bytes(memory_map)
    if unreserved is not None and unreserved >= rounded:
        reason = (
            f"No free chunk is large enough ({chunks}), but the pool can grow by {format_bytes(unreserved)} if the "
            "device has that much memory."
        )
        return _fit(True, requested, reason)
    returnable = free_regions_bytes(memory_map) if gives_regions_back(memory_map) and unreserved is not None else 0
    if unreserved is not None and returnable and returnable + unreserved >= rounded:
        reason = (
            f"No free chunk is large enough ({chunks}), but the allocator can release unused regions "
            f"({format_bytes(returnable)}) and reserve a larger one."
        )
        return _fit(True, requested, reason)
    if not memory_map.complete and _unknown_free(memory_map) >= rounded:
        return _fit(None, requested, f"Unknown: {chunks}, but the state of some chunks is unknown.")
    if unreserved is None:
        reason = f"No free chunk is large enough: {chunks}. Whether the pool can grow is unknown."
        return _fit(None, requested, reason)
    grow = f"the pool can grow by only {format_bytes(unreserved)}" if unreserved else "the pool is at its limit"
    return _fit(False, requested, f"No free chunk is large enough: {chunks}, and {grow}.")


def _fit(fits: bool | None, requested: int, reason: str, chunk: int | None = None, allocated: int | None = None) -> Fit:
    rounded = rounded_bytes(requested)
    if rounded != requested:
        reason = f"{reason} (The allocator rounds the request up to {rounded:,} bytes.)"
    return Fit(fits, requested, rounded, bin_bytes(rounded), chunk, allocated, reason)


def unreserved_bytes(memory_map: MemoryMap) -> int | None:
    """Bytes that the pool can still grow by within the allocator's limit, a multiple of 256; None if unknown."""
    if memory_map.capacity_bytes is None or memory_map.pool_bytes is None:
        return None
    return max(0, memory_map.capacity_bytes - memory_map.pool_bytes) // ROUNDING * ROUNDING


def gives_regions_back(memory_map: MemoryMap) -> bool:
    """Whether the allocator returns free regions before it fails: on a GPU by default, on the CPU never."""
    return is_gpu(memory_map.device)


def _unknown_free(memory_map: MemoryMap) -> int:
    """Most bytes that may be free in one piece, counting those missing from the map."""
    pool = pool_at(memory_map)
    if pool is None:
        return memory_map.capacity_bytes if memory_map.capacity_bytes is not None else 1 << 62
    # Unknown free memory may be adjacent to the largest known chunk.
    return max(0, pool.free_bytes - int(free_sizes(memory_map).sum())) + (pool.largest_free_bytes or 0)


# --- verdict ----------------------------------------------------------------------------------------------------------


def verdict(memory_map: MemoryMap, requested: int) -> tuple[Verdict | None, str]:
    """Why a request of that many bytes failed, and the figures behind it as a sentence.

    ``fragmentation``: enough memory was free, but in pieces. ``capacity``: less was free than requested. A region
    within the limit that the device refused does not count as free.
    """
    pool = pool_at(memory_map)
    if pool is None:
        return None, "The verdict is unknown: the pool's size or the bytes in use are missing."
    rounded = rounded_bytes(requested)
    unreserved = unreserved_bytes(memory_map)
    refused = unreserved is not None and unreserved >= rounded
    usable = pool.free_bytes + (unreserved or 0 if not refused else 0)
    figures = (
        f"{format_bytes(requested)} requested; {format_bytes(pool.free_bytes)} free in the pool, the largest chunk "
        f"{format_bytes(pool.largest_free_bytes or 0)}"
    )
    if unreserved and not refused:
        figures += f"; {format_bytes(unreserved)} unreserved"
    if refused:
        figures += (
            f". The limit leaves {format_bytes(unreserved)}, but the device refused: another process holds that memory"
        )
    return ("fragmentation" if usable >= rounded else "capacity"), figures + "."


# --- chunks that split free memory ------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class BlockingChunks:
    """Chunks of one owner that each split two free chunks.

    Attributes:
        owner: Index into the map's owners, -1 if unknown.
        chunks, bytes: Number and bytes of the chunks.
        joined_bytes: The largest free chunk that would result without one of them.
    """

    owner: int
    chunks: int
    bytes: int
    joined_bytes: int


def blocking_chunks(memory_map: MemoryMap) -> tuple[BlockingChunks, ...]:
    """Owners of single chunks in use between two free ones, largest `joined_bytes` first."""
    state, region, size = memory_map.state, memory_map.region, memory_map.bytes
    if len(state) < 3:
        return ()
    middle = np.flatnonzero(
        (state[1:-1] == IN_USE)
        & (state[:-2] == FREE)
        & (state[2:] == FREE)
        & (region[:-2] == region[1:-1])
        & (region[2:] == region[1:-1])
    )
    by_owner: dict[int, list[tuple[int, int]]] = {}
    for row in (middle + 1).tolist():
        joined = int(size[row - 1] + size[row] + size[row + 1])
        by_owner.setdefault(int(memory_map.owner[row]), []).append((int(size[row]), joined))
    rows = (
        BlockingChunks(owner, len(entries), sum(own for own, _ in entries), max(joined for _, joined in entries))
        for owner, entries in by_owner.items()
    )
    return tuple(sorted(rows, key=lambda row: (-row.joined_bytes, row.owner)))


def summary(memory_map: MemoryMap) -> Mapping[str, Any]:
    """The figures that views show beside a map, as a plain object."""
    sizes = free_sizes(memory_map)
    in_use = memory_map.state == IN_USE
    known = in_use & (memory_map.requested_bytes >= 0)
    owned = in_use & (memory_map.owner >= 0)
    return {
        "free_bytes": int(sizes.sum()),
        "largest_free_bytes": int(sizes.max()) if len(sizes) else 0,
        "unreserved_bytes": unreserved_bytes(memory_map),
        "rounding_bytes": int((memory_map.bytes[known] - memory_map.requested_bytes[known]).sum()),
        "owned_bytes": int(memory_map.bytes[owned].sum()),
        "owner_unknown_bytes": int(memory_map.bytes[in_use & (memory_map.owner < 0)].sum()),
        "unknown_bytes": int(memory_map.bytes[memory_map.state == UNKNOWN_STATE].sum()),
        "bins": [dataclasses.asdict(entry) for entry in free_bins(memory_map)],
        "blocking_chunks": [dataclasses.asdict(row) for row in blocking_chunks(memory_map)[:50]],
    }
