"""Replays a trace of allocations in the simulator, to check it against the memory maps before and
after it. Pure.

The recorder reads one map just after the profiler starts and one just before it stops, so both lie
within the trace. Their places follow from the chunks in use; every event adds or removes one. If
the chunks match a map in several places, the longest part of the trace is taken."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_memplugin.allocator.simulator import Simulator
from tb_memplugin.schema import IN_USE, AllocationTrace, Integers, MemoryMap, Replay, rows_of

_MIX_ADDRESS, _MIX_SIZE = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)


def between_maps(
    trace: AllocationTrace, start: MemoryMap | None, end: MemoryMap | None
) -> AllocationTrace:
    """The trace without the events before `start` and after `end`, with these maps. If no part of
    the trace leads from one map to the other, events are missing: the trace is returned unchanged,
    without maps."""
    if start is None or end is None:
        return trace
    part = _part(trace, start, end)
    if part is None:
        return trace
    columns: dict[str, Any] = {
        name: column[slice(*part)]
        for name, column in vars(trace).items()
        if isinstance(column, np.ndarray)
    }
    return dataclasses.replace(
        trace,
        **columns,
        start_in_use=start.in_use_bytes or 0,
        start_map=start,
        end_map=end,
    )


def _part(trace: AllocationTrace, start: MemoryMap, end: MemoryMap) -> tuple[int, int] | None:
    """(first, last) so that the events from `first` up to before `last` lead from one map to the
    other."""
    change = trace.kind.astype(np.int64).view(np.uint64) * _mixed(trace.address, trace.allocated)
    sums = np.concatenate([[np.uint64(0)], np.cumsum(change, dtype=np.uint64)])
    in_use = np.concatenate([[trace.start_in_use], trace.in_use])
    before_sum, after_sum = (int(_mixed(*_in_use(one)).sum()) for one in (start, end))
    at_start, at_end = (np.flatnonzero(in_use == one.in_use_bytes)[::-1] for one in (start, end))
    firsts = dict(rows_of(sums[at_start], at_start))
    fallback = None
    for last in at_end.tolist():
        first = firsts.get((int(sums[last]) - after_sum + before_sum) % (1 << 64))
        if first is None or first > last or not _leads(trace, first, last, start, end):
            continue
        before = (-trace.kind[:first], trace.address[:first], trace.allocated[:first])
        after = (trace.kind[last:], trace.address[last:], trace.allocated[last:])
        backwards = [column[::-1] for column in before]
        if _possible(backwards, _sizes(start)) is not None and (
            _possible(after, _sizes(end)) is not None
        ):
            return first, last
        # Outside the maps, the trace may miss events because the profiler is starting or stopping.
        if first < last:
            fallback = fallback or (first, last)
    return fallback


def _mixed(address: Integers, size: Integers) -> npt.NDArray[np.uint64]:
    mixed: npt.NDArray[np.uint64] = (
        address.astype(np.uint64) * _MIX_ADDRESS ^ size.astype(np.uint64) * _MIX_SIZE
    )
    mixed = (mixed ^ mixed >> np.uint64(29)) * _MIX_ADDRESS
    return mixed


def _sizes(memory_map: MemoryMap) -> dict[int, int]:
    return dict(rows_of(*_in_use(memory_map)))


def _in_use(memory_map: MemoryMap) -> tuple[Integers, Integers]:
    used = memory_map.state == IN_USE
    return memory_map.address[used], memory_map.bytes[used]


def _leads(trace: AllocationTrace, first: int, last: int, start: MemoryMap, end: MemoryMap) -> bool:
    """Whether the part leads from one map's chunks to the other's, with the requests of the second
    map."""
    kind, address = trace.kind[first:last], trace.address[first:last]
    if _possible((kind, address, trace.allocated[first:last]), _sizes(start)) != _sizes(end):
        return False
    known = dict(rows_of(end.address, end.requested_bytes))
    # only an address's last event counts
    wanted = np.where(kind == 1, trace.requested[first:last], -1)
    requests = dict(rows_of(address, wanted))
    return all(requested in (-1, known.get(address)) for address, requested in requests.items())


def _possible(events: Sequence[Integers], chunks: dict[int, int]) -> dict[int, int] | None:
    """`chunks` in use after events (kind, address, bytes); None if they allocate a chunk in use or
    free one that is not."""
    for kind, address, size in rows_of(*events):
        if kind == 1:
            if address in chunks:
                return None
            chunks[address] = size
        elif chunks.pop(address, None) != size:
            return None
    return chunks


class TraceReplay:
    """The replay of a result of `between_maps` that has maps.

    Attributes:
        check: How much the replay reproduced.
        map: The memory map after the chosen event; after -1, the one before the first.
        grown: (address, bytes) of the regions by which the pool grew, in order."""

    def __init__(self, trace: AllocationTrace, event: int) -> None:
        assert trace.start_map is not None and trace.end_map is not None
        start, end = _with_borders(trace.start_map, trace.end_map), trace.end_map
        self._simulator = simulator = Simulator(start)
        self._new_regions, self._old_regions = added_regions(start, end), added_regions(end, start)
        self.grown: list[tuple[int, int]] = []
        self.map = simulator.map(start) if event < 0 else start
        same = 0
        rows = rows_of(trace.kind, trace.address, trace.requested, trace.allocated)
        for number, (kind, address, requested, allocated) in enumerate(rows):
            if kind == 1:
                if simulator.choose(requested) is None:
                    self._change_regions(address)
                same += simulator.follow(address, requested, allocated)
            else:
                simulator.free(address)
            if number == event:
                self.map = simulator.map(start)
        chunks = set(simulator.chunks())
        recorded = set(rows_of(end.address, end.bytes, end.requested_bytes))
        self.check = Replay(
            addresses=same,
            of_addresses=int((trace.kind == 1).sum()),
            chunks=len(chunks & recorded),
            of_chunks=len(chunks | recorded),
            peak_bytes=simulator.peak_bytes,
        )

    def _change_regions(self, address: int) -> None:
        """Add and remove regions as in the end map, so that an allocation at the address is
        possible.

        A request that makes the pool grow takes the new region's begin. What lies before it in a
        stretch is a later region: those of a growing pool lie below the older ones, and the map
        shows no border between neighbors."""
        simulator = self._simulator
        self._old_regions = [one for one in self._old_regions if not simulator.remove_region(*one)]
        for begin, size in list(self._new_regions):
            if begin <= address < begin + size:
                self._new_regions.remove((begin, size))
                if address > begin:
                    self._new_regions.append((begin, address - begin))
                self.grown.append((address, begin + size - address))
                simulator.add_region(*self.grown[-1])


def _with_borders(start: MemoryMap, end: MemoryMap) -> MemoryMap:
    """The first map, with the region borders that only the second one shows: one between adjacent
    regions is visible only if free chunks meet there, but it never moves."""
    borders = np.setdiff1d(np.intersect1d(end.region_address, start.address), start.region_address)
    if not len(borders):
        return start
    address = np.union1d(start.region_address, borders)
    region = np.searchsorted(address, start.address, side="right") - 1
    size = np.zeros(len(address), np.int64)
    np.add.at(size, region, start.bytes)
    return dataclasses.replace(start, region=region, region_address=address, region_bytes=size)


def added_regions(start: MemoryMap, end: MemoryMap) -> list[tuple[int, int]]:
    """(address, bytes) of stretches that only the regions of the second map cover."""
    covered = sorted(rows_of(start.region_address, start.region_bytes))
    stretches: list[tuple[int, int]] = []
    for address, size in rows_of(end.region_address, end.region_bytes):
        at, region_end = address, address + size
        for known, known_bytes in covered:
            if known < region_end and known + known_bytes > at:
                if known > at:
                    stretches.append((at, known - at))
                at = known + known_bytes
        if at < region_end:
            stretches.append((at, region_end - at))
    return stretches
