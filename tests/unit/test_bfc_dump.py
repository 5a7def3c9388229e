"""Memory dumps encoded by hand: whole, truncated at every byte, empty, foreign."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_memplugin.errors import FormatError
from tb_memplugin.importers.bfc_dump import looks_like_dump, read_dump
from tb_memplugin.model import FREE, IN_USE

CHUNKS = [(0x1000, 512, 300, True), (0x1200, 256, 0, False), (0x9000, 1024, 1000, True), (0x9400, 4096, 0, False)]


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def make_dump(name: bytes = b"GPU_0_bfc", in_use: int = 1536) -> bytes:
    """Field numbers of tsl/protobuf/bfc_memory_map.proto."""
    bins = field(2, field(2, 1536) + field(3, 5888) + field(4, 2) + field(5, 4))
    chunks = b"".join(
        field(3, field(1, address) + field(2, size) + field(3, requested) + field(8, int(used)))
        for address, size, requested, used in CHUNKS
    )
    return field(1, name) + bins + chunks + field(5, field(1, 7) + field(2, in_use))


def test_a_whole_dump_is_its_chunks_in_their_regions() -> None:
    taken = read_dump(make_dump(), 12.5, 8192)
    assert taken.device == "GPU:0" and taken.complete and taken.not_available == ()
    assert taken.address.tolist() == [address for address, *_ in CHUNKS]
    assert taken.bytes.tolist() == [size for _, size, *_ in CHUNKS]
    assert taken.state.tolist() == [IN_USE, FREE, IN_USE, FREE]
    assert taken.requested_bytes.tolist()[0::2] == [300, 1000]
    assert taken.region_bytes.tolist() == [768, 5120]
    assert (taken.in_use_bytes, taken.pool_bytes, taken.capacity_bytes) == (1536, 5888, 8192)


def test_a_dump_of_another_allocator_keeps_its_name() -> None:
    assert read_dump(make_dump(b"gpu_host_bfc"), 0.0).device == "gpu_host_bfc"


def test_a_dump_cut_anywhere_gives_what_it_has_or_a_format_error() -> None:
    whole = make_dump()
    for length in range(len(whole)):
        try:
            taken = read_dump(whole[:length], 0.0)
        except FormatError:
            continue
        assert not taken.complete and "ends early" in taken.not_available[0]
        assert taken.address.tolist() == [address for address, *_ in CHUNKS][: len(taken)]


def test_a_dump_that_contradicts_itself_says_so() -> None:
    taken = read_dump(make_dump(in_use=99), 0.0)
    assert not taken.complete and "does not hold together" in taken.not_available[0]


@given(st.binary(max_size=200))
def test_any_bytes_give_a_map_or_a_format_error(data: bytes) -> None:
    try:
        read_dump(data, 0.0)
    except FormatError as error:
        assert str(len(data)) in str(error) or "hold together" in str(error)


def test_overlapping_chunks_are_refused() -> None:
    chunk = field(3, field(1, 0x1000) + field(2, 512) + field(8, 1))
    with pytest.raises(FormatError, match="does not hold together"):
        read_dump(field(1, b"x") + chunk + chunk, 0.0)


def test_dumps_are_known_by_their_beginning() -> None:
    assert looks_like_dump(make_dump())
    assert not looks_like_dump(b"") and not looks_like_dump(b"2020-01-01 some log") and not looks_like_dump(b"\n\n\n\n")
