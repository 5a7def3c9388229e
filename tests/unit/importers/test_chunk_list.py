"""A list of chunks becomes a map: regions, what is unknown between chunks, and lists that cannot be."""

import numpy as np
import pytest

from tb_memplugin.errors import FormatError
from tb_memplugin.importers import chunk_list
from tb_memplugin.importers.chunk_list import (
    ChunkColumns,
    ListedChunk,
    ListedRegion,
    Regions,
    columns_of,
    make_map,
    region_of,
    split_regions,
)
from tb_memplugin.schema import FREE, IN_USE, MISSING, UNKNOWN_STATE, MemoryMap

USED, UNUSED = True, False


def chunks(*rows: tuple[int, int, bool]) -> tuple[ListedChunk, ...]:
    return tuple(ListedChunk(*row) for row in rows)


def map_of(regions: Regions) -> MemoryMap:
    unknown = dict.fromkeys(("in_use_bytes", "pool_bytes", "capacity_bytes"))
    return make_map(regions, device="GPU:0", wall_time=0.0, complete=True, not_available=(), **unknown)


def told(found: MemoryMap) -> list[tuple[int, int, int, int]]:
    columns = (found.address, found.bytes, found.state, found.region)
    return list(zip(*(column.tolist() for column in columns), strict=True))


BOTH = chunks((256, 256, USED), (512, 512, UNUSED))


@pytest.mark.parametrize(
    ("address", "size", "unknown"),
    [
        (256, 768, []),
        (0, 1024, [(0, 256)]),  # before the first chunk
        (256, 1024, [(1024, 256)]),  # behind the last one
        (0, 1280, [(0, 256), (1024, 256)]),
    ],
)
def test_parts_of_a_region_without_chunks_are_unknown(address: int, size: int, unknown: list[tuple[int, int]]) -> None:
    found = map_of(columns_of([ListedRegion(BOTH, address, size)]))
    expected = [(256, 256, IN_USE, 0), (512, 512, FREE, 0), *((*gap, UNKNOWN_STATE, 0) for gap in unknown)]
    assert told(found) == sorted(expected)
    assert (found.requested_bytes == MISSING).all()


def test_gaps_belong_to_their_region_and_stand_in_order_of_addresses() -> None:
    regions = [
        ListedRegion(chunks((4096, 256, USED), (4608, 256, USED)), 3840, 1024),
        ListedRegion(chunks((0, 256, USED)), 0, 512),
    ]
    found = map_of(columns_of(regions))
    assert told(found) == [
        (0, 256, IN_USE, 0),
        (256, 256, UNKNOWN_STATE, 0),
        (3840, 256, UNKNOWN_STATE, 1),
        (4096, 256, IN_USE, 1),
        (4352, 256, UNKNOWN_STATE, 1),
        (4608, 256, IN_USE, 1),
    ]
    assert found.region_address.tolist() == [0, 3840] and found.region_bytes.tolist() == [512, 1024]


@pytest.mark.parametrize(
    "wrong",
    [
        chunks((0, 512, USED), (256, 256, USED)),  # overlap
        chunks((512, 256, USED), (0, 256, USED)),  # not in order
        chunks((0, 0, USED)),
        chunks((0, -256, USED)),
        chunks((-256, 256, USED)),
        chunks((0, 2**63, USED)),
        chunks((2**62, 256, USED)),
        chunks((2**62 - 256, 512, USED)),
    ],
)
def test_chunks_that_cannot_be_are_refused(wrong: tuple[ListedChunk, ...]) -> None:
    with pytest.raises(FormatError, match="the chunks are inconsistent"):
        map_of(columns_of([ListedRegion(wrong, 0, 1024)]))


def test_a_chunk_before_its_region_and_regions_that_overlap_are_refused() -> None:
    with pytest.raises(FormatError, match="begins before 0x200"):
        map_of(columns_of([ListedRegion(BOTH, 512, 512)]))
    with pytest.raises(FormatError, match="are inconsistent"):
        map_of(columns_of([ListedRegion(BOTH, 256, 1024), ListedRegion(chunks((1024, 256, USED)), 1024, 256)]))


def listed(*rows: tuple[int, int, bool]) -> ChunkColumns:
    address, size, used = (np.asarray(column) for column in zip(*rows, strict=True))
    return ChunkColumns(address.astype(np.int64), size.astype(np.int64), used.astype(np.bool_), size - 1)


def test_regions_end_where_chunks_are_not_adjacent_or_two_free_ones_meet() -> None:
    found = split_regions(
        listed((0, 256, USED), (256, 256, UNUSED), (512, 256, UNUSED), (768, 256, USED), (2048, 256, UNUSED))
    )
    assert found.first.tolist() == [0, 2, 4]
    assert found.address.tolist() == [0, 512, 2048] and found.bytes.tolist() == [512, 512, 256]


def test_regions_are_sorted_with_their_chunks() -> None:
    found = split_regions(listed((4096, 256, USED), (4352, 256, UNUSED), (0, 512, USED)))
    assert found.address.tolist() == [0, 4096] and found.bytes.tolist() == [512, 512]
    assert found.chunks.address.tolist() == [0, 4096, 4352] and found.first.tolist() == [0, 1]
    assert found.chunks.in_use.tolist() == [True, True, False]
    assert found.chunks.requested_bytes.tolist() == [511, 255, 255]
    assert told(map_of(found)) == [(0, 512, IN_USE, 0), (4096, 256, IN_USE, 1), (4352, 256, FREE, 1)]


def test_too_many_chunks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunk_list, "MAX_CHUNKS", 2)
    assert len(map_of(columns_of([region_of(BOTH)]))) == 2
    with pytest.raises(FormatError, match="the list has 3 chunks; at most 2 are supported"):
        map_of(columns_of([ListedRegion(BOTH, 0, 1024)]))
