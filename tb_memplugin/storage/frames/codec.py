"""Frames: the binary format of all stored data.

A frame is a fixed header and a zlib body. The body holds named tables of named columns, delta-coded and
byte-transposed, interned strings, and a small JSON object of attributes. Frames are independent, so damage to one
costs no other. Little-endian:

====== ===== ==================================================================
offset bytes meaning
====== ===== ==================================================================
0      4     magic ``TBMP``
4      2     format version
6      2     index of the stream in `metadata.STREAMS`
8      4     CRC-32 of bytes 4 to 8 and everything from offset 12 to the end
12     4     sequence number of the frame in its stream and session, from 0
16     8     first step
24     8     last step
32     4     rows of the frame's main table
36     4     bytes of the inflated body
40     …     the body, one zlib stream, whose own checksum is not compared
====== ===== ==================================================================

The inflated body: four bytes of length, JSON of this length (``attributes``, ``strings``, ``tables``), then the bytes
of the columns in the order of ``tables``; `column_codec` describes their types. Damaged bytes raise `FormatError`, a
frame of a newer version of this package `NewerFormatError`; sizes are checked before memory is taken.
"""

import dataclasses
import io
import json
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tb_memplugin.errors import FormatError, NewerFormatError
from tb_memplugin.storage.frames import column_codec
from tb_memplugin.storage.frames.column_codec import MAX_STRING_CHARACTERS

FORMAT_VERSION = 1
MAGIC = b"TBMP"
MAX_FRAME_BYTES = 8 << 20
"""Largest frame that is read; writers aim to stay below 1 MB."""
MAX_BODY_BYTES = 64 << 20
"""Largest inflated body."""
MAX_HEAD_BYTES = 4 << 20
"""Largest JSON head of a body."""

_IN, _WHOLE = 64 << 10, 1 << 20
"""Packed bytes that are inflated at once; the largest body that is inflated as a whole."""
_VALUE_BYTES = 80
"""A value of JSON in memory, without the characters of a text and the members of a list."""
_HEADER = struct.Struct("<4sHHIIqqII")
_CRC_FROM = 12


