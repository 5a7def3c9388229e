"""Reads many protobuf messages of one type at once from their wire format, with NumPy.

A profile has tens of thousands of events with ten statistics each; creating message objects for all of them would take
most of the time. Instead, the messages are read in parallel: the first field of each, then the second, and so on. See
https://protobuf.dev/programming-guides/encoding.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tb_memplugin.errors import FormatError
from tb_memplugin.model import Integers

Octets: TypeAlias = npt.NDArray[np.uint8]

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
"""Wire types."""
_KNOWN = np.isin(np.arange(8), (VARINT, FIXED64, LENGTH, FIXED32))
_PADDING = 32
"""Zeros after the last message, so that no varint is read past the end."""


class Messages(NamedTuple):
    """Messages in a buffer: each has the bytes from its `start` up to its `end`."""

    data: Octets
    start: Integers
    end: Integers


class Fields(NamedTuple):
    """One field of each of some messages.

    Attributes:
        message: Indices of the messages.
        tag: 8 × field number + wire type.
        value: The value of a varint, the length of other content.
        at: Position of the content.
    """

    message: Integers
    tag: Integers
    value: Integers
    at: Integers

    def of(self, tag: int) -> "Fields":
        """Those with a tag."""
        return self.rows(np.flatnonzero(self.tag == tag))

    def rows(self, rows: Integers) -> "Fields":
        """Some rows."""
        return Fields(*(column[rows] for column in self))


def joined(parts: Sequence[bytes]) -> Messages:
    """Messages in one buffer, one after another."""
    sizes = np.fromiter(map(len, parts), np.int64, len(parts))
    end = np.cumsum(sizes)
    return Messages(np.frombuffer(b"".join(parts) + b"\0" * _PADDING, np.uint8), end - sizes, end)


def fields(messages: Messages) -> Iterator[Fields]:
    """The messages' fields: the first of each, the second of each, and so on.

    Raises:
        FormatError: A message is malformed.
    """
    data, start, end = messages
    message = np.flatnonzero(start < end)
    at = start[message]
    while len(message):
        tag, at = _varints(data, at)
        wire = tag & 7
        value = np.full(len(tag), 8)
        value[wire == FIXED32] = 4
        coded = np.flatnonzero((wire == VARINT) | (wire == LENGTH))
        content = at.copy()
        value[coded], content[coded] = _varints(data, at[coded])
        after = content + np.where(wire == VARINT, 0, value)
        sound = _KNOWN[wire] & (after >= content) & (after <= end[message])
        if not sound.all():
            raise FormatError("not a TensorFlow profile (XSpace), or a damaged one: some of its events do not parse")
        yield Fields(message, tag, value, content)
        more = after < end[message]
        message, at = message[more], after[more]


def _varints(data: Octets, at: Integers) -> tuple[Integers, Integers]:
    """(values of the varints at some positions, positions after them)."""
    octet = data[at]
    value = (octet & 0x7F).astype(np.int64)
    after = at + 1
    waiting = np.flatnonzero(octet >= 0x80)
    for shift in range(7, 70, 7):
        if not len(waiting):
            break
        octet = data[after[waiting]]
        value[waiting] |= (octet & 0x7F).astype(np.int64) << shift
        after[waiting] += 1
        waiting = waiting[octet >= 0x80]
    after[waiting] = len(data) - _PADDING // 2  # longer than any varint: a position beyond every message
    return value, after


def doubles(data: Octets, at: Integers) -> npt.NDArray[np.float64]:
    """The float64 numbers at some positions."""
    octets = data[at[:, None] + np.arange(8)]
    return np.ascontiguousarray(octets).view("<f8").astype(np.float64).reshape(-1)
