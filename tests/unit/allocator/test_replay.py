"""The part of a trace between two memory maps, and its replay."""

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from map_cases import PlainAllocator, Region, free_regions
from trace_cases import Recorder, attributed, rows

from tb_memplugin.allocator import TraceReplay, between_maps
from tb_memplugin.attribution import OomEvent, post_mortem
from tb_memplugin.schema import (
    IN_USE,
    AllocationTrace,
    ChunkOwner,
    MemoryMap,
    Replay,
    TraceFacts,
    VariableFact,
)

KIB = 1024
BASE = 0x7F00_0000_0040
STEPS = st.lists(st.tuples(st.booleans(), st.integers(1, 9000), st.integers(0, 1000)), max_size=40)
"""Whether to allocate, what to request, which chunk to free."""


class Traced:
    """An allocator that records every change as an event."""

    def __init__(self, *regions: Region) -> None:
        self.allocator = PlainAllocator(*regions)
        self.events = Recorder()
        self.live: list[int] = []

    def allocate(self, requested: int) -> int | None:
        found = self.allocator.allocate(requested)
        if found is None:
            return None
        address, size = found
        self.events.event(1, address, requested, "op", "output", allocated=size)
        self.live.append(address)
        return address

    def free(self, address: int) -> None:
        self.live.remove(address)
        self.events.event(-1, address, 0, allocated=self.allocator.free(address))

    def run(self, steps: list[tuple[bool, int, int]]) -> None:
        for allocates, requested, number in steps:
            if allocates:
                self.allocate(requested)
            elif self.live:
                self.free(self.live[number % len(self.live)])

    def map(self) -> MemoryMap:
        return self.allocator.map()


def complete(replay: Replay) -> bool:
    return replay.addresses == replay.of_addresses and replay.chunks == replay.of_chunks


def step_with_neighbors() -> tuple[AllocationTrace, MemoryMap, MemoryMap]:
    """Three events before the first map, four between the maps, two after."""
    step = Traced((BASE, 64 * KIB))
    kept, freed = step.allocate(1000), step.allocate(5000)
    step.allocate(300)
    start = step.map()
    assert kept is not None and freed is not None
    step.allocate(700)
    step.free(freed)
    step.allocate(2000)
    step.allocate(1100)
    end = step.map()
    step.free(kept)
    step.allocate(20_000)
    return step.events.trace(), start, end


def test_events_outside_of_the_maps_are_left_out_and_maps_of_another_time_do_not_match() -> None:
    trace, start, end = step_with_neighbors()
    part = between_maps(trace, start, end)
    assert part.time_ps.tolist() == trace.time_ps[3:7].tolist()
    assert part.start_in_use == start.in_use_bytes == int(trace.in_use[2])
    assert part.start_map is start and part.end_map is end
    replay = TraceReplay(part, -1).check
    assert replay == Replay(3, 3, len(end), len(end), int(part.in_use.max()))
    trace, start, end = step_with_neighbors()
    for first, second in ((start, None), (None, end), (end, start)):
        assert between_maps(trace, first, second) is trace
    # before the first event
    assert between_maps(trace, free_regions((BASE, 64 * KIB)), end).start_map is not None
    other = Traced((BASE, 64 * KIB))
    other.allocate(12_345)
    assert between_maps(trace, free_regions((BASE, 64 * KIB)), other.map()) is trace


@pytest.mark.parametrize("missing", range(3, 7))
def test_a_trace_that_misses_an_event_between_the_maps_has_no_maps(missing: int) -> None:
    trace, start, end = step_with_neighbors()
    kept = np.arange(len(trace)) != missing
    columns = {
        name: column[kept] for name, column in vars(trace).items() if isinstance(column, np.ndarray)
    }
    part = between_maps(dataclasses.replace(trace, **columns), start, end)
    assert len(part) == len(trace) - 1
    assert part.start_map is None and part.end_map is None


