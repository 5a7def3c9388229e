"""What lies between the stretches of addresses that a trace proves, on steps made by hand."""

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from reading_cases import MIB, START

from tb_memplugin.analysis.allocator_map import allocator_map
from tb_memplugin.analysis.seen_step import SeenStep
from tb_memplugin.model import IN_USE, UNKNOWN_STATE, AllocatorMap, ChunkOwner

BASE = 0x7F00_0000_0000
OWNERS = (ChunkOwner("model/a", "activations", None),)


def seen_of(chunks: list[tuple[int, int, int]]) -> SeenStep:
    """A step of one event with chunks (offset, bytes, birth), that all stay."""
    address, size, birth = (np.asarray(column, np.int64) for column in zip(*chunks, strict=True))
    count = len(chunks)
    return SeenStep(
        step=3,
        phase="train",
        address=BASE + address,
        allocated=size,
        requested=size,
        birth=birth,
        death=np.full(count, 1),
        owner=np.zeros(count, np.int64),
        owners=OWNERS,
        events=1,
        ops={},
    )


def map_of(
    chunks: list[tuple[int, int, int]], pool: int | None, limit: int = 64 * MIB, in_use: int = 0
) -> AllocatorMap:
    used = in_use or sum(size for _, size, _ in chunks)
    return allocator_map(
        seen_of(chunks),
        0,
        device="CPU:0",
        wall_time=START,
        in_use_bytes=used,
        pool_bytes=pool,
        capacity_bytes=limit,
        ages={},
    )


def regions(taken: AllocatorMap) -> list[tuple[int, int]]:
    """(offset, bytes) of each."""
    return list(zip((taken.region_address - BASE).tolist(), taken.region_bytes.tolist(), strict=True))


def test_a_gap_that_the_free_bytes_allow_may_lie_inside_of_a_region() -> None:
    taken = map_of([(0, MIB, 0), (2 * MIB, MIB, 0)], 64 * MIB)
    assert regions(taken) == [(0, 3 * MIB)] and taken.state.tolist() == [IN_USE, UNKNOWN_STATE, IN_USE]


def test_no_region_is_longer_than_the_rule_of_growth_allows() -> None:
    # GIVEN a pool of 2, 4 and 8 MiB, with chunks 9 MiB apart and some closer together
    taken = map_of([(0, MIB, 0), (2 * MIB, MIB, 0), (12 * MIB, MIB, 0)], 14 * MIB)
    assert regions(taken) == [(0, 3 * MIB), (12 * MIB, MIB)]


def test_the_widest_gaps_lie_between_regions_where_not_all_fit() -> None:
    taken = map_of([(0, MIB, 0), (3 * MIB, MIB, 0), (5 * MIB, MIB, 0)], 5 * MIB)
    assert regions(taken) == [(0, MIB), (3 * MIB, 3 * MIB)]


def test_chunks_of_one_region_are_whole_multiples_of_256_bytes_apart() -> None:
    taken = map_of([(0, MIB, 0), (2 * MIB + 64, MIB, 0)], 64 * MIB)
    assert regions(taken) == [(0, MIB), (2 * MIB + 64, MIB)]


def test_what_begins_as_a_region_of_the_cpus_does_is_one() -> None:
    # GIVEN chunks 64 bytes behind the begin of a page, where malloc lets large blocks begin
    for gap, joined in ((4096, False), (9 * MIB, False), (2048, True)):
        taken = map_of([(64, 4 * MIB, 0), (64 + 4 * MIB + gap, MIB, 0)], 64 * MIB)
        assert (len(regions(taken)) == 1) == joined


def test_a_tensor_that_lies_outside_of_the_pool_is_not_drawn() -> None:
    # GIVEN a value from before the window at an address that no region's chunks can have
    taken = map_of([(0, MIB, 0), (-40 * MIB + 128, 256, -1), (MIB, 512, -1)], 64 * MIB, in_use=2 * MIB)
    assert (taken.address - BASE).tolist() == [0, MIB]
    assert any("in use is not available" in sentence for sentence in taken.not_available)


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 40)), min_size=1, max_size=40),
    st.integers(0, 2000),
    st.booleans(),
)
def test_regions_never_hold_more_than_the_pool(pieces: list[tuple[int, int]], free: int, known: bool) -> None:
    chunks, at = [], 0
    for size, gap in pieces:
        chunks.append((at, 256 * size, 0))
        at += 256 * (size + gap)
    used = sum(size for _, size, _ in chunks)
    taken = map_of(chunks, used + 256 * free if known else None, limit=used + 256 * free)
    assert int(taken.region_bytes.sum()) <= used + 256 * free
    assert int(taken.bytes.sum()) == int(taken.region_bytes.sum())
    assert int(taken.bytes[taken.state == IN_USE].sum()) >= used if known and not free else True
    assert dataclasses.asdict(taken)["in_use_bytes"] == used
