"""Memory dumps encoded by hand: regions, whole and truncated at every byte, empty, foreign, impossible."""

import pytest
from dump_cases import CHUNKS, make_dump
from hypothesis import given
from hypothesis import strategies as st

from tb_memplugin.errors import FormatError
from tb_memplugin.importers import looks_like_dump, memory_dump, read_dump
from tb_memplugin.schema import FREE, IN_USE, MISSING

USED, UNUSED = True, False


def test_complete_dump_has_its_chunks_in_their_regions() -> None:
    memory_map = read_dump(make_dump(), 12.5, 8192)
    assert memory_map.device == "GPU:0" and memory_map.complete and memory_map.not_available == ()
    assert memory_map.address.tolist() == [address for address, *_ in CHUNKS]
    assert memory_map.bytes.tolist() == [size for _, size, *_ in CHUNKS]
    assert memory_map.state.tolist() == [IN_USE, FREE, IN_USE, FREE]
    assert memory_map.requested_bytes.tolist()[0::2] == [300, 1000]
    assert memory_map.region_bytes.tolist() == [768, 5120]
    assert (memory_map.in_use_bytes, memory_map.pool_bytes, memory_map.capacity_bytes) == (1536, 5888, 8192)
    assert read_dump(make_dump(b"gpu_host_bfc"), 0.0).device == "gpu_host_bfc"


def test_regions_end_where_chunks_are_not_adjacent_or_two_free_ones_meet_and_are_sorted() -> None:
    rows = [
        *((4096, 256, 255, USED), (4352, 256, 0, UNUSED), (0, 256, 200, USED), (256, 256, 0, UNUSED)),
        *((512, 256, 0, UNUSED), (768, 256, 7, USED), (2048, 256, 0, UNUSED)),
    ]
    found = read_dump(make_dump(listed=rows), 0.0)
    assert found.region_address.tolist() == [0, 512, 2048, 4096]
    assert found.region_bytes.tolist() == [512, 512, 256, 512] and found.region.tolist() == [0, 0, 1, 1, 2, 3, 3]
    assert found.address.tolist() == sorted(row[0] for row in rows)
    assert found.requested_bytes.tolist() == [200, MISSING, MISSING, 7, MISSING, 255, MISSING]


@pytest.mark.parametrize(
    "wrong",
    [
        [(0, 512, 1, USED), (256, 256, 1, USED)],  # overlap
        [(512, 256, 1, USED), (0, 768, 1, USED)],
        [(0, 0, 1, USED)],
        [(0, 1 << 63, 1, USED)],
        [(1 << 63, 256, 1, USED)],
        [(1 << 62, 256, 1, USED)],
        [((1 << 62) - 256, 512, 1, USED)],
    ],
)
def test_chunks_that_cannot_be_are_refused(wrong: list[tuple[int, int, int, bool]]) -> None:
    with pytest.raises(FormatError, match="the chunks are inconsistent"):
        read_dump(make_dump(listed=wrong), 0.0)


def test_too_many_chunks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_dump, "MAX_CHUNKS", 3)
    with pytest.raises(FormatError, match="the list has 4 chunks; at most 3 are supported"):
        read_dump(make_dump(), 0.0)


def test_truncated_dump_gives_its_first_chunks_or_a_format_error() -> None:
    whole = make_dump()
    for length in range(len(whole)):
        try:
            memory_map = read_dump(whole[:length], 0.0)
        except FormatError:
            continue
        assert not memory_map.complete and "ends early" in memory_map.not_available[0]
        assert memory_map.address.tolist() == [address for address, *_ in CHUNKS][: len(memory_map)]


def test_inconsistent_dump_has_a_note() -> None:
    memory_map = read_dump(make_dump(in_use=99), 0.0)
    assert not memory_map.complete and "is inconsistent" in memory_map.not_available[0]


@given(st.binary(max_size=200))
def test_any_bytes_give_a_map_or_a_format_error(data: bytes) -> None:
    try:
        read_dump(data, 0.0)
    except FormatError as error:
        assert str(len(data)) in str(error) or "are inconsistent" in str(error)


def test_dumps_are_recognized_by_their_first_bytes() -> None:
    assert looks_like_dump(make_dump())
    assert not looks_like_dump(b"") and not looks_like_dump(b"2020-01-01 some log") and not looks_like_dump(b"\n\n\n\n")
