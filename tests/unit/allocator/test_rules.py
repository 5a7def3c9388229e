"""Sizes of chunks, and how the pool grows and gives regions back: by rule, and by a plain reading of the source."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from map_cases import MIB, free_regions

from tb_memplugin.allocator.rules import PoolRules, bin_bytes, next_region_bytes, region_for, rounded_bytes, rules_of
from tb_memplugin.allocator.simulator import Simulator
from tb_memplugin.schema import MemoryMap

GROWING = PoolRules(1 << 30)


def empty() -> MemoryMap:
    return free_regions()


def regions(simulator: Simulator) -> list[int]:
    """Their sizes, the first region first: each lies below the ones before it."""
    return simulator.map(empty()).region_bytes.tolist()[::-1]


@pytest.mark.parametrize(
    ("requested", "rounded"), [(0, 256), (1, 256), (256, 256), (257, 512), (128 * MIB - 1, 128 * MIB)]
)
def test_requests_are_rounded_up_to_256_bytes(requested: int, rounded: int) -> None:
    assert rounded_bytes(requested) == rounded


def test_bins_double_and_the_last_one_is_open() -> None:
    sizes = {1: 256, 256: 256, 511: 256, 512: 512, 1000: 512, MIB: MIB, 256 * MIB - 256: 128 * MIB, 1 << 40: 256 * MIB}
    assert {size: bin_bytes(size) for size in sizes} == sizes


def test_a_pool_that_does_not_grow_has_all_of_the_limit_in_one_region() -> None:
    simulator = Simulator(empty(), PoolRules(100 * MIB + 100, grows=False))
    assert simulator.request(1000) is not None
    assert regions(simulator) == [100 * MIB]
    assert simulator.request(100 * MIB) is None


def test_only_a_gpus_pool_returns_free_regions_and_only_if_that_makes_room() -> None:
    def after(rules: PoolRules) -> Simulator:
        simulator = Simulator(empty(), rules)
        kept, freed = simulator.request(2 * MIB), simulator.request(4 * MIB)
        assert kept is not None and freed is not None
        simulator.free(freed)
        return simulator

    cpu, gpu = after(PoolRules(8 * MIB)), after(PoolRules(8 * MIB, returns_regions=True))
    assert cpu.request(6 * MIB) is None and regions(cpu) == [2 * MIB, 4 * MIB]
    assert gpu.request(7 * MIB) is None and regions(gpu) == [2 * MIB, 4 * MIB]  # 2 of 8 MiB are in use
    assert gpu.request(6 * MIB) is not None and sorted(regions(gpu)) == [2 * MIB, 6 * MIB]


@pytest.mark.parametrize("descends", [True, False])
def test_of_equally_large_chunks_in_two_regions_a_request_takes_the_one_at_the_lowest_address(descends: bool) -> None:
    # GIVEN regions of 2 and 4 MiB, in each of them one chunk of 1 MiB that is free
    simulator = Simulator(empty(), PoolRules(1 << 30, descends=descends))
    kept, older = simulator.request(MIB), simulator.request(MIB)
    newer, others = simulator.request(MIB), simulator.request(3 * MIB)
    assert None not in (kept, older, newer, others) and regions(simulator) in ([2 * MIB, 4 * MIB], [4 * MIB, 2 * MIB])
    for address in (older, newer):
        assert address is not None and simulator.free(address)
    assert simulator.request(MIB) == (newer if descends else older)


def test_a_request_that_fails_changes_nothing() -> None:
    simulator = Simulator(empty(), PoolRules(4 * MIB))
    simulator.request(MIB)
    before = (simulator.chunks(), simulator.in_use_bytes, simulator.pool_bytes)
    assert simulator.request(3 * MIB) is None
    assert (simulator.chunks(), simulator.in_use_bytes, simulator.pool_bytes) == before


def test_a_copy_goes_on_independently() -> None:
    simulator = Simulator(empty(), GROWING)
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
        ("worker/GPU:1", 1 << 30, [2 * MIB, 4 * MIB], PoolRules(1 << 30, returns_regions=True, descends=False)),
        ("CPU:0", 1 << 30, [8 * MIB, 4 * MIB, 2 * MIB], PoolRules(1 << 30)),
        ("CPU:0", 1 << 30, [8 * MIB, 2 * MIB, 4 * MIB], PoolRules(1 << 30)),
        ("GPU:0", None, [2 * MIB], None),
    ],
)
def test_the_rules_follow_from_a_map(
    device: str, capacity: int | None, sizes: list[int], expected: PoolRules | None
) -> None:
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    taken = dataclasses.replace(free_regions(*zip(starts, sizes, strict=True)), device=device, capacity_bytes=capacity)
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
def test_regions_are_those_of_a_plain_reading_of_the_source(limit: int, requests: list[int]) -> None:
    plain, rules = PlainPool(limit), PoolRules(limit)
    pool, wanted = 0, rules.first_region_bytes
    for units in requests:
        region = region_for(rules, pool, wanted, 256 * units) if wanted else None
        assert (region is not None) == (bool(plain.wanted) and plain.extend(256 * units))
        if region is not None:
            assert region[0] == plain.regions[-1] and region[1] == plain.wanted
            pool, wanted = pool + region[0], region[1]
            # AND the sizes alone tell the same, unless the limit cut the last one
            if sum(plain.regions) < limit // 256 * 256:
                assert next_region_bytes(rules, plain.regions) == plain.wanted
