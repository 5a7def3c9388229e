"""Builds a memory map from a list of chunks: finds regions, and the gaps between chunks. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tb_memplugin.errors import FormatError
from tb_memplugin.schema import FREE, IN_USE, MISSING, UNKNOWN_STATE, Integers, MemoryMap

MAX_CHUNKS = 500_000
"""Most chunks of one memory map."""
END = 2**62
"""Addresses and sizes from here on are refused, so that sums of two do not overflow."""


class ListedChunk(NamedTuple):
    """One chunk of a log."""

    address: int
    bytes: int
    in_use: bool


class ListedRegion(NamedTuple):
    """The chunks of one region in address order, at least one, and its extent: it may reach beyond them."""

    chunks: tuple[ListedChunk, ...]
    address: int
    bytes: int


class ChunkColumns(NamedTuple):
    """Chunks in the order of a list, unchecked; `requested_bytes` is `MISSING` if unknown."""

    address: Integers
    bytes: Integers
    in_use: npt.NDArray[np.bool_]
    requested_bytes: Integers


class Regions(NamedTuple):
    """Regions in address order: their chunks one after another, the first one of each region, and its known extent."""

    chunks: ChunkColumns
    first: Integers
    address: Integers
    bytes: Integers


def region_of(chunks: Sequence[ListedChunk]) -> ListedRegion:
    """The region from the first chunk to the last."""
    end = chunks[-1].address + chunks[-1].bytes
    return ListedRegion(tuple(chunks), chunks[0].address, end - chunks[0].address)


def columns_of(regions: Sequence[ListedRegion]) -> Regions:
    """The regions as columns; impossible addresses and sizes become `END`."""
    ordered = sorted(regions, key=lambda region: region.address)
    listed = [chunk for region in ordered for chunk in region.chunks]
    chunks = ChunkColumns(
        _bounded([chunk.address for chunk in listed]),
        _bounded([chunk.bytes for chunk in listed]),
        np.asarray([chunk.in_use for chunk in listed], np.bool_),
        np.full(len(listed), MISSING),
    )
    sizes = np.asarray([len(region.chunks) for region in ordered], np.int64)
    address = _bounded([region.address for region in ordered])
    return Regions(chunks, np.cumsum(sizes) - sizes, address, _bounded([region.bytes for region in ordered]))


def split_regions(chunks: ChunkColumns) -> Regions:
    """The regions of a list of chunks without regions.

    A region ends where the next chunk is not adjacent, and between two free chunks, which the allocator would have
    merged within a region.
    """
    address, size, in_use, requested = chunks
    begins = np.ones(len(address), np.bool_)
    begins[1:] = (address[:-1] + size[:-1] != address[1:]) | ~(in_use[:-1] | in_use[1:])
    first = np.flatnonzero(begins)
    order = np.argsort(address[first], kind="stable")
    if not np.array_equal(order, np.arange(len(order))):
        # Sort regions by address, each with its chunks.
        number = np.repeat(np.argsort(order, kind="stable"), np.diff(first, append=len(address)))
        moved = np.argsort(number, kind="stable")
        chunks = ChunkColumns(address[moved], size[moved], in_use[moved], requested[moved])
        address, size = chunks.address, chunks.bytes
        first = np.flatnonzero(np.diff(number[moved], prepend=-1))
    last = np.append(first[1:], len(address)) - 1
    return Regions(chunks, first, address[first], address[last] + size[last] - address[first])


def make_map(
    regions: Regions,
    *,
    device: str,
    wall_time: float,
    in_use_bytes: int | None,
    pool_bytes: int | None,
    capacity_bytes: int | None,
    complete: bool,
    not_available: Sequence[str],
) -> MemoryMap:
    """The memory map of regions; parts of a region without chunks have the state `UNKNOWN_STATE`.

    Raises:
        FormatError: Chunks overlap, have no size, or are too many.
    """
    address, size, state, requested_bytes, region = _rows(regions)
    if len(address) > MAX_CHUNKS:
        raise FormatError(f"the list has {len(address)} chunks; at most {MAX_CHUNKS} are supported")
    return MemoryMap(
        step=None,
        phase=None,
        device=device,
        wall_time=wall_time,
        address=address,
        bytes=size,
        requested_bytes=requested_bytes,
        state=state,
        owner=np.full(len(address), -1),
        source=np.zeros(len(address), np.int64),
        since=np.full(len(address), MISSING),
        region=region,
        owners=(),
        region_address=regions.address,
        region_bytes=regions.bytes,
        in_use_bytes=in_use_bytes,
        pool_bytes=pool_bytes,
        capacity_bytes=capacity_bytes,
        complete=complete,
        not_available=tuple(not_available),
    )


def _rows(regions: Regions) -> tuple[Integers, ...]:
    """(address, bytes, state, requested bytes, region) of every chunk and of the gaps between chunks."""
    address, size, in_use, requested = regions.chunks
    bounded = (address >= 0) & (address < END) & (size > 0) & (size < END)
    end = np.where(bounded, address, 0) + np.where(bounded, size, 0)
    bounded &= end < END
    region_end = np.minimum(regions.address, END) + np.minimum(regions.bytes, END)
    last = np.append(regions.first[1:], len(address)) - 1
    # A chunk begins no earlier than the previous one ends, in a new region no earlier than the region begins.
    earliest = np.zeros(len(address), np.int64)
    earliest[1:] = end[:-1]
    closed = np.maximum(end[last], region_end)
    earliest[regions.first] = np.maximum(regions.address, np.append(0, closed[:-1]))
    wrong = np.flatnonzero(~bounded | (address < earliest))
    if len(wrong):
        at = wrong[0]
        raise FormatError(
            "the chunks are inconsistent: the chunk at "
            f"{int(address[at]) % 2**64:#x} of {size[at]} bytes begins before {int(earliest[at]):#x} or has no size"
        )
    number = np.repeat(np.arange(len(regions.first)), np.diff(regions.first, append=len(address)))
    rows = (address, size, np.where(in_use, IN_USE, FREE), np.where(in_use, requested, MISSING), number)
    before = np.flatnonzero(address > earliest)
    after = np.flatnonzero(region_end > end[last])
    if not len(before) and not len(after):
        return rows
    places = np.concatenate([before, last[after] + 1])
    gap = (
        np.concatenate([earliest[before], end[last[after]]]),
        np.concatenate([(address - earliest)[before], (region_end - end[last])[after]]),
        np.full(len(places), UNKNOWN_STATE),
        np.full(len(places), MISSING),
        np.concatenate([number[before], after]),
    )
    # Between two regions, the gap at the end of the first comes before that at the start of the second.
    order = np.lexsort((gap[4], places))
    return tuple(np.insert(column, places[order], missing[order]) for column, missing in zip(rows, gap, strict=True))


def _bounded(numbers: Sequence[int]) -> Integers:
    return np.asarray([min(max(number, -END), END) for number in numbers], np.int64)
