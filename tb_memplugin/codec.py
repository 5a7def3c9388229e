"""Frames: the one binary format of everything this package stores.

A frame is a fixed header and a zlib body. The body is a set of named tables of named columns, delta-coded and
byte-transposed, with every string interned once, and a small JSON object of attributes. A frame is understood without
any other, so that a damaged one costs only itself. Format 1, little-endian:

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
36     4     bytes of the body once inflated
40     …     the body, one zlib stream
====== ===== ==================================================================

The inflated body: four bytes of length, that many of JSON (``attributes``, ``strings``, ``tables``), then the columns'
bytes in the order in which ``tables`` names them. Column types: ``f`` float64; ``i`` int64 (differences of neighbours,
transposed: first the lowest bytes of all, then the next); ``r1`` to ``r8`` int64 (as they are, transposed, only the 1
to 8 lowest bytes, the rest being zero); ``s`` index into ``strings`` (stored as ``i``; -1 is null).
"""

import dataclasses
import json
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tb_memplugin.errors import FormatError, NewerFormatError

FORMAT_VERSION = 1
MAGIC = b"TBMP"
MAX_FRAME_BYTES = 8 << 20
"""Largest frame that is read; writers stay below 1 MB where they can."""
MAX_BODY_BYTES = 64 << 20
"""Largest inflated body that memory is taken for."""
MAX_HEAD_BYTES = 8 << 20
"""Largest JSON description of a body that is parsed."""
MAX_STRING_CHARACTERS = 4096
"""Longest string that is written or read (a layer path, a sentence)."""
MISSING = -(2**63)
"""The int64 that stands for "not known" in an integer column."""

_HEADER = struct.Struct("<4sHHIIqqII")
_CRC_FROM = 12
_PLAIN_KINDS = {f"r{planes}": planes for planes in range(1, 9)}

IntColumn: TypeAlias = npt.NDArray[np.int64]
FloatColumn: TypeAlias = npt.NDArray[np.float64]
StringColumn: TypeAlias = Sequence[str | None]
Column: TypeAlias = IntColumn | FloatColumn | StringColumn
Table: TypeAlias = Mapping[str, Column]


