"""A simulator of TensorFlow's BFC allocator that starts from a memory map.

Best fit: a request takes the smallest free chunk that is large enough, of equals the one at the lowest address; the
remainder stays free behind it. A freed chunk is merged with free neighbors in its region, never across regions."""

import bisect
import copy
import dataclasses
from collections.abc import Iterable

import numpy as np

from tb_memplugin.allocator.rules import (
    ROUNDING,
    PoolRules,
    chunk_after_split,
    next_region_bytes,
    region_for,
    rounded_bytes,
)
from tb_memplugin.schema import FREE, IN_USE, MISSING, MemoryMap

_NONE = -1
_TOP = 1 << 47
"""End of a process's address space. The first region that is placed lies below it."""
_LOWEST = -(1 << 62)
"""Below every address: a region that is placed below a heap at a low address has a negative one."""


class Simulator:
    """The chunks of one allocator, changed by allocations and deallocations.

    Args:
        start: A complete memory map.
        rules: How the pool grows; None if it does not.
        recorded_regions: (address, bytes) of regions by which the recorded pool grew. A simulated region of the same
            size lies at the same address.

    Attributes:
        in_use_bytes: Allocated bytes.
        peak_bytes: Their maximum so far.
        pool_bytes: Bytes of all regions."""

    def __init__(
        self, start: MemoryMap, rules: PoolRules | None = None, recorded_regions: Iterable[tuple[int, int]] = ()
    ) -> None:
        self._size: dict[int, int] = {}
        self._requested: dict[int, int] = {}  # of chunks in use
        self._next: dict[int, int] = {}
        self._previous: dict[int, int] = {}
        self._free: list[tuple[int, int]] = []  # (bytes, address) of the free chunks, sorted
        regions = zip(start.region_address.tolist(), start.region_bytes.tolist(), strict=True)
        self._regions: list[tuple[int, int]] = list(regions)
        columns = (start.address, start.bytes, start.requested_bytes, start.state, start.region)
        previous, previous_region = _NONE, _NONE
        for address, size, requested, state, region in zip(*(column.tolist() for column in columns), strict=True):
            self._size[address] = size
            self._previous[address] = previous if region == previous_region else _NONE
            self._next[address] = _NONE
            if region == previous_region:
                self._next[previous] = address
            if state == IN_USE:
                self._requested[address] = requested
            else:
                self._free.append((size, address))
            previous, previous_region = address, region
        self._free.sort()
        self.in_use_bytes = sum(self._size[address] for address in self._requested)
        self.peak_bytes = self.in_use_bytes
        self.pool_bytes = sum(size for _, size in self._regions)
        self._rules = rules
        self._recorded = {size: address for address, size in recorded_regions}
        self._wanted = 0 if rules is None else next_region_bytes(rules, (size for _, size in self._regions))

    @property
    def free_bytes(self) -> int:
        return max(0, (self.pool_bytes if self._rules is None else self._rules.capacity_bytes) - self.in_use_bytes)

    @property
    def largest_free_bytes(self) -> int:
        return self._free[-1][0] if self._free else 0

    def copy(self) -> "Simulator":
        other = copy.copy(self)
        other._size, other._requested = dict(self._size), dict(self._requested)
        other._next, other._previous = dict(self._next), dict(self._previous)
        other._free, other._regions = list(self._free), list(self._regions)
        return other

    def request(self, requested: int) -> int | None:
        rounded = rounded_bytes(requested)
        free = self._free
        place = bisect.bisect_left(free, (rounded, _LOWEST))
        if place == len(free):
            if not self._extend(rounded) and not (self._return_regions(rounded) and self._extend(rounded)):
                return None
            place = bisect.bisect_left(free, (rounded, _LOWEST))
        size, address = free.pop(place)
        self._take(address, size, requested, chunk_after_split(size, rounded))
        return address

    def _extend(self, rounded: int) -> bool:
        rules = self._rules
        region = None if rules is None else region_for(rules, self.pool_bytes, self._wanted, rounded)
        if rules is None or region is None:
            return False
        size, self._wanted = region
        self.add_region(self._free_address(size, rules.descends), size)
        return True

    def _return_regions(self, rounded: int) -> bool:
        if self._rules is None or not self._rules.returns_regions:
            return False
        free = [region for region in self._regions if self._is_free(*region)]
        left = self._rules.capacity_bytes - self.pool_bytes + sum(size for _, size in free)
        if not free or rounded > left:
            return False
        for region in free:
            self.remove_region(*region)
        return True

    def _free_address(self, size: int, descends: bool) -> int:
        """Address of a new region: the recorded one, or below or above all regions and not adjacent to one."""
        address = self._recorded.get(size)
        if address is not None and not any(
            other < address + size and address < other + length for other, length in self._regions
        ):
            return address
        if descends:
            return (self._regions[0][0] if self._regions else _TOP) - size - ROUNDING
        return max((address + size for address, size in self._regions), default=0) + ROUNDING

    def _is_free(self, address: int, size: int) -> bool:
        return self._size.get(address) == size and address not in self._requested

    def choose(self, requested: int) -> int | None:
        """Address of the chunk that a request would get. TensorFlow goes through bins of sizes, each in order of (size,
        address): the first chunk that is large enough is the smallest one that is."""
        place = bisect.bisect_left(self._free, (rounded_bytes(requested), _LOWEST))
        return self._free[place][1] if place < len(self._free) else None

    def allocate(self, address: int, requested: int, allocated: int | None = None) -> bool:
        """Allocate the free chunk at an address; return False and change nothing if it is missing or too small.
        `allocated` are the bytes that a recorded allocation got; None to follow the rules."""
        size = self._size.get(address)
        if size is None or address in self._requested:
            return False
        given = chunk_after_split(size, rounded_bytes(requested)) if allocated is None else allocated
        if given > size:
            return False
        self._remove_free(size, address)
        self._take(address, size, requested, given)
        return True

    def _take(self, address: int, size: int, requested: int, given: int) -> None:
        """Put a chunk of `size` bytes, which is no longer in the list of free chunks, in use, and split it."""
        if given < size:
            behind = address + given
            self._size[address], self._size[behind] = given, size - given
            after = self._next[address]
            self._next[address], self._previous[behind], self._next[behind] = behind, address, after
            if after != _NONE:
                self._previous[after] = behind
            bisect.insort(self._free, (size - given, behind))
        self._requested[address] = requested
        self.in_use_bytes += given
        if self.in_use_bytes > self.peak_bytes:
            self.peak_bytes = self.in_use_bytes

    def follow(self, address: int, requested: int, allocated: int) -> bool:
        """Allocate at a recorded address; return whether the rules lead to the same chunk."""
        if self.choose(requested) == address and self.allocate(address, requested):
            return True
        self.allocate(address, requested, allocated)
        return False

    def free(self, address: int) -> bool:
        """Free the chunk at an address; return False if no chunk in use begins there."""
        sizes, following, preceding, requested = self._size, self._next, self._previous, self._requested
        if requested.pop(address, None) is None:
            return False
        size, after, before = sizes[address], following[address], preceding[address]
        self.in_use_bytes -= size
        if after != _NONE and after not in requested:
            self._remove_free(sizes[after], after)
            size += sizes.pop(after)
            del preceding[after]
            after = following.pop(after)
        if before != _NONE and before not in requested:
            self._remove_free(sizes[before], before)
            size += sizes[before]
            del sizes[address], preceding[address], following[address]
            address = before
        sizes[address], following[address] = size, after
        if after != _NONE:
            preceding[after] = address
        bisect.insort(self._free, (size, address))
        return True

    def add_region(self, address: int, size: int) -> None:
        """Grow the pool by a region, which is one free chunk."""
        bisect.insort(self._regions, (address, size))
        self.pool_bytes += size
        self._size[address], self._previous[address], self._next[address] = size, _NONE, _NONE
        bisect.insort(self._free, (size, address))

    def remove_region(self, address: int, size: int) -> bool:
        """Return a region to the device; return False if it is not entirely free."""
        if not self._is_free(address, size):
            return False
        self.pool_bytes -= size
        self._remove_free(size, address)
        del self._size[address], self._previous[address], self._next[address]
        self._regions.remove((address, size))
        return True

    def _remove_free(self, size: int, address: int) -> None:
        del self._free[bisect.bisect_left(self._free, (size, address))]

    def chunks(self) -> list[tuple[int, int, int]]:
        """(address, bytes, requested bytes) of every chunk by address; `MISSING` requested bytes for free chunks."""
        requested = self._requested
        return [(address, size, requested.get(address, MISSING)) for address, size in sorted(self._size.items())]

    def map(self, like: MemoryMap) -> MemoryMap:
        """The current memory map; everything but its chunks, e.g. the capacity, comes from `like`."""
        columns = np.asarray(self.chunks(), np.int64).reshape(-1, 3)
        address, size, requested = (np.ascontiguousarray(column) for column in columns.T)
        regions = np.asarray(self._regions, np.int64).reshape(-1, 2)
        region_address, region_bytes = np.ascontiguousarray(regions[:, 0]), np.ascontiguousarray(regions[:, 1])
        count = len(address)
        return dataclasses.replace(
            like,
            address=address,
            bytes=size,
            requested_bytes=requested,
            state=np.where(np.isin(address, np.asarray(list(self._requested), np.int64)), IN_USE, FREE),
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
