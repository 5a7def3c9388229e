"""Frames: what is written is read again, and damaged bytes are refused."""

import contextlib
import json
import struct
import zlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from reading_cases import equal
from tensorboard.compat.proto import summary_pb2

from tb_memplugin.errors import FormatError, NewerFormatError
from tb_memplugin.storage.frames import (
    EVENTS_PER_TAG,
    MAX_STRING_CHARACTERS,
    Frame,
    FrameHead,
    Tag,
    TagRotation,
    codec,
    frame_summary,
    parse_tag,
    run_name,
    summary_metadata,
)

int_columns = hnp.arrays(np.int64, 5)
float_columns = hnp.arrays(np.float64, 5, elements=st.floats(allow_nan=False, allow_infinity=False))
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
string_columns = st.lists(st.none() | texts, min_size=5, max_size=5).map(tuple)
tables = st.dictionaries(
    texts,
    st.dictionaries(texts, int_columns | float_columns | string_columns, max_size=4),
    max_size=3,
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
    1,
    2,
    3,
    4,
    2,
    {"a": 1},
    {"t": {"i": np.asarray([1, 2**40]), "f": np.asarray([0.5, -1.0]), "s": ("x", None)}},
)


def sealed(body: bytes, *, version: int = codec.FORMAT_VERSION, stated: int | None = None) -> bytes:
    """A frame with a right checksum around any inflated body."""
    packed = zlib.compress(body)
    size = len(body) if stated is None else stated
    header = struct.pack("<4sHHIIqqII", codec.MAGIC, version, 0, 0, 0, 0, 0, 0, size)
    return (
        header[:8]
        + struct.pack("<I", zlib.crc32(header[4:8] + header[12:] + packed))
        + header[12:]
        + packed
    )


def with_head(head: object, rest: bytes = b"") -> bytes:
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return sealed(struct.pack("<I", len(text)) + text + rest)


@given(frames())
def test_a_frame_is_read_back_as_it_was_written(frame: Frame) -> None:
    data = codec.encode(frame)
    assert equal(codec.decode(data), frame) and codec.encode(frame) == data
    # AND its head alone is that of the whole frame
    head = codec.OpenFrame(data, head_only=True).head()
    assert (head.stream, head.sequence, head.rows) == (frame.stream, frame.sequence, frame.rows)
    assert (head.first_step, head.last_step) == (frame.first_step, frame.last_step)
    columns = [
        column
        for table in frame.tables.values()
        for column in table.values()
        if isinstance(column, tuple)
    ]
    assert set(head.strings) == {text for column in columns for text in column if text is not None}


def test_every_flipped_bit_and_every_truncation_is_noticed() -> None:
    data = codec.encode(SMALL)
    flipped = (
        data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
        for at in range(len(data))
        for bit in range(8)
    )
    for damaged in (*flipped, *(data[:length] for length in range(len(data)))):
        with pytest.raises(FormatError):
            codec.decode(damaged)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_format_error(data: bytes) -> None:
    for decode in (codec.decode, lambda data: codec.OpenFrame(data, head_only=True).head()):
        with pytest.raises(FormatError):
            decode(data)


heads = st.fixed_dictionaries(
    {
        "attributes": st.dictionaries(texts, json_values, max_size=2) | json_values,
        "strings": st.lists(texts) | json_values,
        "tables": st.dictionaries(
            texts,
            st.lists(st.tuples(texts, st.sampled_from("ifsx"), st.integers(-2, 2**62)))
            | json_values,
            max_size=2,
        ),
    }
)


@settings(max_examples=700)
@given(
    st.binary(max_size=300).map(sealed)
    | st.builds(with_head, heads | st.binary(max_size=100), st.binary(max_size=64))
)
def test_any_body_with_a_valid_checksum_gives_a_frame_or_a_format_error(data: bytes) -> None:
    with contextlib.suppress(FormatError):
        assert isinstance(codec.OpenFrame(data, head_only=True).head(), FrameHead)
    with contextlib.suppress(FormatError):
        assert isinstance(codec.decode(data), Frame)


@pytest.mark.parametrize(
    "head",
    [
        *(
            b"\xff\xfe",
            b"[" * 100_000,
            b"NaN",
            b'{"attributes":{"a":Infinity},"strings":[],"tables":{}}',
            b"1" * 5_000,
        ),
        b"[]",
        *(
            {"attributes": {}, "strings": strings, "tables": {"t": table}}
            for strings, table in (
                ([], [["c", "i", 2**62]]),
                ([], [["c", "i", True]]),
                (["x" * 5_000], []),
                ([], "no list"),
            )
        ),
    ],
)
def test_inconsistent_heads_are_refused(head: object) -> None:
    with pytest.raises(FormatError):
        codec.decode(with_head(head))


def head_of(kind: str, rows: int, *strings: str) -> dict[str, object]:
    return {"attributes": {}, "strings": strings, "tables": {"t": [["c", kind, rows]]}}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (sealed(bytes(60_000_000), stated=1_000), "header states"),  # refused before it is inflated
        (sealed(b"", stated=codec.MAX_BODY_BYTES + 1), "over the limit"),
        (bytes(codec.MAX_FRAME_BYTES + 1), "over the limit"),
        (with_head(head_of("s", 1, "only"), struct.pack("<q", 1)), "string 1 of 1"),
        (with_head(head_of("f", 2), np.asarray([1.0, np.nan]).tobytes()), "not finite"),
    ],
    ids=["more than stated", "body", "frame", "string", "not finite"],
)
def test_frames_over_their_limits_or_with_impossible_values_are_refused(
    data: bytes, reason: str
) -> None:
    with pytest.raises(FormatError, match=reason):
        codec.decode(data)


