"""Validated access to a frame's tables, columns and attributes.

A run directory may come from a stranger, so indices, signs and lengths are checked even in frames with a valid
checksum. Invalid values raise `FormatError` and cost only their frame.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tb_memplugin.errors import FormatError
from tb_memplugin.events.frames.codec import Frame
from tb_memplugin.events.frames.column_codec import MAX_STRING_CHARACTERS
from tb_memplugin.events.frames.metadata import STREAMS
from tb_memplugin.model import MISSING, PHASES, Floats, Integers

MAX_BYTES = 2**53 - 1
"""Largest accepted byte count (8 PiB): the largest integer that JavaScript represents exactly."""

_FEW_ROWS = 4096

MAX_LAYERS = 100_000
"""Most layers of a table; the reader refuses more before it builds objects."""


def make_frame(
    stream: str, sequence: int, steps: Any, attributes: Mapping[str, Any], tables: Mapping[str, Any]
) -> Frame:
    """Build a frame of `stream` for the steps `steps`."""
    if not len(steps):
        raise FormatError(f"a frame of stream {stream} needs at least one row. Received: no rows")
    first, last = int(np.min(steps)), int(np.max(steps))
    return Frame(STREAMS.index(stream), sequence, first, last, len(steps), attributes, tables)


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
    """The column called `name`, which must have type `kind`."""
    column = table.get(name)
    if not isinstance(column, kind):
        raise FormatError(f"column {name!r:.80} is missing or of another type")
    return column


def integers(table: Mapping[str, Any], name: str) -> Integers:
    """A column of integers."""
    column: Integers = column_of(table, name, np.ndarray)
    if column.dtype != np.int64:
        raise FormatError(f"column {name!r:.80} does not hold integers")
    return column


def floats(table: Mapping[str, Any], name: str) -> Floats:
    """A column of numbers."""
    column: Floats = column_of(table, name, np.ndarray)
    if column.dtype != np.float64:
        raise FormatError(f"column {name!r:.80} does not hold numbers")
    return column


def strings(table: Mapping[str, Any], name: str) -> tuple[str | None, ...]:
    """A column of texts and None."""
    column: tuple[str | None, ...] = column_of(table, name, tuple)
    return column


def byte_column(table: Mapping[str, Any], name: str) -> Integers:
    """A column of byte counts or `MISSING`."""
    column = integers(table, name)
    if len(column):
        values = column[:1] if column.strides == (0,) else column
        least, most = int(values.min()), int(values.max())
        if least == MISSING:
            least = int(values.min(where=values != MISSING, initial=most))
        if most != MISSING and (least < 0 or most > MAX_BYTES):
            raise FormatError(f"column {name!r:.80} holds {least} to {most}; byte counts are 0 to {MAX_BYTES}")
    return column


def byte_columns(table: Mapping[str, Any], names: Sequence[str]) -> list[Integers]:
    """Columns of byte counts or `MISSING`."""
    columns = [integers(table, name) for name in names]
    if columns and {len(column) for column in columns} == {len(columns[0])} and len(columns[0]) <= _FEW_ROWS:
        # Short ones are checked together, which takes a fraction of the time.
        values = np.stack(columns)
        if not ((values > MAX_BYTES) | ((values < 0) & (values != MISSING))).any():
            return columns
    return [byte_column(table, name) for name in names]


def known_bytes(table: Mapping[str, Any], name: str) -> list[int]:
    """A column of byte counts, all known."""
    column = byte_column(table, name)
    if (column == MISSING).any():
        raise FormatError(f"column {name!r:.80} lacks a byte count")
    values: list[int] = column.tolist()
    return values


def steps_of(table: Mapping[str, Any]) -> Integers:
    """The column ``step``."""
    column = integers(table, "step")
    if len(column) and (column.min() < 0 or column.max() > MAX_BYTES):
        raise FormatError(f"steps {int(column.min())} to {int(column.max())} are out of range")
    return column


def text(value: Any) -> str:
    """A text of at most `MAX_STRING_CHARACTERS` characters."""
    if not isinstance(value, str) or len(value) > MAX_STRING_CHARACTERS:
        raise FormatError(f"expected a text of at most {MAX_STRING_CHARACTERS} characters, got {value!r:.40}")
    return value


def device(value: Any) -> str:
    """The name of a device."""
    if not isinstance(value, str) or not 0 < len(value) <= MAX_STRING_CHARACTERS:
        raise FormatError(f"device names must be texts of 1 to {MAX_STRING_CHARACTERS} characters, got {value!r:.40}")
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


def optional_text(value: Any) -> str | None:
    """A text among the attributes, or None."""
    return None if value is None else text(value)


def optional_phase(value: Any) -> Any:
    """One of `PHASES`, or None."""
    if value is not None and value not in PHASES:
        raise FormatError(f"unknown phase {value!r:.20}")
    return value


def check_range(name: str, column: Integers, least: int, most: int) -> None:
    """Raise FormatError if a column has a value outside `least` to `most`."""
    if len(column) and (column.min() < least or column.max() > most):
        raise FormatError(f"column {name!r} holds {int(column.min())} to {int(column.max())}, not {least} to {most}")
