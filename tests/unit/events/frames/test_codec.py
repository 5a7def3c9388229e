"""Frames: encoding round trips, and decoding of any other bytes raises FormatError only."""

import contextlib
import json
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from reading_cases import equal

from tb_memplugin.errors import FormatError, NewerFormatError
from tb_memplugin.events.frames import codec
from tb_memplugin.events.frames.codec import Frame, FrameHead
from tb_memplugin.events.frames.column_codec import MAX_STRING_CHARACTERS

HEADER_BYTES = 40
int_columns = hnp.arrays(np.int64, 5)
float_columns = hnp.arrays(np.float64, 5, elements=st.floats(allow_nan=False, allow_infinity=False))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
string_columns = st.lists(st.none() | texts, min_size=5, max_size=5).map(tuple)
tables = st.dictionaries(
    texts, st.dictionaries(texts, int_columns | float_columns | string_columns, max_size=4), max_size=3
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=5,
)
steps = st.integers(-(2**63), 2**63 - 1)


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    return Frame(
        stream=draw(st.integers(0, 65535)),
        sequence=draw(st.integers(0, 2**32 - 1)),
        first_step=draw(steps),
        last_step=draw(steps),
        rows=draw(st.integers(0, 2**32 - 1)),
        attributes=draw(st.dictionaries(texts, json_values, max_size=3)),
        tables=draw(tables),
    )


SMALL = Frame(
    1, 2, 3, 4, 2, {"a": 1}, {"t": {"i": np.asarray([1, 2**40]), "f": np.asarray([0.5, -1.0]), "s": ("x", None)}}
)


def sealed(body: bytes, *, version: int = codec.FORMAT_VERSION, stated: int | None = None) -> bytes:
    """A frame with a right checksum around any inflated body."""
    packed = zlib.compress(body)
    size = len(body) if stated is None else stated
    header = struct.pack("<4sHHIIqqII", codec.MAGIC, version, 0, 0, 0, 0, 0, 0, size)
    return header[:8] + struct.pack("<I", zlib.crc32(header[4:8] + header[12:] + packed)) + header[12:] + packed


def with_head(head: object, rest: bytes = b"") -> bytes:
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return sealed(struct.pack("<I", len(text)) + text + rest)


@given(frames())
def test_a_frame_is_read_back_as_it_was_written(frame: Frame) -> None:
    assert equal(codec.decode(codec.encode(frame)), frame)


@given(frames())
def test_encoding_is_deterministic(frame: Frame) -> None:
    assert codec.encode(frame) == codec.encode(frame)


def test_every_flipped_bit_is_noticed() -> None:
    data = codec.encode(SMALL)
    for at in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[at] ^= 1 << bit
            with pytest.raises(FormatError):
                codec.decode(bytes(damaged))


def test_every_truncation_is_noticed() -> None:
    data = codec.encode(SMALL)
    for length in range(len(data)):
        with pytest.raises(FormatError):
            codec.decode(data[:length])


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=40), st.integers(0, 2**40))
def test_integers_of_every_size_are_read_back(values: list[int], base: int) -> None:
    column = np.asarray(values, np.int64)
    near = base + np.abs(column) % 1000
    frame = Frame(0, 0, 0, 0, len(values), {}, {"table": {"any": column, "near": near}})
    table = codec.decode(codec.encode(frame)).tables["table"]
    np.testing.assert_array_equal(table["any"], column)
    np.testing.assert_array_equal(table["near"], near)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_format_error(data: bytes) -> None:
    with pytest.raises(FormatError):
        codec.decode(data)


@settings(max_examples=300)
@given(st.binary(max_size=300))
def test_any_body_with_a_valid_checksum_gives_a_frame_or_a_format_error(body: bytes) -> None:
    with contextlib.suppress(FormatError):
        assert isinstance(codec.decode(sealed(body)), Frame)


@settings(max_examples=300)
@given(
    st.fixed_dictionaries(
        {
            "attributes": st.dictionaries(texts, json_values, max_size=2) | json_values,
            "strings": st.lists(texts) | json_values,
            "tables": st.dictionaries(
                texts,
                st.lists(st.tuples(texts, st.sampled_from("ifsx"), st.integers(-2, 2**62))) | json_values,
                max_size=2,
            ),
        }
    ),
    st.binary(max_size=64),
)
def test_any_head_with_a_valid_checksum_gives_a_frame_or_a_format_error(head: object, rest: bytes) -> None:
    with contextlib.suppress(FormatError):
        assert isinstance(codec.decode(with_head(head, rest)), Frame)


