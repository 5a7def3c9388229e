"""Reads protobuf messages without generated code: as classes made of tables of fields, or many at
once with NumPy.

Without generated code there is no dependency on one protobuf release, and no conflict with the same
messages of an imported TensorFlow. Objects for all of a profile's tens of thousands of events, with
ten statistics each, would take most of the time: messages are read in parallel, the first field of
each, then the second, and so on. Only the fields of one long message are found one by one. See
https://protobuf.dev/programming-guides/encoding."""

import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tb_memplugin.errors import FormatError
from tb_memplugin.schema import Integers, rows_of

Octets: TypeAlias = npt.NDArray[np.uint8]

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
MAX_FIELDS = 20_000_000
_KNOWN = np.isin(np.arange(8), (VARINT, FIXED64, LENGTH, FIXED32))
_WINDOW = 1 << 20
"""Bytes in which `split` looks for many fields at once."""
_BLOCK = 8192
"""Messages that are read in parallel: their columns stay in the processor's cache."""


class Messages(NamedTuple):
    """Messages in a buffer: each has the bytes from its `start` up to its `end`."""

    data: bytes
    start: Integers
    end: Integers


class Fields(NamedTuple):
    """One field of each of some messages: index of the message, tag (8 × field number + wire type),
    value of a varint or length of other content, position of the content."""

    message: Integers
    tag: Integers
    value: Integers
    at: Integers

    def of(self, tag: int) -> "Fields":
        rows = np.flatnonzero(self.tag == tag)
        return self if len(rows) == len(self.tag) else self.rows(rows)

    def rows(self, rows: Integers) -> "Fields":
        return Fields(*(column[rows] for column in self))

    def column(self, messages: int) -> Integers:
        column = np.zeros(messages, np.int64)
        column[self.message] = self.value
        return column

    def inner(self, data: bytes) -> Messages:
        return Messages(data, self.at, self.at + self.value)


_NO_FIELDS = Fields(*(np.zeros((4, 0), np.int64)))


def joined(parts: Sequence[bytes]) -> Messages:
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    end = np.cumsum(sizes)
    return Messages(b"".join(parts), end - sizes, end)


def split(data: bytes, start: int, end: int) -> Fields:
    """All fields of one message; more than `MAX_FIELDS` are refused."""
    ends = array.array("q")
    at = before = search = start
    try:
        for _ in range(MAX_FIELDS):
            if at >= end or len(ends) > MAX_FIELDS:
                break
            short = data[at] & 0x87 == LENGTH
            if short and at >= search and data[at] == data[before] and at > before:
                search = at + _WINDOW // 2
                ends.frombytes(_run(data, at, min(end, at + _WINDOW)).tobytes())
                at = ends[-1]
                continue
            before, size = at, data[at + 1]
            at = at + 2 + size if short and size < 0x80 else _after(data, at)
            ends.append(at)
    except (IndexError, OverflowError):
        raise _damaged() from None
    if at != end or len(ends) > MAX_FIELDS:
        raise _damaged()
    after = np.asarray(ends, np.int64)
    return heads(Messages(data, np.append(start, after[:-1])[: len(after)], after))


def _run(data: bytes, start: int, end: int) -> Integers:
    """Ends of fields with one tag that follow each other from `start`; of messages, these are most
    of the fields.

    All places that look like such a field are found at once. If those that are not within others
    follow each other without a gap, they are the fields."""
    octets = np.frombuffer(data, np.uint8, end - start, start)
    at = np.flatnonzero(octets[:-1] == octets[0])
    size, more = octets[at + 1].astype(np.int64), octets.take(at + 2, mode="clip").astype(np.int64)
    long = size >= 0x80
    content = at + 2 + long
    after = content + np.where(long, (size & 0x7F) | more << 7, size)
    begins_alike = octets.take(content, mode="clip") == octets.take(content[:1], mode="clip")
    kept = (
        begins_alike
        & (octets.take(after, mode="clip") == octets[0])
        & (after < len(octets))
        & ~(long & (more >= 0x80))
    )
    at, after = at[kept], after[kept]
    outer = np.append(True, at[1:] >= np.maximum.accumulate(after)[:-1])[: len(at)]
    at, after = at[outer], after[outer]
    follows = np.append(0, after)[: len(at)] == at
    ends: Integers = start + after[np.logical_and.accumulate(follows)]
    return ends


def _after(data: bytes, at: int) -> int:
    tag, at = varint(data, at)
    if tag & 7 == VARINT:
        return varint(data, at)[1]
    if tag & 7 == LENGTH:
        size, at = varint(data, at)
        return at + size
    return at + (8 if tag & 7 == FIXED64 else 4)


def varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, position after it) of the varint at a position; `IndexError` if the data ends within
    it."""
    value = 0
    for shift in range(0, 70, 7):
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            break
    return value, at


def _damaged() -> FormatError:
    return FormatError(
        "not a TensorFlow profile (XSpace), or a truncated one: some of its messages do not parse"
    )


def heads(messages: Messages) -> Fields:
    message = np.flatnonzero(messages.start < messages.end)
    return _fields_at(messages, message, messages.start[message])[0]


def fields(messages: Messages) -> Iterator[Fields]:
    """The fields of messages: of some thousand the first of each, then the second of each, and so
    on."""
    for first in range(0, len(messages.start), _BLOCK):
        block = slice(first, first + _BLOCK)
        message = first + np.flatnonzero(messages.start[block] < messages.end[block])
        at = messages.start[message]
        while len(message):
            found, after = _fields_at(messages, message, at)
            yield found
            more = np.flatnonzero(after < messages.end[message])
            message, at = message[more], after[more]


def _fields_at(messages: Messages, message: Integers, start: Integers) -> tuple[Fields, Integers]:
    data = np.frombuffer(messages.data, np.uint8)
    tag, at = _varints(data, start)
    wire = tag & 7
    value = np.full(len(tag), 8)
    value[wire == FIXED32] = 4
    coded = np.flatnonzero((wire == VARINT) | (wire == LENGTH))
    content = at.copy()
    value[coded], content[coded] = _varints(data, at[coded])
    after = content + np.where(wire == VARINT, 0, value)
    if not (_KNOWN[wire] & (after >= content) & (after <= messages.end[message])).all():
        raise _damaged()
    return Fields(message, tag, value, content), after


def select(messages: Messages, *tags: int) -> list[Fields]:
    """The fields with each tag; those of one message are in order."""
    found = [[_NO_FIELDS] for _ in tags]
    for field in fields(messages):
        for tag, parts in zip(tags, found, strict=True):
            if (field.tag == tag).any():
                parts.append(field.of(tag))
    return [Fields(*map(np.concatenate, zip(*parts, strict=True))) for parts in found]


def texts(messages: Messages) -> list[bytes]:
    data, start, end = messages
    return [data[begin:stop] for begin, stop in rows_of(start, end)]


def equal(data: bytes, at: Integers, other: Integers, size: Integers) -> npt.NDArray[np.bool_]:
    octets = np.frombuffer(data, np.uint8)
    result = np.ones(len(at), bool)
    for first in range(0, len(at), _BLOCK):
        sizes = size[first : first + _BLOCK]
        row = np.repeat(np.arange(first, first + len(sizes)), sizes)
        place = np.arange(len(row)) - (np.cumsum(sizes) - sizes)[row - first]
        result[row[octets[at[row] + place] != octets[other[row] + place]]] = False
    return result


def _varints(data: Octets, at: Integers) -> tuple[Integers, Integers]:
    """(values of the varints at some positions, positions after them); those past the end are
    clipped."""
    octet = data.take(at, mode="clip")
    value = (octet & 0x7F).astype(np.int64)
    after = at + 1
    waiting = np.flatnonzero(octet >= 0x80)
    for shift in range(7, 70, 7):
        if not len(waiting):
            break
        octet = data.take(after[waiting], mode="clip")
        value[waiting] |= (octet & 0x7F).astype(np.int64) << shift
        after[waiting] += 1
        waiting = waiting[octet >= 0x80]
    after[waiting] = len(data) + 1  # longer than any varint: a position beyond every message
    return value, after


def message_classes(name: str, messages: Mapping[str, str]) -> dict[str, Any]:
    """Message name to class, in a descriptor pool of their own.

    `messages` holds the fields of each message: "``name number type``, …". A type is a scalar or
    one of the messages, and ends with ``[]`` if the field is repeated. Other fields are skipped."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    package = f"tb_memplugin.{name}"
    file = descriptor_pb2.FileDescriptorProto(
        name=f"tb_memplugin/{name}.proto", package=package, syntax="proto3"
    )
    kinds = descriptor_pb2.FieldDescriptorProto
    for message, fields_of in messages.items():
        described = file.message_type.add(name=message)
        for field, number, kind in (text.split() for text in fields_of.split(", ")):
            entry = described.field.add(name=field, number=int(number))
            entry.label = kinds.LABEL_REPEATED if kind.endswith("[]") else kinds.LABEL_OPTIONAL
            kind = kind.removesuffix("[]")
            if kind in messages:
                entry.type, entry.type_name = kinds.TYPE_MESSAGE, f".{package}.{kind}"
            else:
                entry.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        message: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{message}"))
        for message in messages
    }
