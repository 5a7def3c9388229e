"""Columns of a frame to bytes and back.

Column types: ``f`` float64; ``i`` int64 (differences of neighbors, transposed: first the lowest bytes of all values,
then the next); ``r1`` to ``r8`` int64 (values, transposed, only the 1 to 8 lowest bytes, the others being zero); ``s``
index into the frame's strings (stored as ``i``; -1 is null).
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tb_memplugin.errors import FormatError
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
    indices = [-1 if text is None else strings.setdefault(_shorten(text), len(strings)) for text in column]
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

    Columns of one value take no memory and are read-only. Name, type and length of each column are the same in all
    frames; those that are not needed may be left out.
    """
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
        stored = np.frombuffer(b"".join(take(sum(sizes)) for take in takes), np.uint8).reshape(len(takes), -1)
    starts = list(itertools.accumulate(sizes, initial=0))
    table: dict[str, Any] = {}
    for group in groups:
        _, kind, length = columns[group[0]]
        if not isinstance(kind, str) or kind not in {"f", "s", *_PLANES}:
            raise FormatError(f"frame holds a column of unknown type {kind!r:.20}")
        count, width = (1, 8 * length) if kind == "f" else (_PLANES.get(kind, 8), length)
        planes = _planes(stored, takes, [starts[at] for at in group], count, width)
        decoded: Sequence[Any] = _floats(next(planes)) if kind == "f" else _integers(kind in "is", planes)
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
    """The bytes of columns of one type, which begin at `starts`: `planes` arrays of shape [columns, frames, length].

    `stored` are those of all columns, shape [frames, bytes]; None if `takes` yield them for the only column.
    """
    if stored is None:
        for _ in range(planes):
            yield np.stack([np.frombuffer(take(length), np.uint8) for take in takes])[None]
        return
    of_columns = np.empty((len(stored), len(starts), planes, length), np.uint8)
    for at, start in enumerate(starts):
        of_columns[:, at] = stored[:, start : start + planes * length].reshape(len(stored), planes, length)
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
    parts = (indices[at : at + _AT_ONCE // 8].tolist() for at in range(0, len(indices), _AT_ONCE // 8))
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
    return [next(kept) if varies else one for one, varies in zip(flat, varying.tolist(), strict=True)]


def _pack_integers(values: npt.NDArray[np.int64]) -> tuple[str, bytes]:
    """Type and bytes of an integer column, transposed: this compresses several times better.

    Differences are stored where they need at least one byte less than the values (steps, addresses). Other values
    (sizes that rarely change) are stored without the high bytes that are zero in all of them.
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
