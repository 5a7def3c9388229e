"""The simulator: its rules one by one, and any sequence of calls against a plain implementation."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from map_cases import MIB, PlainAllocator, free_regions, memory_map

from tb_memplugin.allocator.rules import PoolRules, chunk_after_split
from tb_memplugin.allocator.simulator import Simulator
from tb_memplugin.schema import IN_USE, MISSING

KIB = 1024
BASE = 0x7F00_0000_0040
SIZES = st.one_of(st.integers(0, 700), st.integers(1, 40_000), st.sampled_from([256, 512, 1024, 4096]))
STEPS = st.lists(st.tuples(st.booleans(), SIZES, st.integers(0, 1000)), max_size=80)
"""Whether to allocate, what to request, which chunk to free."""


@pytest.mark.parametrize(
    ("chunk", "rounded", "given_bytes"),
    [
        (1024, 512, 512),
        (1024 - 256, 512, 1024 - 256),
        (300 * MIB, 172 * MIB, 172 * MIB),  # 128 MiB would be left over
        (300 * MIB - 256, 172 * MIB, 300 * MIB - 256),
    ],
)
def test_chunk_is_split_if_the_remainder_is_half_of_it_or_128_mib(chunk: int, rounded: int, given_bytes: int) -> None:
    assert chunk_after_split(chunk, rounded) == given_bytes
    simulator = Simulator(free_regions((BASE, chunk)))
    assert simulator.allocate(BASE, rounded)
    assert simulator.in_use_bytes == given_bytes
    rest = [] if given_bytes == chunk else [(BASE + given_bytes, chunk - given_bytes, MISSING)]
    assert simulator.chunks() == [(BASE, given_bytes, rounded), *rest]


def test_impossible_calls_change_nothing() -> None:
    simulator = Simulator(memory_map([(0, 256, 7), (256, 768, MISSING)], [(0, 1024)]))
    before = simulator.chunks()
    assert not simulator.allocate(0, 1)  # in use
    assert not simulator.allocate(512, 1)  # no chunk begins there
    assert not simulator.allocate(256, 100, 1024)  # larger than the free chunk
    assert not simulator.free(256)  # free
    assert not simulator.free(640)
    assert not simulator.remove_region(0, 1024)  # in use
    assert simulator.chunks() == before and simulator.in_use_bytes == 256


def test_an_allocation_can_be_made_as_it_was_recorded() -> None:
    simulator = Simulator(free_regions((0, 4096)))
    assert simulator.allocate(0, 100, 1024)
    assert simulator.chunks() == [(0, 1024, 100), (1024, 3072, MISSING)]


@given(STEPS, st.lists(st.integers(4, 200), min_size=1, max_size=4))
def test_any_sequence_matches_a_plain_allocator(steps: list[tuple[bool, int, int]], units: list[int]) -> None:
    # GIVEN neighboring regions
    ends = list(itertools.accumulate((256 * unit for unit in units), initial=BASE))
    regions = list(zip(ends[:-1], (256 * unit for unit in units), strict=True))
    plain, simulator = PlainAllocator(*regions), Simulator(free_regions(*regions))
    live: list[int] = []
    peak = 0
    for allocates, requested, number in steps:
        if allocates:
            expected = plain.allocate(requested)
            chosen = simulator.choose(requested)
            assert chosen == (None if expected is None else expected[0])
            if chosen is not None:
                assert simulator.allocate(chosen, requested)
                live.append(chosen)
        elif live:
            address = live.pop(number % len(live))
            plain.free(address)
            assert simulator.free(address)
        # THEN both have the same chunks
        chunks = simulator.chunks()
        assert chunks == plain.rows()
        in_use = sum(size for _, size, asked in chunks if asked != MISSING)
        peak = max(peak, in_use)
        assert (simulator.in_use_bytes, simulator.peak_bytes) == (in_use, peak)
        # AND the map says the same: chunks tile the regions, and no two neighbors in a region are free
        taken = simulator.map(free_regions(*regions))
        assert taken.in_use_bytes == in_use and taken.pool_bytes == 256 * sum(units)
        for region, (address, size) in enumerate(regions):
            rows = np.flatnonzero(taken.region == region)
            assert taken.address[rows].tolist() == [
                address + offset for offset in itertools.accumulate(taken.bytes[rows][:-1].tolist(), initial=0)
            ]
            assert int(taken.bytes[rows].sum()) == size
            used = taken.state[rows] == IN_USE
            assert (used[:-1] | used[1:]).all()


@given(STEPS, STEPS)
def test_simulator_continues_from_its_own_map(
    before: list[tuple[bool, int, int]], after: list[tuple[bool, int, int]]
) -> None:
    regions = [(BASE, 40 * KIB), (BASE + (1 << 30), 24 * KIB)]
    simulator = Simulator(free_regions(*regions))
    live: list[int] = []

    def run(steps: list[tuple[bool, int, int]], *simulators: Simulator) -> None:
        for allocates, requested, number in steps:
            if allocates:
                (chosen,) = {one.choose(requested) for one in simulators}
                if chosen is not None:
                    assert all(one.allocate(chosen, requested) for one in simulators)
                    live.append(chosen)
            elif live:
                address = live.pop(number % len(live))
                assert all(one.free(address) for one in simulators)

    run(before, simulator)
    taken = simulator.map(free_regions(*regions))
    other = Simulator(taken)
    run(after, simulator, other)
    assert other.chunks() == simulator.chunks()


def test_free_bytes_count_what_the_pool_may_still_reserve() -> None:
    sizes, used = (4 * MIB, 2 * MIB, MIB, 3 * MIB), (True, False, True, False)
    places = itertools.accumulate(sizes, initial=0)
    rows = [(at, size, size if is_used else MISSING) for at, size, is_used in zip(places, sizes, used, strict=False)]
    start = memory_map(rows, [(0, 10 * MIB)])
    fixed = Simulator(start)
    assert (fixed.free_bytes, fixed.largest_free_bytes) == (5 * MIB, 3 * MIB)
    growing = Simulator(start, PoolRules(16 * MIB))
    assert (growing.free_bytes, growing.largest_free_bytes) == (11 * MIB, 3 * MIB)
    assert growing.request(3 * MIB) is not None
    assert (growing.free_bytes, growing.largest_free_bytes) == (8 * MIB, 2 * MIB)


@pytest.mark.parametrize("descends", [True, False])
def test_a_pool_near_the_lowest_address_grows_like_any_other(descends: bool) -> None:
    # GIVEN a region at an address below the size of the next one, as from a heap of a program without random addresses
    rules = PoolRules(64 * MIB, descends=descends)
    simulator = Simulator(free_regions((4 * MIB, 2 * MIB)), rules)
    addresses = [simulator.request(size) for size in (2 * MIB, 16 * MIB, 16 * MIB, 16 * MIB)]
    assert None not in addresses
    # AND a chunk of exactly the size is found there again
    simulator.free(addresses[1] or 0)
    assert simulator.request(16 * MIB) == addresses[1] and simulator.request(16 * MIB) is None
