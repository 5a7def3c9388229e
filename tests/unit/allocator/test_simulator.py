"""The simulator: its rules one by one, and any sequence of calls against plain readings of the
source."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from map_cases import MIB, PlainAllocator, free_regions, memory_map

from tb_memplugin.allocator import PoolRules, Simulator, rules_of
from tb_memplugin.schema import IN_USE, MISSING

KIB = 1024
BASE = 0x7F00_0000_0040
SIZES = st.one_of(
    st.integers(0, 700), st.integers(1, 40_000), st.sampled_from([256, 512, 1024, 4096])
)
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
def test_chunk_is_split_if_the_remainder_is_half_of_it_or_128_mib(
    chunk: int, rounded: int, given_bytes: int
) -> None:
    simulator = Simulator(free_regions((BASE, chunk)))
    assert simulator.request(rounded) == BASE
    assert simulator.in_use_bytes == given_bytes
    rest = [] if given_bytes == chunk else [(BASE + given_bytes, chunk - given_bytes, MISSING)]
    assert simulator.chunks() == [(BASE, given_bytes, rounded), *rest]


def test_impossible_calls_change_nothing() -> None:
    simulator = Simulator(memory_map([(0, 256, 7), (256, 768, MISSING)], [(0, 1024)]))
    before = simulator.chunks()
    assert not simulator.allocate(0, 1, 256)  # in use
    assert not simulator.allocate(512, 1, 256)  # no chunk begins there
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
def test_any_sequence_matches_a_plain_allocator(
    steps: list[tuple[bool, int, int]], units: list[int]
) -> None:
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
                assert simulator.request(requested) == chosen
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
        # AND the map says the same: chunks tile the regions, and no two neighbors in a region are
        # free
        taken = simulator.map(free_regions(*regions))
        assert taken.in_use_bytes == in_use and taken.pool_bytes == 256 * sum(units)
        for region, (address, size) in enumerate(regions):
            rows = np.flatnonzero(taken.region == region)
            assert taken.address[rows].tolist() == [
                address + offset
                for offset in itertools.accumulate(taken.bytes[rows][:-1].tolist(), initial=0)
            ]
            assert int(taken.bytes[rows].sum()) == size
            used = taken.state[rows] == IN_USE
            assert (used[:-1] | used[1:]).all()
        # AND a simulator goes on from it as this one does
        again = Simulator(taken)
        assert again.chunks() == chunks and again.choose(requested) == simulator.choose(requested)


@given(STEPS, st.lists(st.integers(4, 200), min_size=1, max_size=4), st.booleans())
def test_a_whole_step_is_played_as_a_plain_allocator_does_it(
    steps: list[tuple[bool, int, int]], units: list[int], may_fail: bool
) -> None:
    # GIVEN the entries of a step in neighboring regions, as a plain allocator serves them, maybe
    # until one fails
    ends = list(itertools.accumulate((256 * unit for unit in units), initial=BASE))
    regions = list(zip(ends[:-1], (256 * unit for unit in units), strict=True))
    plain = PlainAllocator(*regions)
    entries: list[int] = []
    requested: list[int] = []
    place: list[int | None] = []
    levels, failed = [0], None
    for allocates, size, number in steps:
        live = [row for row, address in enumerate(place) if address is not None]
        if allocates:
            entries.append(len(place))
            requested.append(size)
            found = plain.allocate(size)
            place.append(None if found is None else found[0])
            failed = len(place) - 1 if found is None and not may_fail else None
        elif live:
            row = live[number % len(live)]
            entries.append(-1 - row)
            plain.free(place[row] or 0)
            place[row] = None
        levels.append(sum(taken for _, taken, asked in plain.rows() if asked != MISSING))
        if failed is not None:
            break
    # WHEN a simulator plays them
    simulator, played = Simulator(free_regions(*regions)), [None] * len(place)
    rounded = [max(256, -(-size // 256) * 256) for size in requested]
    answer = simulator.play(
        entries, requested, rounded, played, range(len(place)) if may_fail else ()
    )
    # THEN both have the same chunks, and the simulator knows where it was highest
    assert simulator.chunks() == plain.rows() and played == place
    assert answer[:2] == (failed, max(levels)) and simulator.in_use_bytes == levels[-1]
    assert (answer[2] < 0) == (max(levels) == 0)


def test_a_row_that_is_left_out_takes_nothing() -> None:
    simulator, place = Simulator(free_regions((BASE, 1024))), [None, None]
    assert simulator.play([0, 1, -1], [-1, 100], [0, 256], place) == (None, 256, 1)
    assert place == [None, BASE]


def test_free_bytes_count_what_the_pool_may_still_reserve() -> None:
    sizes, used = (4 * MIB, 2 * MIB, MIB, 3 * MIB), (True, False, True, False)
    places = itertools.accumulate(sizes, initial=0)
    rows = [
        (at, size, size if is_used else MISSING)
        for at, size, is_used in zip(places, sizes, used, strict=False)
    ]
    start = memory_map(rows, [(0, 10 * MIB)])
    fixed = Simulator(start)
    assert (fixed.free_bytes, fixed.largest_free_bytes) == (5 * MIB, 3 * MIB)
    growing = Simulator(start, PoolRules(16 * MIB))
    assert (growing.free_bytes, growing.largest_free_bytes) == (11 * MIB, 3 * MIB)
    assert growing.request(3 * MIB) is not None
    assert (growing.free_bytes, growing.largest_free_bytes) == (8 * MIB, 2 * MIB)


@pytest.mark.parametrize("descends", [True, False])
def test_a_pool_near_the_lowest_address_grows_like_any_other(descends: bool) -> None:
    # GIVEN a region at an address below the size of the next one, as from a heap of a program
    # without random addresses
    rules = PoolRules(64 * MIB, descends=descends)
    simulator = Simulator(free_regions((4 * MIB, 2 * MIB)), rules)
    addresses = [simulator.request(size) for size in (2 * MIB, 16 * MIB, 16 * MIB, 16 * MIB)]
    assert None not in addresses
    # AND a chunk of exactly the size is found there again
    simulator.free(addresses[1] or 0)
    assert simulator.request(16 * MIB) == addresses[1] and simulator.request(16 * MIB) is None


# --- how the pool grows and gives regions back
# ------------------------------------------------------------------------


EMPTY = free_regions()


def regions(simulator: Simulator) -> list[int]:
    """Their sizes, the first region first: each lies below the ones before it."""
    return simulator.map(EMPTY).region_bytes.tolist()[::-1]


def test_a_pool_that_does_not_grow_has_all_of_the_limit_in_one_region() -> None:
    simulator = Simulator(EMPTY, PoolRules(100 * MIB + 100, grows=False))
    assert simulator.request(1000) is not None
    assert regions(simulator) == [100 * MIB]
    assert simulator.request(100 * MIB) is None


def test_only_a_gpus_pool_returns_free_regions_and_only_if_that_makes_room() -> None:
    def after(rules: PoolRules) -> Simulator:
        simulator = Simulator(EMPTY, rules)
        kept, freed = simulator.request(2 * MIB), simulator.request(4 * MIB)
        assert kept is not None and freed is not None
        simulator.free(freed)
        return simulator

    cpu, gpu = after(PoolRules(8 * MIB)), after(PoolRules(8 * MIB, returns_regions=True))
    assert cpu.request(6 * MIB) is None and regions(cpu) == [2 * MIB, 4 * MIB]
    # 2 of 8 MiB are in use
    assert gpu.request(7 * MIB) is None and regions(gpu) == [2 * MIB, 4 * MIB]
    assert gpu.request(6 * MIB) is not None and sorted(regions(gpu)) == [2 * MIB, 6 * MIB]


@pytest.mark.parametrize("descends", [True, False])
def test_of_equally_large_chunks_in_two_regions_a_request_takes_the_one_at_the_lowest_address(
    descends: bool,
) -> None:
    # GIVEN regions of 2 and 4 MiB, in each of them one chunk of 1 MiB that is free
    simulator = Simulator(EMPTY, PoolRules(1 << 30, descends=descends))
    kept, older = simulator.request(MIB), simulator.request(MIB)
    newer, others = simulator.request(MIB), simulator.request(3 * MIB)
    assert None not in (kept, older, newer, others) and regions(simulator) in (
        [2 * MIB, 4 * MIB],
        [4 * MIB, 2 * MIB],
    )
    for address in (older, newer):
        assert address is not None and simulator.free(address)
    assert simulator.request(MIB) == (newer if descends else older)


def test_a_request_that_fails_changes_nothing() -> None:
    simulator = Simulator(EMPTY, PoolRules(4 * MIB))
    simulator.request(MIB)
    before = (simulator.chunks(), simulator.in_use_bytes, simulator.pool_bytes)
    assert simulator.request(3 * MIB) is None
    assert (simulator.chunks(), simulator.in_use_bytes, simulator.pool_bytes) == before


def test_a_copy_goes_on_independently() -> None:
    simulator = Simulator(EMPTY, PoolRules(1 << 30))
    address = simulator.request(MIB)
    other = simulator.copy()
    assert other.request(MIB) is not None and other.request(9 * MIB) is not None
    assert address is not None and other.free(address)
    assert len(simulator.chunks()) == 2 and simulator.pool_bytes == 2 * MIB
    assert simulator.request(9 * MIB) is not None


@pytest.mark.parametrize(
    ("device", "capacity", "sizes", "expected"),
    [
        ("CPU:0", 1 << 30, [2 * MIB], PoolRules(1 << 30)),
        ("GPU:0", 1 << 30, [1 << 30], PoolRules(1 << 30, grows=False, returns_regions=True)),
        (
            "worker/GPU:1",
            1 << 30,
            [2 * MIB, 4 * MIB],
            PoolRules(1 << 30, returns_regions=True, descends=False),
        ),
        ("CPU:0", 1 << 30, [8 * MIB, 4 * MIB, 2 * MIB], PoolRules(1 << 30)),
        ("CPU:0", 1 << 30, [8 * MIB, 2 * MIB, 4 * MIB], PoolRules(1 << 30)),
        ("GPU:0", None, [2 * MIB], None),
    ],
)
def test_the_rules_follow_from_a_map(device, capacity, sizes, expected):
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    taken = dataclasses.replace(
        free_regions(*zip(starts, sizes, strict=True)), device=device, capacity_bytes=capacity
    )
    assert rules_of(taken) == expected


class PlainPool:
    """`BFCAllocator::Extend`, line by line."""

    def __init__(self, limit: int) -> None:
        self.limit, self.regions, self.wanted = limit, [], min(2 * MIB, limit // 256 * 256)

    def extend(self, rounded: int) -> bool:
        available = (self.limit - sum(self.regions)) // 256 * 256
        if rounded > available:
            return False
        increased = False
        while rounded > self.wanted:
            self.wanted *= 2
            increased = True
        self.regions.append(min(self.wanted, available))
        if not increased:
            self.wanted *= 2
        return True


@given(st.integers(1, 1 << 30), st.lists(st.integers(1, 1 << 22), max_size=30))
def test_regions_are_those_of_a_plain_reading_of_the_source(
    limit: int, requests: list[int]
) -> None:
    plain, simulator = PlainPool(limit), Simulator(EMPTY, PoolRules(limit))
    for units in requests:
        # GIVEN a request that no free chunk can serve, also in a simulator that goes on from the
        # map
        asked = max(256 * units, simulator.largest_free_bytes + 1)
        other = Simulator(simulator.map(EMPTY), PoolRules(limit))
        whole = sum(plain.regions) < limit // 256 * 256  # the limit has not cut the last region
        grown = bool(plain.wanted) and plain.extend(-(-asked // 256) * 256)
        assert (simulator.request(asked) is not None) == grown
        assert regions(simulator) == plain.regions
        if whole:
            assert (other.request(asked) is not None) == grown and regions(other) == plain.regions
