"""Frames: the binary format of all stored data.

A frame is a fixed header and a zlib body. The body holds named tables of named columns, delta-coded
and byte-transposed, interned strings, and a small JSON object of attributes. Frames are
independent, so damage to one costs no other. Little-endian:

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

The inflated body: four bytes of length, JSON of this length (``attributes``, ``strings``,
``tables``), then the bytes of the columns in the order of ``tables``. Damaged bytes raise
`FormatError`, a frame of a newer version of this package `NewerFormatError`; sizes are checked
before memory is taken.

Column types: ``f`` float64; ``i`` int64 (differences of neighbors, transposed: first the lowest
bytes of all values, then the next); ``r1`` to ``r8`` int64 (values, transposed, only the 1 to 8
lowest bytes, the others being zero); ``s`` index into the frame's strings (stored as ``i``; -1 is
null)."""

import dataclasses
import io
import itertools
import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tb_memplugin.errors import FormatError, NewerFormatError
from tb_memplugin.schema import Floats, Integers

MAX_STRING_CHARACTERS = 4096
"""Longest string that is written or read (a layer path, a sentence)."""
_PLANES: Mapping[str, int] = {"i": 8} | {f"r{planes}": planes for planes in range(1, 9)}
"""Bytes of a value of each type of integers."""
_AT_ONCE = 4 << 20
"""Bytes that are decoded at once; more are decoded column by column, and a long column in parts."""

Take: TypeAlias = Callable[[int], bytes | memoryview]
"""Size to the next bytes of a frame's body."""
StringColumn: TypeAlias = Sequence[str | None]
Column: TypeAlias = Integers | Floats | StringColumn


def value_bytes(kind: Any) -> int:
    """Bytes of one value of a column of type `kind`; 8 for types that `decode_table` refuses."""
    return _PLANES.get(kind, 8) if isinstance(kind, str) else 8


def encode_column(column: Column, strings: dict[str, int]) -> tuple[str, bytes]:
    if isinstance(column, np.ndarray):
        if np.issubdtype(column.dtype, np.floating):
            if not np.isfinite(column).all():
                raise FormatError("a column holds a number that is not finite")
            return "f", column.astype("<f8").tobytes()
        return _pack_integers(column.astype("<i8"))
    indices = [
        -1 if text is None else strings.setdefault(_shorten(text), len(strings)) for text in column
    ]
    return "s", _transpose(_differences(np.asarray(indices, "<i8")))


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_STRING_CHARACTERS else text[: MAX_STRING_CHARACTERS - 1] + "…"


def decode_table(
    columns: Sequence[tuple[str, Any, int]],
    takes: Sequence[Take],
    strings: Sequence[str],
    is_needed: Callable[[str], bool] = lambda name: True,
) -> dict[str, Any]:
    """Decode the columns of a table, of several frames one after the other.

    Columns of one value take no memory and are read-only. Name, type and length of each column are
    the same in all frames; those that are not needed may be left out."""
    sizes = [length * value_bytes(kind) for _, kind, length in columns]
    if sum(sizes) * len(takes) > _AT_ONCE:
        # Column by column: all stored bytes would be about as large as the values.
        groups, stored = [[at] for at in range(len(columns))], None
    else:
        # All columns of a type at once, which takes a fraction of the time.
        by_kind: dict[str, list[int]] = {}
        for at, (name, kind, _) in enumerate(columns):
            if is_needed(name):
                by_kind.setdefault(str(kind), []).append(at)
        groups = list(by_kind.values())
        stored = np.frombuffer(b"".join(take(sum(sizes)) for take in takes), np.uint8).reshape(
            len(takes), -1
        )
    starts = list(itertools.accumulate(sizes, initial=0))
    table: dict[str, Any] = {}
    for group in groups:
        _, kind, length = columns[group[0]]
        if not isinstance(kind, str) or kind not in {"f", "s", *_PLANES}:
            raise FormatError(f"frame holds a column of unknown type {kind!r:.20}")
        count, width = (1, 8 * length) if kind == "f" else (_PLANES.get(kind, 8), length)
        planes = _planes(stored, takes, [starts[at] for at in group], count, width)
        decoded: Sequence[Any] = (
            _floats(next(planes)) if kind == "f" else _integers(kind in "is", planes)
        )
        if kind == "s":
            decoded = [_texts(column, strings) for column in decoded]
        table.update(zip((columns[at][0] for at in group), decoded, strict=True))
    return table