@pytest.mark.parametrize(
    "head",
    [
        b"\xff\xfe",
        b"[" * 100_000,
        b"NaN",
        b'{"attributes":{"a":Infinity},"strings":[],"tables":{}}',
        b"1" * 5_000,
        b"[]",
        {"attributes": {}, "strings": [], "tables": {"t": [["c", "i", 2**62]]}},
        {"attributes": {}, "strings": [], "tables": {"t": [["c", "i", True]]}},
        {"attributes": {}, "strings": ["x" * 5_000], "tables": {}},
        {"attributes": {}, "strings": [], "tables": {"t": "no list"}},
    ],
)
def test_inconsistent_heads_are_refused(head: object) -> None:
    with pytest.raises(FormatError):
        codec.decode(with_head(head))


def test_a_body_larger_than_its_stated_size_is_refused_without_inflating_it() -> None:
    # GIVEN a frame that states a small body, and packs 60 MB of zeros
    data = sealed(bytes(60_000_000), stated=1_000)
    # THEN it is refused
    with pytest.raises(FormatError, match="header states"):
        codec.decode(data)


def test_a_body_over_the_limit_is_refused_by_its_stated_size() -> None:
    with pytest.raises(FormatError, match="over the limit"):
        codec.decode(sealed(b"", stated=codec.MAX_BODY_BYTES + 1))


def test_a_frame_over_the_limit_is_refused() -> None:
    with pytest.raises(FormatError, match="over the limit"):
        codec.decode(bytes(codec.MAX_FRAME_BYTES + 1))


@given(frames())
def test_a_head_equals_that_of_the_whole_frame(frame: Frame) -> None:
    head = codec.decode_head(codec.encode(frame))
    assert (head.stream, head.sequence, head.rows) == (frame.stream, frame.sequence, frame.rows)
    assert (head.first_step, head.last_step) == (frame.first_step, frame.last_step)
    columns = [column for table in frame.tables.values() for column in table.values() if isinstance(column, tuple)]
    assert set(head.strings) == {text for column in columns for text in column if text is not None}


@given(st.binary(max_size=100))
def test_the_head_of_any_bytes_is_a_head_or_a_format_error(body: bytes) -> None:
    for data in (body, sealed(body), with_head(body)):
        with contextlib.suppress(FormatError):
            assert isinstance(codec.decode_head(data), FrameHead)


def test_a_newer_format_is_not_reported_as_damage() -> None:
    with pytest.raises(NewerFormatError, match=rf"format {codec.FORMAT_VERSION + 1}.*upgrade"):
        codec.decode(sealed(b"whatever comes then", version=codec.FORMAT_VERSION + 1))


def test_numbers_that_are_not_finite_are_refused_on_both_sides() -> None:
    # GIVEN a float column with a NaN
    column = np.asarray([1.0, np.nan])
    # THEN it is neither written
    with pytest.raises(FormatError, match="not finite"):
        codec.encode(Frame(0, 0, 0, 0, 2, {}, {"t": {"c": column}}))
    # AND nor read
    head = {"attributes": {}, "strings": [], "tables": {"t": [["c", "f", 2]]}}
    with pytest.raises(FormatError, match="not finite"):
        codec.decode(with_head(head, column.tobytes()))


def test_a_string_index_out_of_range_is_refused() -> None:
    head = {"attributes": {}, "strings": ["only"], "tables": {"t": [["c", "s", 1]]}}
    with pytest.raises(FormatError, match="string 1 of 1"):
        codec.decode(with_head(head, struct.pack("<q", 1)))


def test_columns_of_different_lengths_are_not_written() -> None:
    with pytest.raises(FormatError, match="different lengths"):
        codec.encode(Frame(0, 0, 0, 0, 2, {}, {"t": {"a": np.arange(2), "b": np.arange(3)}}))


def test_long_strings_are_shortened_rather_than_refused() -> None:
    data = codec.encode(Frame(0, 0, 0, 0, 1, {}, {"t": {"c": ["x" * 1_000_000]}}))
    (text,) = codec.decode(data).tables["t"]["c"]
    assert len(text) == MAX_STRING_CHARACTERS and text.endswith("…")


def test_bodies_that_are_not_as_stated_are_refused() -> None:
    # GIVEN bodies under right checksums: whole, cut inside, without a zlib header, with bytes behind
    frame = codec.encode(SMALL)
    header, packed = frame[:40], frame[40:]
    bodies = {"whole": packed, "cut": packed[:-12], "headless": packed[2:], "empty": b"", "longer": packed + b"x"}
    for name, body in bodies.items():
        rest = header[12:] + body
        data = header[:8] + struct.pack("<I", zlib.crc32(header[4:8] + rest)) + rest
        try:
            codec.decode(data)
            outcome = "read"
        except FormatError:
            outcome = "refused"
        assert outcome == ("read" if name in ("whole", "longer") else "refused"), name
