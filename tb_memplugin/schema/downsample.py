"""Reduces rows for the screen, keeping the rows with the lowest and highest values of every bucket. Pure."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from tb_memplugin.schema.basics import MISSING, Integers

Rows = npt.NDArray[np.intp]


def extreme_rows(columns: Sequence[Integers], limit: int, always: Iterable[int] = ()) -> Rows:
    """Indices of the rows to show, in order: all if they are at most `limit`, else about that many.

    Each bucket of equal size keeps the first row with its lowest and the first with its highest value in each column.
    The first row, the last row and those of `always` stay too.

    Args:
        columns: int64 of equal length; `MISSING` values are ignored.
        limit: About the most rows.
        always: Rows that must be kept.
    """
    rows = len(columns[0])
    if rows <= limit:
        return np.arange(rows)
    buckets = max(1, limit // (2 * len(columns)))
    edges = np.linspace(0, rows, buckets + 1).astype(np.intp)[:-1]
    sizes = np.diff(np.append(edges, rows))
    chosen = [np.asarray([0, rows - 1], np.intp), np.fromiter(always, np.intp)]
    for column in columns:
        chosen.append(_first_equal(column, np.maximum.reduceat(column, edges), edges, sizes))
        # MISSING is the lowest int64: replace it to find the lowest known value.
        known = np.where(column == MISSING, np.iinfo(np.int64).max, column)
        chosen.append(_first_equal(known, np.minimum.reduceat(known, edges), edges, sizes))
    return np.unique(np.concatenate(chosen))


def _first_equal(column: Integers, targets: Integers, edges: Rows, sizes: Rows) -> Rows:
    """The first row of each bucket with the bucket's target value."""
    equal = np.flatnonzero(column == np.repeat(targets, sizes))
    bucket = np.searchsorted(edges, equal, side="right")
    _, first = np.unique(bucket, return_index=True)
    return np.asarray(equal[first], np.intp)
