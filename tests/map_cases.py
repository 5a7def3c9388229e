"""Memory maps made by hand, and an allocator written as plainly as can be, to compare the simulator
with."""

import dataclasses
from collections.abc import Iterable

import numpy as np

from tb_memplugin.schema import FREE, IN_USE, MISSING, MemoryMap

MIB = 1 << 20
Region = tuple[int, int]
Row = tuple[int, int, int]


def memory_map(
    rows: Iterable[Row], regions: Iterable[Region], capacity: int | None = None
) -> MemoryMap:
    """The map of chunks (address, bytes, requested bytes or `MISSING` for free ones) in regions
    (address, bytes)."""
    columns = np.asarray(sorted(rows), np.int64).reshape(-1, 3)
    borders = np.asarray(sorted(regions), np.int64).reshape(-1, 2)
    used = columns[:, 2] != MISSING
    count = len(columns)
    return MemoryMap(
        step=None,
        phase=None,
        device="GPU:0",
        wall_time=0.0,
        address=columns[:, 0].copy(),
        bytes=columns[:, 1].copy(),
        requested_bytes=columns[:, 2].copy(),
        state=np.where(used, IN_USE, FREE),
        owner=np.full(count, -1),
        source=np.zeros(count, np.int64),
        since=np.full(count, MISSING),
        region=np.searchsorted(borders[:, 0], columns[:, 0], side="right") - 1,
        owners=(),
        region_address=borders[:, 0].copy(),
        region_bytes=borders[:, 1].copy(),
        in_use_bytes=int(columns[used, 1].sum()),
        pool_bytes=int(columns[:, 1].sum()),
        capacity_bytes=capacity,
        complete=True,
        not_available=(),
    )


def free_regions(*regions: Region) -> MemoryMap:
    """The map of wholly free regions."""
    return memory_map([(address, size, MISSING) for address, size in regions], regions)


@dataclasses.dataclass
class Chunk:
    """One chunk of a `PlainAllocator`; `requested` is None if it is free."""

    address: int
    size: int
    requested: int | None = None


class PlainAllocator:
    """Best fit with coalescing, by looking at every chunk each time.

    Args:
        regions: (address, bytes) of each, all free at first.
    """

    def __init__(self, *regions: Region) -> None:
        self.regions = {address: [Chunk(address, size)] for address, size in sorted(regions)}

    def chunks(self) -> list[Chunk]:
        return [chunk for address in sorted(self.regions) for chunk in self.regions[address]]

    def rows(self) -> list[Row]:
        return [
            (chunk.address, chunk.size, MISSING if chunk.requested is None else chunk.requested)
            for chunk in self.chunks()
        ]

    def map(self) -> MemoryMap:
        regions = [
            (address, sum(chunk.size for chunk in chunks))
            for address, chunks in self.regions.items()
        ]
        return memory_map(self.rows(), regions)

    def allocate(self, requested: int) -> tuple[int, int] | None:
        """(address, bytes) of the chunk that the request is given, None if no free chunk is large
        enough."""
        rounded = max(256, (requested + 255) // 256 * 256)
        fitting = [
            chunk for chunk in self.chunks() if chunk.requested is None and chunk.size >= rounded
        ]
        if not fitting:
            return None
        best = min(fitting, key=lambda chunk: (chunk.size, chunk.address))
        if best.size >= 2 * rounded or best.size - rounded >= 128 * MIB:
            region = next(chunks for chunks in self.regions.values() if best in chunks)
            region.insert(
                region.index(best) + 1, Chunk(best.address + rounded, best.size - rounded)
            )
            best.size = rounded
        best.requested = requested
        return best.address, best.size

    def free(self, address: int) -> int:
        """Frees the chunk at an address; its bytes."""
        (found,) = (
            chunk
            for chunk in self.chunks()
            if chunk.address == address and chunk.requested is not None
        )
        size, found.requested = found.size, None
        for region, chunks in self.regions.items():
            joined: list[Chunk] = []
            for chunk in chunks:
                if joined and chunk.requested is None and joined[-1].requested is None:
                    joined[-1] = Chunk(joined[-1].address, joined[-1].size + chunk.size)
                else:
                    joined.append(chunk)
            self.regions[region] = joined
        return size

    def grow(self, address: int, size: int) -> None:
        """Adds a free region."""
        self.regions[address] = [Chunk(address, size)]
