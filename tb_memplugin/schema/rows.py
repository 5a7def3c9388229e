"""Rows of records whose fields are columns: selecting, joining, and reducing for the screen.

A column of one value takes no memory and is read-only: it is one number with a stride of zero. Capacities, phases and
unknown figures are such columns.
"""

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from tb_memplugin.schema.fields import MISSING, Field, Integers, fields_of

Record = TypeVar("Record")
Rows: TypeAlias = slice | Sequence[int] | npt.NDArray[np.intp] | npt.NDArray[np.bool_]


def take_rows(record: Record, rows: Rows) -> Record:
    """The given rows."""
    if not isinstance(rows, (slice, np.ndarray)):
        rows = np.asarray(rows, np.intp)

    def taken(column: Any) -> Any:
        if isinstance(column, tuple):
            return tuple(column[at] for at in np.arange(len(column))[rows].tolist())
        if not isinstance(rows, slice) and len(column) and column.strides == (0,):
            return np.broadcast_to(column[0], int(np.count_nonzero(rows)) if rows.dtype == np.bool_ else len(rows))
        return column[rows]

    return each_column(record, taken)


def each_column(record: Record, change: Callable[[Any], Any]) -> Record:
    """The record with every column changed."""
    kind: Any = type(record)
    changed: dict[str, Any] = {}
    for field in _columns(kind):
        value = getattr(record, field.name)
        if field.kind == "devices":
            changed[field.name] = {name: each_column(one, change) for name, one in value.items()}
        else:
            changed[field.name] = change(value)
    return replace(record, **changed)  # type: ignore[type-var]  # records are dataclasses


def join_rows(records: Sequence[Record], devices: Collection[str] | None = None) -> Record:
    """The rows of records, one after the other; the first record has the other fields.

    Of the devices, these are kept, by default all; `MISSING` where a record lacks one.
    """
    kind: Any = type(records[0])
    return replace(records[0], **{one.name: _joined_field(records, one, devices) for one in _columns(kind)})  # type: ignore[type-var]


def _joined_field(records: Sequence[Any], field: Field, devices: Collection[str] | None) -> Any:
    values = [getattr(one, field.name) for one in records]
    if field.kind != "devices":
        return joined(values)
    names = dict.fromkeys(name for value in values for name in value) if devices is None else devices
    unknown = [np.broadcast_to(np.int64(MISSING), len(one)) for one in records]
    parts = [part.name for part in fields_of(field.record)]

    def column(name: str, part: str) -> Any:
        own = zip(values, unknown, strict=True)
        return joined([getattr(value[name], part) if name in value else missing for value, missing in own])

    return {name: field.record(**{part: column(name, part) for part in parts}) for name in names}


def all_columns(record: Any) -> Iterator[Any]:
    """The columns of a record, also those of its devices."""
    kind: Any = type(record)
    for field in _columns(kind):
        value = getattr(record, field.name)
        if field.kind == "devices":
            yield from (getattr(one, part.name) for one in value.values() for part in fields_of(field.record))
        else:
            yield value


@functools.cache
def _columns(record: Any) -> list[Field]:
    """The fields of a value for each row: those in the table of the first column, and devices and matrices."""
    fields = [field for field in fields_of(record) if field.table or field.kind in ("integers", "numbers")]
    return [field for field in fields if field.table == fields[0].table or field.matrix]


def joined(columns: Sequence[Any]) -> Any:
    """One column of several."""
    if isinstance(columns[0], tuple):
        return tuple(itertools.chain(*columns))
    return flat(np.concatenate(columns))


def flat(column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A column; one of equal values takes no memory and is read-only."""
    if not len(column) or column[-1] != column[0] or (column != column[0]).any():
        return column
    return np.broadcast_to(column[0].copy(), len(column))


def extreme_rows(columns: Sequence[Integers], limit: int, always: Iterable[int] = ()) -> npt.NDArray[np.intp]:
    """Indices of the rows to show, in order: all if they are at most `limit`, else about that many.

    Each bucket of equal size keeps the first row with its lowest and the first with its highest value in each column;
    `MISSING` values are ignored. The first row, the last row and those of `always` stay too.
    """
    rows = len(columns[0])
    if rows <= limit:
        return np.arange(rows)
    buckets = max(1, limit // (2 * len(columns)))
    edges = np.linspace(0, rows, buckets + 1).astype(np.intp)[:-1]
    sizes = np.diff(np.append(edges, rows))
    chosen = [np.asarray([0, rows - 1], np.intp), np.fromiter(always, np.intp)]
    for column in columns:
        # MISSING is the lowest int64: replace it to find the lowest known value.
        known = np.where(column == MISSING, np.iinfo(np.int64).max, column)
        for values, extreme in ((column, np.maximum), (known, np.minimum)):
            equal = np.flatnonzero(values == np.repeat(extreme.reduceat(values, edges), sizes))
            _, first = np.unique(np.searchsorted(edges, equal, side="right"), return_index=True)
            chosen.append(equal[first])
    return np.unique(np.concatenate(chosen))