def test_a_step_without_events_between_its_maps_has_the_ledger_of_its_start() -> None:
    # GIVEN events after the end map only, as another thread may make them
    step = Traced((BASE, 4 * KIB))
    address = step.allocate(1000)
    start = end = step.map()
    step.allocate(300)
    part = between_maps(step.events.trace(), start, end)
    assert len(part) == 0 and part.start_in_use == 1024
    variable = VariableFact("w", "weights", "m/a", True, 1000, "GPU:0", address, address)
    made = attributed(part, TraceFacts(variables=(variable,)))
    snapshot, inside = made.snapshot, made.timeline()
    assert rows(snapshot) == {("m/a", "weights"): 1000, ("m/a", "rounding"): 24}
    assert (snapshot.in_use_bytes, snapshot.pool_bytes, snapshot.capacity_bytes) == (
        1024,
        4 * KIB,
        None,
    )
    assert made.map({}).owner.tolist() == [0, -1]
    assert inside is not None and inside.in_use_bytes == 1024


def test_the_map_of_the_peak_has_the_ledger_of_the_peak() -> None:
    # GIVEN a step that writes a variable's new value to another chunk, and reaches its peak after
    # the old one is freed
    step = Traced((BASE, 64 * KIB))
    old = step.allocate(5000)
    start = step.map()
    new = step.allocate(5000)
    assert old is not None and new is not None
    step.free(old)
    step.allocate(9000)
    part = between_maps(step.events.trace(), start, step.map())
    variable = VariableFact("w", "weights", "m/a", True, 5000, "GPU:0", old, new)
    made = attributed(part, TraceFacts(variables=(variable,)))
    ledger = post_mortem(OomEvent("1", "failed", "GPU:0", 0.0), made.map({})).ledger
    # THEN its weights are the variable's bytes, and every row of both ledgers is the same
    assert [row.bytes for row in ledger if row.category == "weights"] == [5000]
    assert set(ledger) == set(made.snapshot.ledger)
    # AND the chunk is the variable's only once the old value is gone
    before = made.map({}, 0)
    weights = before.owner == before.owners.index(ChunkOwner("m/a", "weights", True))
    assert before.address[weights].tolist() == [old]
    # AND in the requests, which know one owner of each chunk, both are the variable's
    requests = made.requests(first=False, batch_size=None)
    assert requests is not None
    owners = [requests.owners[number] for number in requests.owner.tolist()]
    assert [
        requests.address[row] for row, owner in enumerate(owners) if owner.category == "weights"
    ] == [new, old]


def test_a_chunk_of_the_same_bytes_but_another_request_is_not_the_end() -> None:
    # GIVEN a chunk that is freed after the end map and allocated again for a smaller request
    step = Traced((BASE, 4 * KIB))
    start = step.map()
    address = step.allocate(1000)
    end = step.map()
    assert address is not None
    step.free(address)
    assert step.allocate(900) == address
    part = between_maps(step.events.trace(), start, end)
    assert len(part) == 1
    assert complete(TraceReplay(part, 0).check)


def test_allocations_at_other_addresses_and_chunks_that_differ_at_the_end_are_counted() -> None:
    # GIVEN a step whose second request got the higher of two free chunks of equal size
    step = Traced((BASE, 512), (BASE + 4096, 512), (BASE + 8192, 512))
    start = step.map()
    step.allocate(300)
    taken = step.allocator.regions[BASE + 8192][0]
    taken.requested = 400
    step.events.event(1, BASE + 8192, 400, "op", "output", allocated=512)
    part = between_maps(step.events.trace(), start, step.map())
    replay = TraceReplay(part, 1)
    assert replay.check == Replay(
        addresses=1, of_addresses=2, chunks=3, of_chunks=3, peak_bytes=1024
    )
    trace, start, end = step_with_neighbors()
    part = between_maps(trace, start, end)
    size = end.bytes.copy()
    size[-1] -= 256
    replay = TraceReplay(
        dataclasses.replace(part, end_map=dataclasses.replace(end, bytes=size)), 0
    ).check
    assert replay.addresses == replay.of_addresses
    assert (replay.chunks, replay.of_chunks) == (len(end) - 1, len(end) + 1)


