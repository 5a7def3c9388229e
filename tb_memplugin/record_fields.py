"""Checked reading of a frame's tables, columns and attributes: what does not hold is a `FormatError`."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tb_memplugin import codec
from tb_memplugin.codec import MISSING, Frame
from tb_memplugin.errors import FormatError
from tb_memplugin.metadata import STREAMS

MAX_BYTES = 2**53 - 1
"""Largest byte count that is believed (8 PiB): what a JavaScript number holds exactly."""


def make_frame(
    stream: str, sequence: int, steps: Any, attributes: Mapping[str, Any], tables: Mapping[str, Any]
) -> Frame:
    """A frame of `stream` whose steps are `steps`."""
    if not len(steps):
        raise FormatError(f"a frame of stream {stream} needs at least one row")
    return Frame(
        STREAMS.index(stream), sequence, int(np.min(steps)), int(np.max(steps)), len(steps), attributes, tables
    )


def optional_column(values: Sequence[int | None]) -> codec.IntColumn:
    """Integers with `MISSING` for None."""
    return np.asarray([MISSING if value is None else value for value in values], np.int64)


def maybe(value: Any) -> int | None:
    """None for `MISSING`."""
    return None if value == MISSING else int(value)


def table_of(frame: Frame, name: str) -> Mapping[str, Any]:
    """The table called `name`."""
    table = frame.tables.get(name)
    if table is None:
        raise FormatError(f"frame of stream {frame.stream} lacks the table {name!r}")
    return table


def column_of(table: Mapping[str, Any], name: str, kind: type) -> Any:
    """The column called `name`, of type `kind`."""
    column = table.get(name)
    if not isinstance(column, kind):
        raise FormatError(f"column {name!r:.80} is missing or of another type")
    return column


def integers(table: Mapping[str, Any], name: str) -> codec.IntColumn:
    """A column of integers."""
    column: codec.IntColumn = column_of(table, name, np.ndarray)
    if column.dtype != np.int64:
        raise FormatError(f"column {name!r:.80} does not hold integers")
    return column


def floats(table: Mapping[str, Any], name: str) -> codec.FloatColumn:
    """A column of numbers."""
    column: codec.FloatColumn = column_of(table, name, np.ndarray)
    if column.dtype != np.float64:
        raise FormatError(f"column {name!r:.80} does not hold numbers")
    return column


def strings(table: Mapping[str, Any], name: str) -> tuple[str | None, ...]:
    """A column of texts and None."""
    column: tuple[str | None, ...] = column_of(table, name, tuple)
    return column


def byte_column(table: Mapping[str, Any], name: str) -> codec.IntColumn:
    """A column of byte counts or `MISSING`."""
    column = integers(table, name)
    known = column[column != MISSING]
    if len(known) and (known.min() < 0 or known.max() > MAX_BYTES):
        raise FormatError(
            f"column {name!r:.80} holds {int(known.min())} to {int(known.max())}, which are no byte counts"
        )
    return column


def known_bytes(table: Mapping[str, Any], name: str) -> list[int]:
    """A column of byte counts, all known."""
    column = byte_column(table, name)
    if (column == MISSING).any():
        raise FormatError(f"column {name!r:.80} lacks a byte count")
    values: list[int] = column.tolist()
    return values


def steps_of(table: Mapping[str, Any]) -> codec.IntColumn:
    """The column ``step``."""
    column = integers(table, "step")
    if len(column) and (column.min() < 0 or column.max() > MAX_BYTES):
        raise FormatError(f"steps {int(column.min())} to {int(column.max())} are out of range")
    return column


def text(value: Any) -> str:
    """A text of a length that is read."""
    if not isinstance(value, str) or len(value) > codec.MAX_STRING_CHARACTERS:
        raise FormatError(f"expected a text of at most {codec.MAX_STRING_CHARACTERS} characters, got {value!r:.40}")
    return value


def number(attributes: Mapping[str, Any], name: str) -> float:
    """A finite number among the attributes."""
    value = attributes.get(name)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_BYTES:
        return float(value)
    if not isinstance(value, float) or not math.isfinite(value):
        raise FormatError(f"attribute {name!r} is not a number: {value!r:.40}")
    return value


def size(attributes: Mapping[str, Any], name: str) -> int:
    """A byte count among the attributes."""
    value = attributes.get(name)
    if type(value) is not int or not 0 <= value <= MAX_BYTES:
        raise FormatError(f"attribute {name!r} is not a byte count: {value!r:.40}")
    return value


def optional_size(attributes: Mapping[str, Any], name: str) -> int | None:
    """A byte count among the attributes, or None."""
    return None if attributes.get(name) is None else size(attributes, name)
