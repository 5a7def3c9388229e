"""Memory dumps encoded by hand: whole, truncated at every byte, empty, foreign."""

from dump_cases import CHUNKS, make_dump
from hypothesis import given
from hypothesis import strategies as st

from tb_memplugin.errors import FormatError
from tb_memplugin.importers.memory_dump import looks_like_dump, read_dump
from tb_memplugin.schema import FREE, IN_USE


def test_complete_dump_has_its_chunks_in_their_regions() -> None:
    memory_map = read_dump(make_dump(), 12.5, 8192)
    assert memory_map.device == "GPU:0" and memory_map.complete and memory_map.not_available == ()
    assert memory_map.address.tolist() == [address for address, *_ in CHUNKS]
    assert memory_map.bytes.tolist() == [size for _, size, *_ in CHUNKS]
    assert memory_map.state.tolist() == [IN_USE, FREE, IN_USE, FREE]
    assert memory_map.requested_bytes.tolist()[0::2] == [300, 1000]
    assert memory_map.region_bytes.tolist() == [768, 5120]
    assert (memory_map.in_use_bytes, memory_map.pool_bytes, memory_map.capacity_bytes) == (1536, 5888, 8192)


def test_a_dump_of_another_allocator_keeps_its_name() -> None:
    assert read_dump(make_dump(b"gpu_host_bfc"), 0.0).device == "gpu_host_bfc"


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
