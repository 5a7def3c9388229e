"""Messages read in parallel match what protobuf reads; damaged ones are an error."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profile_cases import MESSAGES

from tb_memplugin.errors import FormatError
from tb_memplugin.importers import wire

EVENT = MESSAGES["XEvent"]
NUMBER = st.integers(-(1 << 63), (1 << 63) - 1)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(NUMBER, NUMBER, st.lists(st.floats(allow_nan=False), max_size=4)), max_size=8))
def test_fields_match_protobuf(rows: list[tuple[int, int, list[float]]]) -> None:
    parts = []
    for metadata, offset, numbers in rows:
        event = EVENT(metadata_id=metadata, offset_ps=offset)
        for number in numbers:
            event.stats.add(metadata_id=3, double_value=number)
        parts.append(event.SerializeToString())
    messages = wire.joined(parts)
    numbers_read: dict[tuple[int, int], int] = {}
    stats: list[tuple[int, int, int]] = []
    for found in wire.fields(messages):
        for message, tag, value, at in zip(*(column.tolist() for column in found), strict=True):
            if tag == 8 * 4 + wire.LENGTH:
                stats.append((message, at, at + value))
            else:
                numbers_read[message, tag] = value
    for place, (metadata, offset, numbers) in enumerate(rows):
        assert numbers_read.get((place, 8), 0) == metadata
        assert numbers_read.get((place, 16), 0) == offset
        inner = [stat[1:] for stat in stats if stat[0] == place]
        assert len(inner) == len(numbers)
        start, end = (np.asarray([span[side] for span in inner], np.int64) for side in (0, 1))
        read = [0.0] * len(numbers)
        for found in wire.fields(wire.Messages(messages.data, start, end)):
            real = found.tag == 8 * 2 + wire.FIXED64
            for message, value in zip(
                found.message[real].tolist(), wire.doubles(messages.data, found.at[real]), strict=True
            ):
                read[message] = float(value)
        assert read == numbers


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=6))
def test_any_bytes_are_fields_within_their_message_or_an_error(parts: list[bytes]) -> None:
    messages = wire.joined(parts)
    try:
        for found in wire.fields(messages):
            size = np.where(found.tag & 7 == wire.VARINT, 0, found.value)
            assert (found.at >= messages.start[found.message]).all()
            assert (found.at + size <= messages.end[found.message]).all()
    except FormatError:
        pass


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(NUMBER, st.binary(max_size=200)), max_size=20))
def test_a_message_is_split_into_its_fields(rows: list[tuple[int, bytes]]) -> None:
    stat = MESSAGES["XStat"]
    data = b"".join(stat(int64_value=number, str_value=text).SerializeToString() for number, text in rows)
    found = wire.split(data, 0, len(data))
    texts = found.of(8 * 5 + wire.LENGTH)
    assert wire.texts(texts.inner(data)) == [text for _, text in rows if text]
    assert found.of(8 * 4).value.tolist() == [number for number, _ in rows if number]


@pytest.mark.parametrize(
    "damaged", [b"\x08", b"\x08\xff", b"\x22\x05abc", b"\x0b\x00", b"\xff" * 12, b"\x22" + b"\xff" * 9]
)
def test_damaged_messages_are_refused(damaged: bytes) -> None:
    with pytest.raises(FormatError, match="truncated"):
        list(wire.fields(wire.joined([b"\x08\x01", damaged])))
    with pytest.raises(FormatError, match="truncated"):
        wire.split(b"\x08\x01" + damaged, 0, 2 + len(damaged))
