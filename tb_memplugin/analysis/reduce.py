"""Fewer rows for the screen: real rows, and in every bucket those of the lowest and the highest figures. Pure."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from tb_memplugin.codec import MISSING
from tb_memplugin.model import Integers

Rows = npt.NDArray[np.intp]


def extreme_rows(columns: Sequence[Integers], limit: int, always: Iterable[int] = ()) -> Rows:
    """Rows to show, in order: all of them if they are at most `limit`, else about that many.

    The rows are cut into buckets of equal size; each keeps the first row of its lowest and of its highest value in each
    of `columns` (int64 of equal length, `MISSING` ignored). First and last row and `always` stay too.
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
        # The largest int64 in place of what is missing keeps it from being the lowest.
        known = np.where(column == MISSING, np.iinfo(np.int64).max, column)
        chosen.append(_first_equal(known, np.minimum.reduceat(known, edges), edges, sizes))
    return np.unique(np.concatenate(chosen))


def _first_equal(column: Integers, targets: Integers, edges: Rows, sizes: Rows) -> Rows:
    """The first row of each bucket whose value is the bucket's target."""
    equal = np.flatnonzero(column == np.repeat(targets, sizes))
    bucket = np.searchsorted(edges, equal, side="right")
    _, first = np.unique(bucket, return_index=True)
    return np.asarray(equal[first], np.intp)
