"""Columns of a frame to bytes and back.

Column types: ``f`` float64; ``i`` int64 (differences of neighbors, transposed: first the lowest bytes of all values,
then the next); ``r1`` to ``r8`` int64 (values, transposed, only the 1 to 8 lowest bytes, the others being zero); ``s``
index into the frame's strings (stored as ``i``; -1 is null).
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tb_memplugin.errors import FormatError
from tb_memplugin.model import Floats, Integers

MAX_STRING_CHARACTERS = 4096
"""Longest string that is written or read (a layer path, a sentence)."""
_PLAIN_KINDS = {f"r{planes}": planes for planes in range(1, 9)}

_AT_ONCE = 1 << 16
"""Values that are decoded at once; longer columns are decoded in parts, which bounds the copies of them."""

Take: TypeAlias = Callable[[int], bytes | memoryview]
"""Size to the next bytes of a frame's body."""
StringColumn: TypeAlias = Sequence[str | None]
Column: TypeAlias = Integers | Floats | StringColumn


def value_bytes(kind: Any) -> int:
    """Bytes of one value of a column of type `kind`; 8 for types that `decode_column` refuses."""
    return _PLAIN_KINDS.get(kind, 8) if isinstance(kind, str) else 8


def memory_bytes(kind: Any) -> int:
    """Bytes of the smallest integers that hold the stored bytes of each value."""
    stored = value_bytes(kind)
    return next(size for size in (1, 2, 4, 8) if size >= stored)


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


def decode_column(kind: Any, length: int, take: Take, strings: list[str]) -> Any:
    """Decode a column of `length` values, whose bytes `take` yields."""
    if kind == "f":
        values = np.frombuffer(take(8 * length), "<f8").astype(np.float64)
        if not np.isfinite(values).all():
            raise FormatError("frame holds a number that is not finite")
        return values
    if kind == "i":
        return _sums(_untranspose(take, length, 8))
    if kind in _PLAIN_KINDS:
        return _untranspose(take, length, _PLAIN_KINDS[kind])
    if kind == "s":
        indices = _sums(_untranspose(take, length, 8))
        if length and (indices.min() < -1 or indices.max() >= len(strings)):
            raise FormatError(f"frame refers to string {int(indices.max())} of {len(strings)}")
        table = [*strings, None]
        parts = (indices[at : at + _AT_ONCE].tolist() for at in range(0, length, _AT_ONCE))
        return tuple(table[index] for part in parts for index in part)
    raise FormatError(f"frame holds a column of unknown type {kind!r:.20}")


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


def _untranspose(take: Take, length: int, planes: int) -> Integers:
    values = np.zeros((length, 8), np.uint8)
    if length <= _AT_ONCE:
        values[:, :planes] = np.frombuffer(take(planes * length), np.uint8).reshape(planes, length).T
    else:
        for plane in range(planes):
            values[:, plane] = np.frombuffer(take(length), np.uint8)
    return values.view("<i8").reshape(-1).astype(np.int64, copy=False)


def _sums(differences: Integers) -> Integers:
    return np.cumsum(differences, out=differences)
