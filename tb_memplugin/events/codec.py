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
of the columns in the order of ``tables``; `column_codec` describes their types. Formats 1 and 2 have the same layout;
`fields` names the differences between their records.
"""

import dataclasses
import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any, TypeAlias

from tb_memplugin.errors import FormatError, NewerFormatError
from tb_memplugin.events import column_codec
from tb_memplugin.events.column_codec import MAX_STRING_CHARACTERS, Column
from tb_memplugin.events.inflating import Inflating, open_stream

FORMAT_VERSION = 2
"""Newest format that is read; `fields` says which streams are written in it."""
MAGIC = b"TBMP"
MAX_FRAME_BYTES = 8 << 20
"""Largest frame that is read; writers aim to stay below 1 MB."""
MAX_BODY_BYTES = 64 << 20
"""Largest inflated body."""
MAX_HEAD_BYTES = 4 << 20
"""Largest JSON head of a body."""

_HEADER = struct.Struct("<4sHHIIqqII")
_CRC_FROM = 12

Table: TypeAlias = Mapping[str, Column]


@dataclasses.dataclass(frozen=True)
class Frame:
    """One decoded frame.

    Attributes:
        stream: Index of the stream in `metadata.STREAMS`.
        sequence: Position of the frame in its stream and session, from 0; a gap is a lost frame.
        first_step, last_step: Range of steps.
        rows: Rows of the main table.
        attributes: JSON object.
        tables: Table name to column name to int64 array, float64 array, or tuple of strings and None.
        version: Format version.
    """

    stream: int
    sequence: int
    first_step: int
    last_step: int
    rows: int
    attributes: Mapping[str, Any]
    tables: Mapping[str, Mapping[str, Any]]
    version: int = 1


@dataclasses.dataclass(frozen=True)
class FrameHead:
    """A frame without its columns: fields as in `Frame`, and the strings that the columns use.

    `most_bytes` are those of the columns once decoded, each in the smallest integers that hold its stored bytes.
    """

    stream: int
    sequence: int
    first_step: int
    last_step: int
    rows: int
    strings: tuple[str, ...]
    most_bytes: int


def encode(frame: Frame, level: int = 1) -> bytes:
    """Encode a frame.

    Raises:
        FormatError: The columns of a table differ in length, or the result is over a reader's limits.
    """
    strings: dict[str, int] = {}
    described: dict[str, list[list[Any]]] = {}
    parts: list[bytes] = []
    for table_name, table in frame.tables.items():
        lengths = {len(column) for column in table.values()}
        if len(lengths) > 1:
            raise FormatError(f"table {table_name!r} has columns of different lengths: {sorted(lengths)}")
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
        MAGIC, frame.version, frame.stream, 0, frame.sequence, frame.first_step, frame.last_step, frame.rows, len(body)
    )
    rest = header[_CRC_FROM:] + packed
    return header[: _CRC_FROM - 4] + struct.pack("<I", _checksum(header, rest)) + rest


def decode(data: bytes) -> Frame:
    """Decode a frame; sizes are checked before memory is allocated.

    Raises:
        NewerFormatError: A newer version of this package wrote the frame.
        FormatError: The bytes are damaged, or not a frame.
    """
    version, stream, sequence, first_step, last_step, rows, body_bytes = _check_header(data)
    body = Inflating(memoryview(data)[_HEADER.size :], body_bytes)
    head_bytes = _check_head_length(bytes(body.take(min(4, body_bytes))), body_bytes)
    attributes, strings, described = _parse_head(bytes(body.take(head_bytes)))
    columns = _check_tables(described, body_bytes - 4 - head_bytes)
    tables = {
        table: {name: column_codec.decode_column(kind, length, body.take, strings) for name, kind, length in of_table}
        for table, of_table in columns.items()
    }
    return Frame(stream, sequence, first_step, last_step, rows, attributes, tables, version)


def decode_head(data: bytes) -> FrameHead:
    """Decode a frame without its columns, which hold most of its bytes and are not inflated.

    Raises:
        NewerFormatError: A newer version of this package wrote the frame.
        FormatError: The bytes are damaged, or not a frame.
    """
    _, stream, sequence, first_step, last_step, rows, body_bytes = _check_header(data)
    inflater = zlib.decompressobj()
    try:
        # Only what the head needs: most of the stream stays as it is.
        head_bytes = _check_head_length(inflater.decompress(data[_HEADER.size :], 4), body_bytes)
        # Zero would mean no limit.
        text = inflater.decompress(inflater.unconsumed_tail, head_bytes) if head_bytes else b""
    except zlib.error as error:
        raise FormatError(f"frame's body cannot be inflated: {error}") from None
    _, strings, described = _parse_head(text)
    tables = _check_tables(described, body_bytes - 4 - head_bytes)
    most_bytes = sum(
        length * column_codec.memory_bytes(kind) for columns in tables.values() for _, kind, length in columns
    )
    return FrameHead(stream, sequence, first_step, last_step, rows, tuple(strings), most_bytes)


def inflate(data: bytes, most_bytes: int) -> tuple[int, int, bytes, memoryview]:
    """A frame's stream and sequence number, and its inflated body: the JSON, and the bytes of its columns, undecoded.

    Raises:
        NewerFormatError: A newer version of this package wrote the frame.
        FormatError: The bytes are damaged, or not a frame, or the body is larger than `most_bytes`.
    """
    _, stream, sequence, _, _, _, body_bytes = _check_header(data)
    if body_bytes > most_bytes:
        raise FormatError(f"frame's body of {body_bytes} bytes is larger than {most_bytes}")
    inflater, packed = open_stream(memoryview(data)[_HEADER.size :])
    try:
        body = inflater.decompress(packed, body_bytes + 1)
    except zlib.error as error:
        raise FormatError(f"frame's body cannot be inflated: {error}") from None
    if len(body) != body_bytes or not inflater.eof:
        raise FormatError(f"frame's body is not the {body_bytes} bytes its header states")
    columns_at = 4 + _check_head_length(body[:4], body_bytes)
    return stream, sequence, body[4:columns_at], memoryview(body)[columns_at:]


def _check_header(data: bytes) -> tuple[int, int, int, int, int, int, int]:
    """Check the header; return version, stream, sequence, first and last step, rows, and body bytes."""
    if len(data) < _HEADER.size:
        raise FormatError(f"frame of {len(data)} bytes is shorter than its header of {_HEADER.size}")
    if len(data) > MAX_FRAME_BYTES:
        raise FormatError(f"frame of {len(data)} bytes is over the limit of {MAX_FRAME_BYTES}")
    magic, version, stream, crc, sequence, first_step, last_step, rows, body_bytes = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise FormatError(f"not a frame: it starts with {bytes(magic)!r}, expected {MAGIC!r}")
    if version > FORMAT_VERSION:
        raise NewerFormatError(
            f"frame of format {version}; this version reads formats up to {FORMAT_VERSION}: upgrade tb_memplugin"
        )
    if version < 1:
        raise FormatError(f"frame of unknown format {version}")
    if _checksum(data, memoryview(data)[_CRC_FROM:]) != crc:
        raise FormatError("frame is damaged: its checksum does not match")
    if body_bytes > MAX_BODY_BYTES:
        raise FormatError(f"frame's body of {body_bytes} bytes is over the limit of {MAX_BODY_BYTES}")
    return version, stream, sequence, first_step, last_step, rows, body_bytes


def _checksum(header: bytes, rest: bytes | memoryview) -> int:
    return zlib.crc32(rest, zlib.crc32(header[len(MAGIC) : _CRC_FROM - 4]))


def _check_head_length(prefix: bytes, body_bytes: int) -> int:
    head_bytes = int.from_bytes(prefix, "little")
    if len(prefix) < 4 or 4 + head_bytes > body_bytes or head_bytes > MAX_HEAD_BYTES:
        raise FormatError(
            f"frame's head of {head_bytes} bytes is over its body of {body_bytes} bytes or the limit of "
            f"{MAX_HEAD_BYTES}"
        )
    return head_bytes


def _parse_head(text: bytes) -> tuple[dict[str, Any], list[str], dict[str, Any]]:
    try:
        head = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"frame's head is not JSON: {error}") from None
    return _check_head(head)


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number")


def _check_head(head: Any) -> tuple[dict[str, Any], list[str], dict[str, Any]]:
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
        lengths = set()
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
            lengths.add(length)
        if len(lengths) > 1:
            raise FormatError(f"table {table_name!r} has columns of different lengths: {sorted(lengths)}")
    if at != size:
        raise FormatError(f"frame has {size - at} bytes after its last column")
    return tables
