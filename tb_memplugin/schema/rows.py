"""Rows of records whose fields are columns: selecting and joining.

A column of one value takes no memory and is read-only: it is one number with a stride of zero. Capacities, phases and
unknown figures are such columns.
"""

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from tb_memplugin.schema.fields import Field, fields_of

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
        devices = field.kind == "devices"
        changed[field.name] = (
            {name: each_column(one, change) for name, one in value.items()} if devices else change(value)
        )
    return replace(record, **changed)  # type: ignore[type-var]  # records are dataclasses


def join_rows(records: Sequence[Record]) -> Record:
    """The rows of records without devices, one after the other; the first record has the other fields."""
    kind: Any = type(records[0])
    columns = {field.name: joined([getattr(one, field.name) for one in records]) for field in _columns(kind)}
    return replace(records[0], **columns)  # type: ignore[type-var]  # records are dataclasses


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