@dataclasses.dataclass(frozen=True)
class Frame:
    """One decoded frame: the index of its stream in `metadata.STREAMS`, and its place in stream and session, from 0.

    The tables have columns by name: an int64 array, a float64 array, or a tuple of strings and None.
    """

    stream: int
    sequence: int
    first_step: int
    last_step: int
    rows: int
    attributes: Mapping[str, Any]
    tables: Mapping[str, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class FrameHead(Frame):
    """A frame without its columns: `tables` has the name, type and length of each, `strings` those that they use."""

    tables: Mapping[str, Sequence[tuple[str, Any, int]]]  # type: ignore[assignment]
    strings: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the columns, strings and attributes in memory, at most."""
        values = sum(length for columns in self.tables.values() for _, _, length in columns)
        return 8 * values + _json_bytes([*self.strings, self.attributes])


class OpenFrame:
    """A frame whose columns are decoded later, or never: `head_only`. `text` is the JSON of the body's head."""

    def __init__(self, data: bytes, head_only: bool = False) -> None:
        self._fixed = _check_header(data)
        _, self.sequence, self.first_step, self.last_step, _, self.body_bytes = self._fixed
        body = _Body(memoryview(data)[_HEADER.size :], self.body_bytes, head_only)
        self.take = body.take
        prefix = body.take(min(4, self.body_bytes))
        head_bytes = int.from_bytes(prefix, "little")
        if len(prefix) < 4 or 4 + head_bytes > self.body_bytes or head_bytes > MAX_HEAD_BYTES:
            raise FormatError(
                f"frame's head of {head_bytes} bytes is over its body of {self.body_bytes} bytes or the limit of "
                f"{MAX_HEAD_BYTES}"
            )
        self.text = body.take(head_bytes)

    def head(self) -> FrameHead:
        attributes, strings, described = _parse_head(self.text)
        tables = _check_tables(described, self.body_bytes - 4 - len(self.text))
        return FrameHead(*self._fixed[:-1], attributes, tables, tuple(strings))


class _Body:
    """A body that is inflated in order, without holding all of it. One of at most `_WHOLE` bytes is checked at once.

    The checksum at the end of `packed` is not compared: the frame's covers all of its bytes, and this one takes a fifth
    of the time of inflating. With `head_only` little is inflated at once, and nothing is checked.
    """

    def __init__(self, packed: memoryview, size: int, head_only: bool) -> None:
        method, flags = bytes(packed[:2]).ljust(2, b"\0")
        if method & 15 != 8 or flags & 32 or (method << 8 | flags) % 31:
            raise FormatError("frame's body cannot be inflated: incorrect header check")
        self._inflater, self._packed = zlib.decompressobj(-zlib.MAX_WBITS), packed[2:]
        self._size = self._left = size
        self._whole: io.BytesIO | None = None
        if size <= _WHOLE and not head_only:
            self._whole = io.BytesIO(self.take(size))

    def take(self, size: int) -> bytes:
        """The next `size` bytes. Raises FormatError if there are fewer."""
        parts = [] if self._whole is None else [self._whole.read(size)]
        size -= sum(map(len, parts))
        while size and (part := self._inflate(size)):
            parts.append(part)
            size -= len(part)
            self._left -= len(part)
        if size or not (self._left or (not self._inflate(1) and self._inflater.eof)):
            raise FormatError(f"frame's body is not the {self._size} bytes its header states")
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _inflate(self, most: int) -> bytes:
        """Some of the next bytes; none at the end."""
        inflated = b""
        while not inflated and not self._inflater.eof:
            packed: bytes | memoryview = self._inflater.unconsumed_tail
            if not packed:
                packed, self._packed = self._packed[:_IN], self._packed[_IN:]
            try:
                inflated = self._inflater.decompress(packed, most)
            except zlib.error as error:
                raise FormatError(f"frame's body cannot be inflated: {error}") from None
            if not packed:
                break
        return inflated


def encode(frame: Frame, level: int = 1) -> bytes:
    strings: dict[str, int] = {}
    described: dict[str, list[list[Any]]] = {}
    parts: list[bytes] = []
    for table_name, table in frame.tables.items():
        _check_lengths(table_name, {len(column) for column in table.values()})
        described[table_name] = []
        for column_name, column in table.items():
            kind, data = column_codec.encode_column(column, strings)
            described[table_name].append([column_name, kind, len(column)])
            parts.append(data)
    head = json.dumps(
        {"attributes": dict(frame.attributes), "strings": list(strings), "tables": described},
        separators=(",", ":"),
        allow_nan=False,
    ).encode()
    body = b"".join([struct.pack("<I", len(head)), head, *parts])
    packed = zlib.compress(body, level)
    if len(body) > MAX_BODY_BYTES or len(packed) + _HEADER.size > MAX_FRAME_BYTES:
        raise FormatError(
            f"frame of {len(body)} bytes ({len(packed)} compressed) is over the limit of {MAX_BODY_BYTES} "
            f"({MAX_FRAME_BYTES} compressed); write fewer rows per frame"
        )
    header = _HEADER.pack(
        MAGIC, FORMAT_VERSION, frame.stream, 0, frame.sequence, frame.first_step, frame.last_step, frame.rows, len(body)
    )
    rest = header[_CRC_FROM:] + packed
    return header[: _CRC_FROM - 4] + struct.pack("<I", _checksum(header, rest)) + rest


def decode(data: bytes) -> Frame:
    opened = OpenFrame(data)
    return decode_columns(opened.head(), [opened])


def decode_columns(
    head: FrameHead, frames: Sequence[OpenFrame], is_needed: Callable[[str], bool] = lambda name: True
) -> Frame:
    """The rows of frames with equal heads, one after the other, as one frame; its other fields are those of `head`."""
    takes = [frame.take for frame in frames]
    tables = {
        name: column_codec.decode_table(columns, takes, head.strings, is_needed)
        for name, columns in head.tables.items()
    }
    return Frame(head.stream, head.sequence, head.first_step, head.last_step, head.rows, head.attributes, tables)


def _check_header(data: bytes) -> tuple[int, int, int, int, int, int]:
    if len(data) < _HEADER.size:
        raise FormatError(f"frame of {len(data)} bytes is shorter than its header of {_HEADER.size}")
    if len(data) > MAX_FRAME_BYTES:
        raise FormatError(f"frame of {len(data)} bytes is over the limit of {MAX_FRAME_BYTES}")
    magic, version, stream, crc, sequence, first_step, last_step, rows, body_bytes = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise FormatError(f"not a frame: it starts with {bytes(magic)!r}, expected {MAGIC!r}")
    if version > FORMAT_VERSION:
        raise NewerFormatError(
            f"frame of format {version}; this version reads format {FORMAT_VERSION}: upgrade tb_memplugin"
        )
    if version < FORMAT_VERSION:
        raise FormatError(f"frame of unknown format {version}")
    if _checksum(data, memoryview(data)[_CRC_FROM:]) != crc:
        raise FormatError("frame is damaged: its checksum does not match")
    if body_bytes > MAX_BODY_BYTES:
        raise FormatError(f"frame's body of {body_bytes} bytes is over the limit of {MAX_BODY_BYTES}")
    return stream, sequence, first_step, last_step, rows, body_bytes


def _checksum(header: bytes, rest: bytes | memoryview) -> int:
    return zlib.crc32(rest, zlib.crc32(header[len(MAGIC) : _CRC_FROM - 4]))


def _json_bytes(value: Any) -> int:
    size, found = 0, [value]
    while found:
        one = found.pop()
        size += _VALUE_BYTES + (len(one) if isinstance(one, str) else 0)
        if isinstance(one, dict):
            found += [*one, *one.values()]
        elif isinstance(one, list):
            found += one
    return size


def _check_lengths(table: str, lengths: set[int]) -> None:
    if len(lengths) > 1:
        raise FormatError(f"table {table!r} has columns of different lengths: {sorted(lengths)}")


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number")


def _parse_head(text: bytes) -> tuple[dict[str, Any], list[str], dict[str, Any]]:
    try:
        head = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"frame's head is not JSON: {error}") from None
    if not isinstance(head, dict):
        raise FormatError("frame's head is not an object")
    attributes, strings, described = head.get("attributes"), head.get("strings"), head.get("tables")
    if not isinstance(attributes, dict) or not isinstance(strings, list) or not isinstance(described, dict):
        raise FormatError("frame's head lacks attributes, strings or tables")
    if not {str}.issuperset(map(type, strings)) or max(map(len, strings), default=0) > MAX_STRING_CHARACTERS:
        raise FormatError(f"frame's strings must be texts of at most {MAX_STRING_CHARACTERS} characters")
    return attributes, strings, described


def _check_tables(described: dict[str, Any], size: int) -> dict[str, list[tuple[str, Any, int]]]:
    """Table to (name, type, length) of its columns, whose bytes are `size` together."""
    tables: dict[str, list[tuple[str, Any, int]]] = {}
    at = 0
    for table_name, columns in described.items():
        if not isinstance(columns, list):
            raise FormatError(f"table {table_name!r} is not a list of columns")
        table = tables[table_name] = []
        for column in columns:
            if not (
                isinstance(column, list) and len(column) == 3 and isinstance(column[0], str) and type(column[2]) is int
            ):
                raise FormatError(
                    f"table {table_name!r} needs columns of [name, type, length]. Received: {column!r:.80}"
                )
            name, kind, length = column
            if length < 0 or at + length * column_codec.value_bytes(kind) > size:
                raise FormatError(f"column {name!r} of {length} values does not fit the frame")
            at += length * column_codec.value_bytes(kind)
            table.append((name, kind, length))
        _check_lengths(table_name, {length for _, _, length in table})
    if at != size:
        raise FormatError(f"frame has {size - at} bytes after its last column")
    return tables
