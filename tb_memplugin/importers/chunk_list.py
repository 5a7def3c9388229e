"""From a list of an allocator's chunks to an allocator map: regions, and what is missing between the chunks."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tb_memplugin.codec import MISSING
from tb_memplugin.errors import FormatError
from tb_memplugin.model import FREE, IN_USE, UNKNOWN_STATE, AllocatorMap

MAX_CHUNKS = 500_000
"""Most chunks of one allocator that are taken in."""


@dataclasses.dataclass(frozen=True)
class ListedChunk:
    """One chunk as a dump or a log lists it; `requested_bytes` is None where it does not say."""

    address: int
    bytes: int
    in_use: bool
    requested_bytes: int | None = None


@dataclasses.dataclass(frozen=True)
class ListedRegion:
    """The chunks of one region in the order of their addresses.

    Attributes:
        chunks: At least one.
        address, bytes: Of the region as far as that is known: it may be more than its chunks.
    """

    chunks: tuple[ListedChunk, ...]
    address: int
    bytes: int


def region_of(chunks: Sequence[ListedChunk]) -> ListedRegion:
    """The region that the chunks make up, none missing at its ends."""
    end = chunks[-1].address + chunks[-1].bytes
    return ListedRegion(tuple(chunks), chunks[0].address, end - chunks[0].address)


def split_regions(chunks: Sequence[ListedChunk]) -> list[ListedRegion]:
    """The regions of a list of chunks that does not name them.

    A region ends where the next chunk does not begin, and between two free chunks: inside a region the allocator would
    have joined them.
    """
    regions: list[list[ListedChunk]] = []
    for chunk in chunks:
        last = regions[-1][-1] if regions else None
        if last is None or last.address + last.bytes != chunk.address or not (last.in_use or chunk.in_use):
            regions.append([])
        regions[-1].append(chunk)
    return [region_of(region) for region in regions]


def make_map(
    regions: Sequence[ListedRegion],
    *,
    device: str,
    wall_time: float,
    in_use_bytes: int | None,
    pool_bytes: int | None,
    capacity_bytes: int | None,
    complete: bool,
    not_available: Sequence[str],
) -> AllocatorMap:
    """The map of the regions; stretches of a region that no chunk covers have the state `UNKNOWN_STATE`.

    Raises:
        FormatError: Chunks overlap, have no size, or are too many.
    """
    ordered = sorted(regions, key=lambda region: region.address)
    rows = _rows(ordered)
    if len(rows) > MAX_CHUNKS:
        raise FormatError(f"the list holds {len(rows)} chunks; at most {MAX_CHUNKS} are taken in")
    columns = np.asarray(rows, np.int64).reshape(-1, 5)
    address, size, state, requested_bytes, region_index = (np.ascontiguousarray(column) for column in columns.T)
    return AllocatorMap(
        step=None,
        phase=None,
        device=device,
        wall_time=wall_time,
        address=address,
        bytes=size,
        requested_bytes=requested_bytes,
        state=state,
        owner=np.full(len(rows), -1),
        source=np.zeros(len(rows), np.int64),
        since=np.full(len(rows), MISSING),
        region=region_index,
        owners=(),
        region_address=np.asarray([region.address for region in ordered], np.int64),
        region_bytes=np.asarray([region.bytes for region in ordered], np.int64),
        in_use_bytes=in_use_bytes,
        pool_bytes=pool_bytes,
        capacity_bytes=capacity_bytes,
        complete=complete,
        not_available=tuple(not_available),
    )


def _rows(regions: Sequence[ListedRegion]) -> list[tuple[int, int, int, int, int]]:
    """(address, bytes, state, requested bytes, number of its region) of every chunk and of the stretches between."""
    rows: list[tuple[int, int, int, int, int]] = []
    at = 0
    for number, region in enumerate(regions):
        at = max(at, region.address)
        for chunk in region.chunks:
            if chunk.bytes <= 0 or chunk.address < at or chunk.address + chunk.bytes >= 2**62:
                raise FormatError(
                    "the list of chunks does not hold together: the chunk at "
                    f"{chunk.address:#x} of {chunk.bytes} bytes begins before {at:#x} or has no size"
                )
            if chunk.address > at:
                rows.append((at, chunk.address - at, UNKNOWN_STATE, MISSING, number))
            requested = MISSING if chunk.requested_bytes is None or not chunk.in_use else chunk.requested_bytes
            rows.append((chunk.address, chunk.bytes, IN_USE if chunk.in_use else FREE, requested, number))
            at = chunk.address + chunk.bytes
        end = region.address + region.bytes
        if end > at:
            rows.append((at, end - at, UNKNOWN_STATE, MISSING, number))
            at = end
    return rows