def _planes(
    stored: npt.NDArray[np.uint8] | None,
    takes: Sequence[Take],
    starts: Sequence[int],
    planes: int,
    length: int,
) -> Iterator[npt.NDArray[np.uint8]]:
    """The bytes of columns of one type, which begin at `starts`: `planes` arrays of shape [columns,
    frames, length].

    `stored` are those of all columns, shape [frames, bytes]; None if `takes` yield them for the
    only column."""
    if stored is None:
        for _ in range(planes):
            yield np.stack([np.frombuffer(take(length), np.uint8) for take in takes])[None]
        return
    of_columns = np.empty((len(stored), len(starts), planes, length), np.uint8)
    for at, start in enumerate(starts):
        of_columns[:, at] = stored[:, start : start + planes * length].reshape(
            len(stored), planes, length
        )
    for plane in range(planes):
        yield of_columns[:, :, plane].transpose(1, 0, 2)


def _floats(stored: npt.NDArray[np.uint8]) -> list[Floats]:
    values = np.ascontiguousarray(stored).view("<f8").astype(np.float64, copy=False)
    if not np.isfinite(values).all():
        raise FormatError("frame holds a number that is not finite")
    return list(values.reshape(len(values), values.shape[1] * values.shape[2]))


def _texts(indices: Integers, strings: Sequence[str]) -> tuple[str | None, ...]:
    if len(indices) and (indices.min() < -1 or indices.max() >= len(strings)):
        raise FormatError(f"frame refers to string {int(indices.max())} of {len(strings)}")
    table = [*strings, None]
    parts = (
        indices[at : at + _AT_ONCE // 8].tolist() for at in range(0, len(indices), _AT_ONCE // 8)
    )
    return tuple(table[index] for part in parts for index in part)


def _integers(are_differences: bool, planes: Iterator[npt.NDArray[np.uint8]]) -> list[Integers]:
    """Columns from the bytes of their values, lowest first."""
    lowest = next(planes)
    count, frames, length = lowest.shape
    values = np.zeros((count, frames, length, 8), np.uint8)
    for at, plane in enumerate(itertools.chain([lowest], planes)):
        values[..., at] = plane
    integers = values.view("<i8")[..., 0].astype(np.int64, copy=False)
    if are_differences:
        np.cumsum(integers, axis=2, out=integers)
    columns = integers.reshape(count, frames * length)
    varying = (columns != columns[:, :1]).any(axis=1)
    if varying.all() or not columns.size:
        return list(columns)
    # Columns of one value are views of it.
    flat, kept = np.broadcast_to(columns[:, :1].copy(), columns.shape), iter(columns[varying])
    return [
        next(kept) if varies else one for one, varies in zip(flat, varying.tolist(), strict=True)
    ]


def _pack_integers(values: npt.NDArray[np.int64]) -> tuple[str, bytes]:
    """Type and bytes of an integer column, transposed: this compresses several times better.

    Differences are stored where they need at least one byte less than the values (steps,
    addresses). Other values (sizes that rarely change) are stored without the high bytes that are
    zero in all of them."""
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
    """One decoded frame: the index of its stream in `metadata.STREAMS`, and its place in stream and
    session, from 0.

    The tables have columns by name: an int64 array, a float64 array, or a tuple of strings and
    None."""

    stream: int
    sequence: int
    first_step: int
    last_step: int
    rows: int
    attributes: Mapping[str, Any]
    tables: Mapping[str, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class FrameHead(Frame):
    """A frame without its columns: `tables` has the name, type and length of each, `strings` those
    that they use."""

    tables: Mapping[str, Sequence[tuple[str, Any, int]]]  # type: ignore[assignment]
    strings: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the columns, strings and attributes in memory, at most."""
        values = sum(length for columns in self.tables.values() for _, _, length in columns)
        return 8 * values + _json_bytes([*self.strings, self.attributes])


class OpenFrame:
    """A frame whose columns are decoded later, or never: `head_only`. `text` is the JSON of the
    body's head."""

    def __init__(self, data: bytes, head_only: bool = False) -> None:
        self._fixed = _check_header(data)
        _, self.sequence, self.first_step, self.last_step, _, self.body_bytes = self._fixed
        body = _Body(memoryview(data)[_HEADER.size :], self.body_bytes, head_only)
        self.take = body.take
        prefix = body.take(min(4, self.body_bytes))
        head_bytes = int.from_bytes(prefix, "little")
        if len(prefix) < 4 or 4 + head_bytes > self.body_bytes or head_bytes > MAX_HEAD_BYTES:
            raise FormatError(
                f"frame's head of {head_bytes} bytes is over its body of {self.body_bytes} bytes "
                f"or the limit of {MAX_HEAD_BYTES}"
            )
        self.text = body.take(head_bytes)

    def head(self) -> FrameHead:
        attributes, strings, described = _parse_head(self.text)
        tables = _check_tables(described, self.body_bytes - 4 - len(self.text))
        return FrameHead(*self._fixed[:-1], attributes, tables, tuple(strings))


class _Body:
    """A body that is inflated in order, without holding all of it. One of at most `_WHOLE` bytes is
    checked at once.

    The checksum at the end of `packed` is not compared: the frame's covers all of its bytes, and
    this one takes a fifth of the time of inflating. With `head_only` little is inflated at once,
    and nothing is checked."""

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


@dataclasses.dataclass(frozen=True)
class PackedFrame:
    """A frame's bytes but for its place in the stream, which `encode` adds."""

    stream: int
    first_step: int
    last_step: int
    rows: int
    body_bytes: int
    packed: bytes

    def encode(self, sequence: int) -> bytes:
        place = (
            self.stream,
            0,
            sequence,
            self.first_step,
            self.last_step,
            self.rows,
            self.body_bytes,
        )
        header = _HEADER.pack(MAGIC, FORMAT_VERSION, *place)
        rest = header[_CRC_FROM:] + self.packed
        return header[: _CRC_FROM - 4] + struct.pack("<I", _checksum(header, rest)) + rest


def encode(frame: Frame, level: int = 1) -> bytes:
    return pack(frame, level).encode(frame.sequence)


def pack(frame: Frame, level: int = 1) -> PackedFrame:
    strings: dict[str, int] = {}
    described: dict[str, list[list[Any]]] = {}
    parts: list[bytes] = []
    for table_name, table in frame.tables.items():
        _check_lengths(table_name, {len(column) for column in table.values()})
        described[table_name] = []
        for column_name, column in table.items():
            kind, data = encode_column(column, strings)
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
            f"frame of {len(body)} bytes ({len(packed)} compressed) is over the limit of "
            f"{MAX_BODY_BYTES} ({MAX_FRAME_BYTES} compressed); write fewer rows per frame"
        )
    return PackedFrame(
        frame.stream, frame.first_step, frame.last_step, frame.rows, len(body), packed
    )


def decode(data: bytes) -> Frame:
    opened = OpenFrame(data)
    return decode_columns(opened.head(), [opened])


def decode_columns(
    head: FrameHead,
    frames: Sequence[OpenFrame],
    is_needed: Callable[[str], bool] = lambda name: True,
) -> Frame:
    """The rows of frames with equal heads, one after the other, as one frame; its other fields are
    those of `head`."""
    takes = [frame.take for frame in frames]
    tables = {
        name: decode_table(columns, takes, head.strings, is_needed)
        for name, columns in head.tables.items()
    }
    return Frame(
        head.stream,
        head.sequence,
        head.first_step,
        head.last_step,
        head.rows,
        head.attributes,
        tables,
    )


def _check_header(data: bytes) -> tuple[int, int, int, int, int, int]:
    if len(data) < _HEADER.size:
        raise FormatError(
            f"frame of {len(data)} bytes is shorter than its header of {_HEADER.size}"
        )
    if len(data) > MAX_FRAME_BYTES:
        raise FormatError(f"frame of {len(data)} bytes is over the limit of {MAX_FRAME_BYTES}")
    magic, version, stream, crc, sequence, first_step, last_step, rows, body_bytes = (
        _HEADER.unpack_from(data)
    )
    if magic != MAGIC:
        raise FormatError(f"not a frame: it starts with {bytes(magic)!r}, expected {MAGIC!r}")
    if version > FORMAT_VERSION:
        raise NewerFormatError(
            f"frame of format {version}; this version reads format {FORMAT_VERSION}: upgrade "
            "tb_memplugin"
        )
    if version < FORMAT_VERSION:
        raise FormatError(f"frame of unknown format {version}")
    if _checksum(data, memoryview(data)[_CRC_FROM:]) != crc:
        raise FormatError("frame is damaged: its checksum does not match")
    if body_bytes > MAX_BODY_BYTES:
        raise FormatError(
            f"frame's body of {body_bytes} bytes is over the limit of {MAX_BODY_BYTES}"
        )
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
    if (
        not isinstance(attributes, dict)
        or not isinstance(strings, list)
        or not isinstance(described, dict)
    ):
        raise FormatError("frame's head lacks attributes, strings or tables")
    if (
        not {str}.issuperset(map(type, strings))
        or max(map(len, strings), default=0) > MAX_STRING_CHARACTERS
    ):
        raise FormatError(
            f"frame's strings must be texts of at most {MAX_STRING_CHARACTERS} characters"
        )
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
                isinstance(column, list)
                and len(column) == 3
                and isinstance(column[0], str)
                and type(column[2]) is int
            ):
                raise FormatError(
                    f"table {table_name!r} needs columns of [name, type, length]. Received: "
                    f"{column!r:.80}"
                )
            name, kind, length = column
            if length < 0 or at + length * value_bytes(kind) > size:
                raise FormatError(f"column {name!r} of {length} values does not fit the frame")
            at += length * value_bytes(kind)
            table.append((name, kind, length))
        _check_lengths(table_name, {length for _, _, length in table})
    if at != size:
        raise FormatError(f"frame has {size - at} bytes after its last column")
    return tables
