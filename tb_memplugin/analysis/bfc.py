"""The rules of TensorFlow's best-fit-with-coalescing allocator, and what they say about an allocator map. Pure.

Rules (tensorflow/core/common_runtime/bfc_allocator.cc): a request is rounded up to 256 bytes and takes the smallest
free chunk that is large enough; of 21 bins, each holds the free chunks from its size to twice that. The chunk is split
if it is at least twice the request, or if 128 MiB would be left over. If no chunk is large enough, the pool grows by a
new region, up to the limit; a GPU's allocator first gives back regions that are wholly free, so that a larger one can
be taken.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_memplugin.model import FREE, IN_USE, UNKNOWN_STATE, AllocatorMap, Verdict
from tb_memplugin.units import format_bytes

ROUNDING = 256
BINS = 21
SPLIT_AT_BYTES = 128 << 20
"""A chunk is split, whatever the request, if this much would be left over."""


def rounded_bytes(requested: int) -> int:
    """Bytes that a request takes at least."""
    return max(ROUNDING, -(-requested // ROUNDING) * ROUNDING)


def bin_bytes(size: int) -> int:
    """Smallest chunk of the bin that chunks of `size` are in."""
    return ROUNDING << min(BINS - 1, max(0, (size // ROUNDING).bit_length() - 1))


def chunk_after_split(chunk: int, rounded: int) -> int:
    """Bytes that a request of `rounded` bytes is given of a free chunk."""
    return rounded if chunk >= 2 * rounded or chunk - rounded >= SPLIT_AT_BYTES else chunk


@dataclasses.dataclass(frozen=True)
class Bin:
    """Free chunks of one bin: from `bin_bytes` to twice that (the last bin is open)."""

    bin_bytes: int
    chunks: int
    free_bytes: int


def free_bins(taken: AllocatorMap) -> tuple[Bin, ...]:
    """The bins that hold free chunks, smallest first."""
    found: dict[int, list[int]] = {}
    for size in free_sizes(taken).tolist():
        found.setdefault(bin_bytes(size), []).append(size)
    return tuple(Bin(start, len(sizes), sum(sizes)) for start, sizes in sorted(found.items()))


def free_sizes(taken: AllocatorMap) -> npt.NDArray[np.int64]:
    """Bytes of the chunks that are known to be free, in order of their addresses."""
    sizes: npt.NDArray[np.int64] = taken.bytes[taken.state == FREE]
    return sizes


def free_regions_bytes(taken: AllocatorMap) -> int:
    """Bytes of the regions that hold nothing but free chunks."""
    busy = np.unique(taken.region[taken.state != FREE])
    idle = np.setdiff1d(np.unique(taken.region), busy)
    return int(taken.region_bytes[idle[idle >= 0]].sum())


@dataclasses.dataclass(frozen=True)
class Fit:
    """Whether a request would be served.

    Attributes:
        fits: None where the map does not say.
        requested_bytes, rounded_bytes: The request, as asked and as the allocator rounds it.
        bin_bytes: Where the search begins.
        chunk_bytes: The free chunk that is taken, None if none is.
        allocated_bytes: What the request gets of it, None if that is not known.
        reason: A sentence.
    """

    fits: bool | None
    requested_bytes: int
    rounded_bytes: int
    bin_bytes: int
    chunk_bytes: int | None
    allocated_bytes: int | None
    reason: str


def would_fit(taken: AllocatorMap, requested: int) -> Fit:
    """What the allocator would say to a request of that many bytes at the instant of the map."""
    rounded = rounded_bytes(requested)
    sizes = free_sizes(taken)
    large = sizes[sizes >= rounded]
    if len(large):
        chunk = int(large.min())
        given = chunk_after_split(chunk, rounded)
        rest = (
            f"it is split, and {format_bytes(chunk - given)} stay free"
            if given < chunk
            else "it is given as a whole, because it is less than twice the request"
        )
        if chunk == rounded:
            rest = "it fits exactly"
        reason = f"A free block of {format_bytes(chunk)} takes it: {rest}."
        return _fit(True, requested, reason, chunk, given)
    largest = int(sizes.max()) if len(sizes) else 0
    blocks = f"the largest free block has {format_bytes(largest)} of {format_bytes(int(sizes.sum()))} free in the pool"
    return _growth(taken, requested, rounded, blocks)


def _growth(taken: AllocatorMap, requested: int, rounded: int, blocks: str) -> Fit:
    """The answer where no block that is known to be free is large enough."""
    unreserved = unreserved_bytes(taken)
    if unreserved is not None and unreserved >= rounded:
        reason = (
            f"No free block is large enough ({blocks}), but the pool may grow by {format_bytes(unreserved)} within its "
            "limit, as far as the device has that much."
        )
        return _fit(True, requested, reason)
    idle = free_regions_bytes(taken) if gives_regions_back(taken) and unreserved is not None else 0
    if unreserved is not None and idle and idle + unreserved >= rounded:
        reason = (
            f"No free block is large enough ({blocks}), but the allocator can give back regions that are wholly free "
            f"({format_bytes(idle)}) and take a larger one."
        )
        return _fit(True, requested, reason)
    if not taken.complete and _unseen_free(taken) >= rounded:
        return _fit(None, requested, f"That is not known: {blocks} as far as was seen, and not every block was seen.")
    if unreserved is None:
        reason = f"No free block is large enough: {blocks}. Whether the pool could grow is not known."
        return _fit(None, requested, reason)
    grow = f"the pool may grow by {format_bytes(unreserved)} only" if unreserved else "the pool is at its limit"
    return _fit(False, requested, f"No free block is large enough: {blocks}, and {grow}.")


def _fit(fits: bool | None, requested: int, reason: str, chunk: int | None = None, allocated: int | None = None) -> Fit:
    rounded = rounded_bytes(requested)
    if rounded != requested:
        reason = f"{reason} (The allocator rounds the request up to {rounded:,} bytes.)"
    return Fit(fits, requested, rounded, bin_bytes(rounded), chunk, allocated, reason)


def unreserved_bytes(taken: AllocatorMap) -> int | None:
    """What the pool may still grow by within the allocator's limit, in the allocator's steps of 256 bytes."""
    if taken.capacity_bytes is None or taken.pool_bytes is None:
        return None
    return max(0, taken.capacity_bytes - taken.pool_bytes) // ROUNDING * ROUNDING


def gives_regions_back(taken: AllocatorMap) -> bool:
    """Whether the allocator frees idle regions before it gives up: a GPU's does by default, the CPU's never."""
    return taken.device.rsplit("/", 1)[-1].startswith("GPU")


def _unseen_free(taken: AllocatorMap) -> int:
    """Bytes that may be free in one piece although no block was seen there."""
    if taken.pool_bytes is None or taken.in_use_bytes is None:
        return taken.capacity_bytes if taken.capacity_bytes is not None else 1 << 62
    free = taken.pool_bytes - taken.in_use_bytes
    seen = free_sizes(taken)
    # What was not seen may lie beside the largest block that was.
    return max(0, free - int(seen.sum())) + (int(seen.max()) if len(seen) else 0)


# --- verdict ----------------------------------------------------------------------------------------------------------


def verdict(taken: AllocatorMap, requested: int) -> tuple[Verdict | None, str]:
    """Why a request of that many bytes failed, and the figures behind it in a sentence.

    ``fragmentation``: as much was free, but in pieces. ``capacity``: less was free than was asked for. A region that
    the limit would have allowed but the device refused counts as not free.
    """
    if taken.pool_bytes is None or taken.in_use_bytes is None:
        return None, "The verdict is not available, because the size of the pool or the bytes in use are not known."
    rounded = rounded_bytes(requested)
    pool_free = taken.pool_bytes - taken.in_use_bytes
    unreserved = unreserved_bytes(taken)
    refused = unreserved is not None and unreserved >= rounded
    usable = pool_free + (unreserved or 0 if not refused else 0)
    sizes = free_sizes(taken)
    figures = (
        f"{format_bytes(requested)} were asked for; {format_bytes(pool_free)} of the pool were free, the largest block "
        f"{format_bytes(int(sizes.max()) if len(sizes) else 0)}"
    )
    if unreserved and not refused:
        figures += f", and {format_bytes(unreserved)} of the limit were not taken from the device yet"
    if refused:
        figures += (
            f". The limit would have let the pool grow by {format_bytes(unreserved)}, but the device did not give "
            "that: others use it"
        )
    return ("fragmentation" if usable >= rounded else "capacity"), figures + "."


# --- what pins the holes ---------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Pin:
    """Chunks of one owner that lie alone between free blocks.

    Attributes:
        owner: Index into the map's owners, -1 if it was not seen.
        chunks, bytes: What they are.
        joined_bytes: The largest free block that would come about if one of them were not there.
    """

    owner: int
    chunks: int
    bytes: int
    joined_bytes: int


def pins(taken: AllocatorMap) -> tuple[Pin, ...]:
    """Owners of single chunks in use between two free blocks, what they keep apart largest first."""
    state, region, size = taken.state, taken.region, taken.bytes
    if len(state) < 3:
        return ()
    middle = np.flatnonzero(
        (state[1:-1] == IN_USE)
        & (state[:-2] == FREE)
        & (state[2:] == FREE)
        & (region[:-2] == region[1:-1])
        & (region[2:] == region[1:-1])
    )
    found: dict[int, list[tuple[int, int]]] = {}
    for row in (middle + 1).tolist():
        joined = int(size[row - 1] + size[row] + size[row + 1])
        found.setdefault(int(taken.owner[row]), []).append((int(size[row]), joined))
    made = (
        Pin(owner, len(entries), sum(own for own, _ in entries), max(joined for _, joined in entries))
        for owner, entries in found.items()
    )
    return tuple(sorted(made, key=lambda pin: (-pin.joined_bytes, pin.owner)))


def summary(taken: AllocatorMap) -> Mapping[str, Any]:
    """The figures of a map that views show beside it, as a plain object."""
    sizes = free_sizes(taken)
    in_use = taken.state == IN_USE
    known = in_use & (taken.requested_bytes >= 0)
    owned = in_use & (taken.owner >= 0)
    return {
        "free_bytes": int(sizes.sum()),
        "largest_free_bytes": int(sizes.max()) if len(sizes) else 0,
        "unreserved_bytes": unreserved_bytes(taken),
        "rounding_bytes": int((taken.bytes[known] - taken.requested_bytes[known]).sum()),
        "owned_bytes": int(taken.bytes[owned].sum()),
        "not_seen_bytes": int(taken.bytes[in_use & (taken.owner < 0)].sum()),
        "unknown_bytes": int(taken.bytes[taken.state == UNKNOWN_STATE].sum()),
        "bins": [dataclasses.asdict(entry) for entry in free_bins(taken)],
        "pins": [dataclasses.asdict(pin) for pin in pins(taken)[:50]],
    }