def as_listed(memory_map: MemoryMap) -> MemoryMap:
    """The map as in a dump, which does not list regions: adjacent ones are one unless free chunks
    meet."""
    used = memory_map.state == IN_USE
    begins = np.ones(len(memory_map), bool)
    begins[1:] = (memory_map.address[:-1] + memory_map.bytes[:-1] != memory_map.address[1:]) | ~(
        used[:-1] | used[1:]
    )
    region = np.cumsum(begins) - 1
    sizes = np.bincount(region, weights=memory_map.bytes).astype(np.int64)
    address = memory_map.address[begins]
    return dataclasses.replace(
        memory_map, region=region, region_address=address, region_bytes=sizes
    )


FAR, FARTHER = BASE + (1 << 20), BASE + (1 << 24)


@pytest.mark.parametrize(
    ("regions", "before", "within", "bordered", "grown"),
    [
        (
            [(BASE, 2)],
            [],
            [1500, (FAR, 4), 3000, (FARTHER, 8), 8000],
            (1, 3),
            [(FAR, 4), (FARTHER, 8)],
        ),
        # A pool that grows twice, downwards and without a gap, in a map that shows no border
        # between the regions
        (
            [(BASE, 2)],
            [],
            [1500, (FAR, 4), 3072, (FAR - 8192, 8), 5120],
            (1, 2),
            [(FAR, 4), (FAR - 8192, 8)],
        ),
        ([(BASE, 2)], [1500], [(BASE + 2048, 4), 3000], (1, 1), [(BASE + 2048, 4)]),  # a neighbor
        # Two neighboring regions that are full when the step begins: their chunks do not merge when
        # they become free
        ([(BASE, 2), (BASE + 2048, 2)], [1500, 1500], [-1, -1, 700, 200], (1, 2), []),
        # returned
        (
            [(BASE, 2), (FAR, 4)],
            [1500, 4000],
            [-2, (FAR, 0), (FARTHER, 8), 8000],
            (2, 2),
            [(FARTHER, 8)],
        ),
    ],
)
def test_regions_that_come_and_go_are_taken_from_the_end_map(
    regions, before, within, bordered, grown
) -> None:
    step = Traced(*((address, size * KIB) for address, size in regions))

    def act(actions: list[Any]) -> MemoryMap:
        """Allocate some bytes, free the n-th of the live chunks (-n), grow by a region, or return
        one (of 0 KiB)."""
        for action in actions:
            if isinstance(action, tuple) and action[1]:
                step.allocator.grow(action[0], action[1] * KIB)
            elif isinstance(action, tuple):
                del step.allocator.regions[action[0]]
            elif action < 0:
                step.free(step.live[-1 - action])
            else:
                assert step.allocate(action) is not None
        return as_listed(step.map())

    start, end = act(before), act(within)
    assert (len(start.region_address), len(end.region_address)) == bordered
    part = between_maps(step.events.trace(), start, end)
    replay = TraceReplay(part, len(part) - 1)
    assert complete(replay.check)
    assert replay.grown == [(address, size * KIB) for address, size in grown]
    assert replay.map.pool_bytes == end.pool_bytes
    # AND at its first event, the pool has none of the regions that it grows by later
    assert set(TraceReplay(part, 0).map.region_address.tolist()) >= set(
        start.region_address.tolist()
    )


@given(STEPS, STEPS, STEPS)
def test_any_step_is_found_and_replays(before, inside, after):
    step = Traced((BASE, 24 * KIB), (BASE + (1 << 20), 40 * KIB))
    step.run(before)
    start, first = step.map(), len(step.events.rows)
    step.run(inside)
    end, last = step.map(), len(step.events.rows)
    step.run(after)
    if not step.events.rows:
        return
    trace = step.events.trace()
    part = between_maps(trace, start, end)
    # THEN it has the step's events, and others only if they lead back to the same chunks
    assert part.start_map is start
    assert first == last or (
        part.time_ps[0] <= trace.time_ps[first] and part.time_ps[-1] >= trace.time_ps[last - 1]
    )
    if first == last:
        return
    replay = TraceReplay(part, len(part) - 1)
    assert complete(replay.check)
    assert replay.check.peak_bytes == max(part.start_in_use, int(part.in_use.max()))
    assert replay.map.bytes.tolist() == end.bytes.tolist()