@dataclasses.dataclass(frozen=True)
class Frame:
    """One decoded frame.

    Attributes:
        stream: Index of the stream in `metadata.STREAMS`.
        sequence: Position of the frame in its stream and session, from 0; a gap is a lost frame.
        first_step, last_step: Range of the steps in it.
        rows: Rows of its main table.
        attributes: JSON object.
        tables: Table name to column name to int64 array, float64 array, or tuple of strings and None.
    """

    stream: int
    sequence: int
    first_step: int
    last_step: int
    rows: int
    attributes: Mapping[str, Any]
    tables: Mapping[str, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class FrameHead:
    """What a frame says of itself without its columns; fields as in `Frame`, and every string that its columns use."""

    stream: int
    sequence: int
    first_step: int
    last_step: int
    rows: int
    strings: tuple[str, ...]


def encode(frame: Frame, level: int = 1) -> bytes:
    """The frame as bytes.

    Raises:
        FormatError: A column has another length than its table, or the result is larger than a reader takes.
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
            kind, data = _encode_column(column, strings)
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
            f"frame of {len(body)} bytes ({len(packed)} packed) is over the limit of {MAX_BODY_BYTES} "
            f"({MAX_FRAME_BYTES} packed); write fewer rows in one frame"
        )
    header = _HEADER.pack(
        MAGIC, FORMAT_VERSION, frame.stream, 0, frame.sequence, frame.first_step, frame.last_step, frame.rows, len(body)
    )
    rest = header[_CRC_FROM:] + packed
    return header[: _CRC_FROM - 4] + struct.pack("<I", _checksum(header, rest)) + rest


def decode(data: bytes) -> Frame:
    """The frame in `data`.

    Raises:
        NewerFormatError: Written by a newer version of this package.
        FormatError: Anything else that is not a whole, undamaged frame. Memory is taken only for sizes that were
            checked.
    """
    stream, sequence, first_step, last_step, rows, body_bytes = _check_header(data)
    inflater = zlib.decompressobj()
    try:
        body = inflater.decompress(data[_HEADER.size :], body_bytes + 1)
    except zlib.error as error:
        raise FormatError(f"frame's body cannot be inflated: {error}") from None
    if len(body) != body_bytes or not inflater.eof:
        raise FormatError(f"frame's body is not the {body_bytes} bytes its header states")
    head_bytes = _check_head_length(body[:4], body_bytes)
    attributes, strings, described = _parse_head(body[4 : 4 + head_bytes])
    tables = _decode_tables(described, strings, memoryview(body)[4 + head_bytes :])
    return Frame(stream, sequence, first_step, last_step, rows, attributes, tables)


def decode_head(data: bytes) -> FrameHead:
    """What the frame in `data` says of itself; its columns, most of its bytes, are not inflated.

    Raises:
        NewerFormatError: Written by a newer version of this package.
        FormatError: The bytes are damaged, or no frame.
    """
    stream, sequence, first_step, last_step, rows, body_bytes = _check_header(data)
    inflater = zlib.decompressobj()
    try:
        head_bytes = _check_head_length(inflater.decompress(data[_HEADER.size :], 4), body_bytes)
        # Zero would mean no limit.
        text = inflater.decompress(inflater.unconsumed_tail, head_bytes) if head_bytes else b""
    except zlib.error as error:
        raise FormatError(f"frame's body cannot be inflated: {error}") from None
    _, strings, _ = _parse_head(text)
    return FrameHead(stream, sequence, first_step, last_step, rows, tuple(strings))


def _check_header(data: bytes) -> tuple[int, int, int, int, int, int]:
    """Stream, sequence, first and last step, rows, and bytes of the body, of a frame whose checksum is right."""
    if len(data) < _HEADER.size:
        raise FormatError(f"frame of {len(data)} bytes is shorter than its header of {_HEADER.size}")
    if len(data) > MAX_FRAME_BYTES:
        raise FormatError(f"frame of {len(data)} bytes is over the limit of {MAX_FRAME_BYTES}")
    magic, version, stream, crc, sequence, first_step, last_step, rows, body_bytes = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise FormatError(f"not a frame: it begins with {bytes(magic)!r}, expected {MAGIC!r}")
    if version > FORMAT_VERSION:
        raise NewerFormatError(f"frame of format {version}; this version reads up to {FORMAT_VERSION}: upgrade")
    if version < 1:
        raise FormatError(f"frame of unknown format {version}")
    if _checksum(data, data[_CRC_FROM:]) != crc:
        raise FormatError("frame is damaged: its checksum does not match")
    if body_bytes > MAX_BODY_BYTES:
        raise FormatError(f"frame's body of {body_bytes} bytes is over the limit of {MAX_BODY_BYTES}")
    return stream, sequence, first_step, last_step, rows, body_bytes


def _checksum(header: bytes, rest: bytes) -> int:
    return zlib.crc32(rest, zlib.crc32(header[len(MAGIC) : _CRC_FROM - 4]))


def _check_head_length(prefix: bytes, body_bytes: int) -> int:
    head_bytes = int.from_bytes(prefix, "little")
    if len(prefix) < 4 or 4 + head_bytes > body_bytes or head_bytes > MAX_HEAD_BYTES:
        raise FormatError(
            f"frame's description of {head_bytes} bytes does not fit its body of {body_bytes}, or {MAX_HEAD_BYTES}"
        )
    return head_bytes


def _parse_head(text: bytes) -> tuple[dict[str, Any], list[str], dict[str, Any]]:
    try:
        head = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"frame's description is not JSON: {error}") from None
    return _check_head(head)


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number")


def _check_head(head: Any) -> tuple[dict[str, Any], list[str], dict[str, Any]]:
    if not isinstance(head, dict):
        raise FormatError("frame's description is not an object")
    attributes, strings, described = head.get("attributes"), head.get("strings"), head.get("tables")
    if not isinstance(attributes, dict) or not isinstance(strings, list) or not isinstance(described, dict):
        raise FormatError("frame's description lacks attributes, strings or tables")
    if not {str}.issuperset(map(type, strings)) or max(map(len, strings), default=0) > MAX_STRING_CHARACTERS:
        raise FormatError(f"frame holds a string over {MAX_STRING_CHARACTERS} characters, or one that is none")
    return attributes, strings, described


def _decode_tables(described: dict[str, Any], strings: list[str], rest: memoryview) -> dict[str, dict[str, Any]]:
    tables: dict[str, dict[str, Any]] = {}
    at = 0
    for table_name, columns in described.items():
        table: dict[str, Any] = {}
        if not isinstance(columns, list):
            raise FormatError(f"table {table_name!r} is not a list of columns")
        lengths = set()
        for column in columns:
            if not (
                isinstance(column, list) and len(column) == 3 and isinstance(column[0], str) and type(column[2]) is int
            ):
                raise FormatError(f"table {table_name!r} describes a column wrongly: {column!r:.80}")
            name, kind, length = column
            size = length * (_PLAIN_KINDS.get(kind, 8) if isinstance(kind, str) else 8)
            if length < 0 or at + size > len(rest):
                raise FormatError(f"column {name!r} of {length} values does not fit the frame")
            table[name] = _decode_column(kind, rest[at : at + size], strings)
            at += size
            lengths.add(length)
        if len(lengths) > 1:
            raise FormatError(f"table {table_name!r} has columns of different lengths: {sorted(lengths)}")
        tables[table_name] = table
    if at != len(rest):
        raise FormatError(f"frame has {len(rest) - at} bytes that no column claims")
    return tables


def _encode_column(column: Column, strings: dict[str, int]) -> tuple[str, bytes]:
    if isinstance(column, np.ndarray):
        if np.issubdtype(column.dtype, np.floating):
            if not np.isfinite(column).all():
                raise FormatError("a column holds a number that is not finite")
            return "f", column.astype("<f8").tobytes()
        return _pack_integers(column.astype("<i8"))
    indices = [-1 if text is None else strings.setdefault(_shorten(text), len(strings)) for text in column]
    return "s", _transpose(_differences(np.asarray(indices, "<i8")))


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_STRING_CHARACTERS else text[: MAX_STRING_CHARACTERS - 1] + "…"


def _decode_column(kind: Any, data: memoryview, strings: list[str]) -> Any:
    if kind == "f":
        values = np.frombuffer(data, "<f8").astype(np.float64)
        if not np.isfinite(values).all():
            raise FormatError("frame holds a number that is not finite")
        return values
    if kind == "i":
        return np.cumsum(_untranspose(data, 8), dtype=np.int64)
    if kind in _PLAIN_KINDS:
        return _untranspose(data, _PLAIN_KINDS[kind])
    if kind == "s":
        indices = np.cumsum(_untranspose(data, 8), dtype=np.int64)
        if len(indices) and (indices.min() < -1 or indices.max() >= len(strings)):
            raise FormatError(f"frame names string {int(indices.max())} of {len(strings)}")
        table = [*strings, None]
        return tuple(table[index] for index in indices.tolist())
    raise FormatError(f"frame holds a column of unknown type {kind!r:.20}")


def _pack_integers(values: npt.NDArray[np.int64]) -> tuple[str, bytes]:
    """Kind and bytes of an integer column: the like bytes of all values side by side, which compress several times
    better.

    Differences of neighbours are stored where they need a byte less than the values (steps, addresses); sizes that
    stay and now and then jump are stored as they are, without the high bytes that are zero in all of them.
    """
    differences = _differences(values)
    if not len(values) or _extent(differences[1:]) * 256 <= _extent(values):
        return "i", _transpose(differences)
    used = max(1, (int(values.max()).bit_length() + 7) // 8) if values.min() >= 0 else 8
    return f"r{used}", _transpose(values)[: used * len(values)]


def _differences(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    differences = np.empty_like(values)
    differences[:1] = values[:1]
    np.subtract(values[1:], values[:-1], out=differences[1:])
    return differences


def _extent(values: npt.NDArray[np.int64]) -> int:
    return max(abs(int(values.min())), abs(int(values.max()))) if len(values) else 0


def _transpose(values: npt.NDArray[np.int64]) -> bytes:
    return np.ascontiguousarray(values.view(np.uint8).reshape(-1, 8).T).tobytes()


def _untranspose(data: memoryview, planes: int) -> IntColumn:
    stored = np.frombuffer(data, np.uint8).reshape(planes, -1)
    values = np.zeros((stored.shape[1], 8), np.uint8)
    values[:, :planes] = stored.T
    return values.view("<i8").reshape(-1).astype(np.int64, copy=False)