def test_a_newer_format_is_not_reported_as_damage() -> None:
    with pytest.raises(NewerFormatError, match=rf"format {codec.FORMAT_VERSION + 1}.*upgrade"):
        codec.decode(sealed(b"whatever comes then", version=codec.FORMAT_VERSION + 1))


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({"c": np.asarray([1.0, np.nan])}, "not finite"),
        ({"a": np.arange(2), "b": np.arange(3)}, "different lengths"),
    ],
)
def test_columns_that_cannot_be_read_back_are_not_written(
    table: dict[str, Any], reason: str
) -> None:
    with pytest.raises(FormatError, match=reason):
        codec.encode(Frame(0, 0, 0, 0, 2, {}, {"t": table}))


def test_long_strings_are_shortened_rather_than_refused() -> None:
    data = codec.encode(Frame(0, 0, 0, 0, 1, {}, {"t": {"c": ["x" * 1_000_000]}}))
    (text,) = codec.decode(data).tables["t"]["c"]
    assert len(text) == MAX_STRING_CHARACTERS and text.endswith("…")


@pytest.mark.parametrize(
    ("change", "is_read"),
    [
        (lambda packed: packed, True),
        (lambda packed: packed + b"x", True),
        (lambda packed: packed[:-12], False),
        (lambda packed: packed[2:], False),
        (lambda packed: b"", False),
    ],
    ids=["whole", "longer", "cut", "headless", "empty"],
)
def test_bodies_that_are_not_as_stated_are_refused(
    change: Callable[[bytes], bytes], is_read: bool
) -> None:
    frame = codec.encode(SMALL)
    rest = frame[12:40] + change(frame[40:])
    data = frame[:8] + struct.pack("<I", zlib.crc32(frame[4:8] + rest)) + rest
    with contextlib.nullcontext() if is_read else pytest.raises(FormatError):
        codec.decode(data)


@pytest.mark.parametrize(
    ("values", "kind", "size"),
    [
        ([200, 3, 255, 0], "r1", 4),  # values below 256: their lowest byte each
        ([70_000, 3, 70_000, 9], "r3", 12),
        ([-1, 3, 255, 0], "r8", 32),  # a negative value fills all its bytes
        ([0, 0], "i", 16),
        (list(range(1_000_000, 1_000_100)), "i", 800),  # steps: differences of 1 are bytes of zeros
        ([], "i", 0),
    ],
)
def test_values_are_stored_without_the_bytes_that_are_zero_in_all(
    values: Sequence[int], kind: str, size: int
) -> None:
    data = codec.encode(
        Frame(0, 0, 0, 0, len(values), {}, {"t": {"column": np.asarray(values, np.int64)}})
    )
    opened = codec.OpenFrame(data)
    assert opened.head().tables["t"] == [("column", kind, len(values))]
    assert opened.body_bytes - 4 - len(opened.text) == size
    assert codec.decode(data).tables["t"]["column"].tolist() == values


def test_a_tag_is_read_back_as_it_was_written() -> None:
    for text in ("samples/20260921T131313Z-0a1b2c3d/0", "meta/s_1/12", "peak/x/999999999"):
        assert str(parse_tag(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "samples",
            "samples/s",
            "samples/s/",
            "samples/s/-1",
            "samples/s/1.5",
            "other/s/1",
            "Samples/s/1",
        ),
        *(
            "samples//1",
            "samples/s/1/2",
            "samples/../1",
            "samples/s/1234567890",
            "samples/s/1\n",
            "samples/é/1",
        ),
        "samples/" + "s" * 65 + "/1",
    ],
)
def test_anything_else_is_no_tag(text: str) -> None:
    assert parse_tag(text) is None


@pytest.mark.parametrize(
    ("event_run", "run", "worker"),
    [
        ("exp1/memory", "exp1", ""),
        ("a/b/memory", "a/b", ""),
        ("exp1/memory/worker_3", "exp1", "worker_3"),
        ("memory", ".", ""),
        ("memory/w", ".", "w"),
        (".", ".", ""),
        ("exp1", "exp1", ""),
        ("exp1/train", "exp1/train", ""),
        ("memory/memory", "memory", ""),
        ("exp1\\memory", "exp1", ""),
        ("../x/memory", "../x", ""),
        ("memory/a/b/c", "memory/a/b/c", ""),
    ],
)
def test_a_run_is_shown_under_the_name_of_the_directory_that_holds_memory(
    event_run: str, run: str, worker: str
) -> None:
    assert run_name(event_run) == (run, worker)


def test_a_summary_carries_the_frame_as_a_scalar_string_of_the_class_that_readers_keep() -> None:
    (value,) = frame_summary(Tag("s", "meta", 0), b"\x00\xff\x00").value
    assert value.tag == "meta/s/0" and list(value.tensor.string_val) == [b"\x00\xff\x00"]
    assert not value.tensor.tensor_shape.dim
    assert value.metadata == summary_metadata()
    assert value.metadata.data_class == summary_pb2.DATA_CLASS_TENSOR
    assert value.metadata.plugin_data.plugin_name == "tb_memplugin"


@given(st.lists(st.integers(0, 30), max_size=100))
def test_no_tag_holds_more_than_its_events_and_steps_grow_within_it(steps: list[int]) -> None:
    rotation, held = TagRotation("s", "samples"), defaultdict(list)
    for step in steps:
        held[rotation.next(step)].append(step)
    for of_tag in held.values():
        assert len(of_tag) <= EVENTS_PER_TAG and of_tag == sorted(set(of_tag))
