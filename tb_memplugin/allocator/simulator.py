"""A simulator of TensorFlow's BFC allocator that starts from a memory map.

Best fit: a request takes the smallest free chunk that is large enough, of equals the one at the
lowest address; the remainder stays free behind it. A freed chunk is merged with free neighbors in
its region, never across regions."""

import bisect
import copy
import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from tb_memplugin.allocator.rules import (
    ROUNDING,
    SPLIT_AT_BYTES,
    PoolRules,
    next_region_bytes,
    region_for,
    rounded_bytes,
)
from tb_memplugin.schema import FREE, IN_USE, MISSING, MemoryMap, rows_of

_TOP = 1 << 47
"""End of a process's address space. The first region that is placed lies below it."""
_SHIFT, _ABOVE = 64, 1 << 62
"""A free chunk is one integer, bytes << `_SHIFT` | address + `_ABOVE`, which sorts by size and
address and compares faster than a pair. A region that is placed below a heap at a low address has a
negative address."""
_ADDRESS = (1 << _SHIFT) - 1


class Simulator:
    """The chunks of one allocator, changed by allocations and deallocations.

    Args:
        start: A complete memory map.
        rules: How the pool grows; None if it does not.
        recorded_regions: (address, bytes) of regions by which the recorded pool grew. A simulated
            region of the same size lies at the same address.

    Attributes:
        in_use_bytes: Allocated bytes.
        peak_bytes: Their maximum so far."""

    def __init__(
        self,
        start: MemoryMap,
        rules: PoolRules | None = None,
        recorded_regions: Iterable[tuple[int, int]] = (),
    ) -> None:
        self._size: dict[int, int] = {}
        self._requested: dict[int, int] = {}  # of chunks in use
        self._free: list[int] = []  # sorted; see `_SHIFT`
        self._free_ends: dict[int, int] = {}  # address behind a free chunk to its own
        # Address to bytes. No chunks are merged across the begin of a region.
        self._regions: dict[int, int] = dict(rows_of(start.region_address, start.region_bytes))
        self.in_use_bytes = 0
        columns = (start.address, start.bytes, start.requested_bytes, start.state)
        for address, size, requested, state in rows_of(*columns):
            if state == IN_USE:
                self._size[address], self._requested[address] = size, requested
                self.in_use_bytes += size
            else:
                self._add_free(size, address)
        self.peak_bytes = self.in_use_bytes
        self._rules = rules or PoolRules(self.pool_bytes)
        self._recorded = {size: address for address, size in recorded_regions}
        self._wanted = next_region_bytes(self._rules, self._regions.values())

    @property
    def pool_bytes(self) -> int:
        """Bytes of all regions."""
        return sum(self._regions.values())

    @property
    def free_bytes(self) -> int:
        return max(0, self._rules.capacity_bytes - self.in_use_bytes)

    @property
    def largest_free_bytes(self) -> int:
        return self._free[-1] >> _SHIFT if self._free else 0

    def copy(self) -> "Simulator":
        other = copy.copy(self)
        other._size, other._requested = dict(self._size), dict(self._requested)
        other._free, other._free_ends = list(self._free), dict(self._free_ends)
        other._regions = dict(self._regions)
        return other

    def request(self, requested: int) -> int | None:
        """Address of a new chunk, by which the pool may grow; None if the request fails."""
        place: list[int | None] = [None]
        self.play((0,), (requested,), (rounded_bytes(requested),), place)
        return place[0]

    def play(
        self,
        entries: Sequence[int],
        requested: Sequence[int],
        rounded: Sequence[int],
        place: list[int | None],
        may_fail: Collection[int] = (),
    ) -> tuple[int | None, int, int]:
        """Allocate and free one after the other, until a request fails that is not in `may_fail`.

        An entry is the row of the chunk to allocate, or -1 - row to free it. Each row has bytes as
        requested and as rounded, 0 for one to leave out, and the address at which it lies in
        `place`, which changes. Return the row that failed, the most bytes in use, and the number of
        the entry with them, -1 if they are those at the start.

        Simulations take nearly all their time here, so nothing is called that can be avoided."""
        free, ends, regions = self._free, self._free_ends, self._regions
        sizes, asked = self._size, self._requested
        search, insert = bisect.bisect_left, bisect.insort
        level = peak = self.in_use_bytes
        at, failed = -1, None
        for number, row in enumerate(entries):
            if row < 0:
                address = place[~row]
                if address is None:
                    continue
                place[~row] = None
                del asked[address]
                size = sizes[address]
                level -= size
                end = address + size
                if end not in asked and end in sizes and end not in regions:
                    rest = sizes.pop(end)
                    del free[search(free, (rest << _SHIFT) + end + _ABOVE)]
                    size += rest
                    end += rest
                before = ends.get(address)
                if before is not None and address not in regions:
                    rest = sizes[before]
                    del free[search(free, (rest << _SHIFT) + before + _ABOVE)]
                    del ends[address], sizes[address]
                    size += rest
                    address = before
                sizes[address], ends[end] = size, address
                insert(free, (size << _SHIFT) + address + _ABOVE)
                continue
            need = rounded[row]
            if not need:
                continue
            needle = need << _SHIFT
            chosen = search(free, needle)
            if chosen == len(free):
                if not self._grow(need):
                    if row in may_fail:
                        continue
                    failed = row
                    break
                chosen = search(free, needle)
            chunk = free.pop(chosen)
            size, address = chunk >> _SHIFT, (chunk & _ADDRESS) - _ABOVE
            if size >= 2 * need or size - need >= SPLIT_AT_BYTES:
                behind = address + need
                sizes[address], sizes[behind], ends[address + size] = need, size - need, behind
                insert(free, chunk - needle + need)
                level += need
            else:
                del ends[address + size]
                level += size
            asked[address] = requested[row]
            place[row] = address
            if level > peak:
                peak, at = level, number
        self.in_use_bytes = level
        self.peak_bytes = max(self.peak_bytes, peak)
        return failed, peak, at

    def _grow(self, rounded: int) -> bool:
        """Add a region for a request; where the limit forbids that, first return free regions if
        that makes room."""
        rules = self._rules
        added, wanted = region_for(rules, self.pool_bytes, self._wanted, rounded)
        if not added and rules.returns_regions:
            free = [region for region in self._regions.items() if self._is_free(*region)]
            left = rules.capacity_bytes - self.pool_bytes + sum(size for _, size in free)
            for region in free if rounded <= left else ():
                self.remove_region(*region)
            added, wanted = region_for(rules, self.pool_bytes, self._wanted, rounded)
        if not added:
            return False
        self._wanted = wanted
        recorded = self._recorded.get(added)
        self.add_region(_new_address(added, self._regions, recorded, rules.descends), added)
        return True

    def _is_free(self, address: int, size: int) -> bool:
        return self._size.get(address) == size and address not in self._requested

    def choose(self, requested: int) -> int | None:
        """Address of the chunk that a request would get. TensorFlow goes through bins of sizes,
        each in order of (size, address): the first chunk that is large enough is the smallest one
        that is."""
        place = bisect.bisect_left(self._free, rounded_bytes(requested) << _SHIFT)
        return (self._free[place] & _ADDRESS) - _ABOVE if place < len(self._free) else None

    def allocate(self, address: int, requested: int, allocated: int) -> bool:
        """Allocate as recorded: so many bytes of the free chunk at an address. Return False and
        change nothing if it is missing or too small."""
        size = self._size.get(address, 0)
        if address in self._requested or allocated > size:
            return False
        self._remove_free(size, address)
        if allocated < size:
            self._add_free(size - allocated, address + allocated)
        self._size[address], self._requested[address] = allocated, requested
        self.in_use_bytes += allocated
        self.peak_bytes = max(self.peak_bytes, self.in_use_bytes)
        return True

    def follow(self, address: int, requested: int, allocated: int) -> bool:
        """Allocate at a recorded address; return whether the rules lead to the same chunk."""
        if self.choose(requested) == address:
            return self.request(requested) == address
        self.allocate(address, requested, allocated)
        return False

    def free(self, address: int) -> bool:
        """Free the chunk at an address; return False if no chunk in use begins there."""
        if address not in self._requested:
            return False
        self.play((-1,), (), (), [address])
        return True

    def add_region(self, address: int, size: int) -> None:
        """Grow the pool by a region, which is one free chunk."""
        self._regions[address] = size
        self._add_free(size, address)

    def remove_region(self, address: int, size: int) -> bool:
        """Return a region to the device; return False if it is not entirely free."""
        if not self._is_free(address, size):
            return False
        self._remove_free(size, address)
        del self._regions[address]
        return True

    def _add_free(self, size: int, address: int) -> None:
        self._size[address] = size
        self._free_ends[address + size] = address
        bisect.insort(self._free, (size << _SHIFT) + address + _ABOVE)

    def _remove_free(self, size: int, address: int) -> None:
        del self._size[address], self._free_ends[address + size]
        del self._free[bisect.bisect_left(self._free, (size << _SHIFT) + address + _ABOVE)]

    def chunks(self) -> list[tuple[int, int, int]]:
        """(address, bytes, requested bytes) of every chunk by address; `MISSING` requested bytes
        for free chunks."""
        requested = self._requested
        return [
            (address, size, requested.get(address, MISSING))
            for address, size in sorted(self._size.items())
        ]

    def map(self, like: MemoryMap) -> MemoryMap:
        """The current memory map; everything but its chunks, e.g. the capacity, comes from
        `like`."""
        address, size, requested = np.asarray(self.chunks(), np.int64).reshape(-1, 3).T.copy()
        regions = sorted(self._regions.items())
        region_address, region_bytes = np.asarray(regions, np.int64).reshape(-1, 2).T.copy()
        count = len(address)
        return dataclasses.replace(
            like,
            address=address,
            bytes=size,
            requested_bytes=requested,
            state=np.where(requested == MISSING, FREE, IN_USE),
            owner=np.full(count, -1),
            source=np.zeros(count, np.int64),
            since=np.full(count, MISSING),
            region=np.searchsorted(region_address, address, side="right") - 1,
            owners=(),
            region_address=region_address,
            region_bytes=region_bytes,
            in_use_bytes=self.in_use_bytes,
            pool_bytes=int(size.sum()),
        )


def _new_address(
    size: int, regions: Mapping[int, int], recorded: int | None, descends: bool
) -> int:
    """Address of a new region: the recorded one if it is free, or below or above all regions and
    not adjacent to one."""
    ends = {begin: begin + length for begin, length in regions.items()}
    if recorded is not None and not any(
        begin < recorded + size and recorded < end for begin, end in ends.items()
    ):
        return recorded
    if descends:
        return min(ends, default=_TOP) - size - ROUNDING
    return max(ends.values(), default=0) + ROUNDING
