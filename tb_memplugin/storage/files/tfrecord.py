"""Records of a TFRecord file. A damaged record is reported and skipped."""

import dataclasses
import struct
from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np

from tb_memplugin.storage.frames import header_matches, masked_crc32c

MAX_RECORD_BYTES = 12 << 20
"""Longest record that is read; this plugin's records stay below 9 MiB. Longer ones are skipped."""
MAX_SEARCH_BYTES = 64 << 20
"""Bytes after a damaged length in which the next record is searched; then the remainder of the file is given up."""
_CHUNK = 4 << 20
_FIRST_SEARCH = 64
_HEADER = struct.Struct("<QI")
_FOOTER_BYTES = 4

ReadAt: TypeAlias = Callable[[int, int], bytes]
"""(offset, size) to bytes of the file, fewer at its end."""


@dataclasses.dataclass(frozen=True)
class Record:
    """One record: offset of its content, the content, and the stored checksum, not yet compared."""

    offset: int
    data: bytes
    checksum: int

    def is_intact(self) -> bool:
        return masked_crc32c(self.data) == self.checksum


@dataclasses.dataclass(frozen=True)
class Loss:
    """A range without a readable record. `at_end`: the file ends inside a record, which may still be being written."""

    offset: int
    size: int
    at_end: bool


def walk_records(read_at: ReadAt, start: int, end: int) -> Iterator[Record | Loss]:
    """Yield the records of a file from offset `start` to `end`; a `Loss` with `at_end` comes last."""
    window = _Window(read_at, end)
    at = start
    while at < end:
        header = window.take(at, _HEADER.size)
        if len(header) < _HEADER.size:
            yield Loss(at, end - at, at_end=True)
            return
        length, checksum = _HEADER.unpack(header)
        if masked_crc32c(header[:8]) != checksum:
            header_at = _next_header(window, at + 1, end)
            yield Loss(at, header_at - at, at_end=False)
            at = header_at
            continue
        following = at + _HEADER.size + length + _FOOTER_BYTES
        if following > end:
            yield Loss(at, end - at, at_end=True)
            return
        if length <= MAX_RECORD_BYTES:
            content = window.take(at + _HEADER.size, length + _FOOTER_BYTES)
            if len(content) < length + _FOOTER_BYTES:  # the file was truncated meanwhile
                yield Loss(at, end - at, at_end=True)
                return
            yield Record(at + _HEADER.size, content[:length], int.from_bytes(content[length:], "little"))
        at = following


class _Window:
    """Reads a file forward in large chunks."""

    def __init__(self, read_at: ReadAt, end: int) -> None:
        self._read_at = read_at
        self._end = end
        self._base = 0
        self._buffer = b""

    def take(self, offset: int, size: int) -> bytes:
        begin = offset - self._base
        if begin < 0 or begin + size > len(self._buffer):
            self._base = offset
            self._buffer = self._read_at(offset, min(max(size, _CHUNK), max(0, self._end - offset)))
            begin = 0
        return self._buffer[begin : begin + size]


def _next_header(window: _Window, start: int, end: int) -> int:
    limit = min(end, start + MAX_SEARCH_BYTES)
    at, span = start, _FIRST_SEARCH
    while at + _HEADER.size <= limit:
        # Short spans first: the cost of a search is that of the bytes up to the next record, not of the whole file.
        # Successive spans overlap by a header's length minus one, so that no header is missed.
        data = np.frombuffer(window.take(at, min(span, limit - at)), np.uint8)
        span = min(2 * span, _CHUNK)
        if len(data) < _HEADER.size:
            break
        starts = len(data) - _HEADER.size + 1
        # Records of interest are not empty and below 2^32 bytes, which leaves few candidates.
        plausible = (data[4 : 4 + starts] | data[5 : 5 + starts] | data[6 : 6 + starts] | data[7 : 7 + starts]) == 0
        plausible &= (data[:starts] | data[1 : 1 + starts] | data[2 : 2 + starts]) != 0
        places = np.flatnonzero(plausible)
        if len(places):
            headers = data[places[:, None] + np.arange(_HEADER.size)]
            valid = places[header_matches(headers)]
            if len(valid):
                return at + int(valid[0])
        at += starts
    return end
