"""Recorded activation bytes of a long run, without joining them into one table.

100,000 steps of 300 layers are 240 MB as one array, and a page shows some thousand rows of them: rows are picked from
the frames' own arrays.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_memplugin.codec import MISSING
from tb_memplugin.model import Floats, Integers, LayerActivations

_MOST = 2.0**62
"""Row sums stop here: a stranger's figures may be so large that an integer would overflow."""


class ActivationRows:
    """The rows of several tables, one after another.

    Args:
        parts: The tables, rows in the order in which they are to be shown.

    Attributes:
        step, wall_time: Of the rows.
        totals: Sum of each row's bytes; what is `codec.MISSING` counts as nothing.
        layers: Layer paths of all parts, one a column.
        nbytes: Memory that the parts take.
    """

    def __init__(self, parts: Sequence[LayerActivations]) -> None:
        self._parts = [part for part in parts if len(part) and part.layers]
        self._ends = np.cumsum([len(part) for part in self._parts], dtype=np.int64)
        columns: dict[str, int] = {}
        for layers in dict.fromkeys(part.layers for part in self._parts):
            for path in layers:
                columns.setdefault(path, len(columns))
        self._columns = columns
        self.layers = tuple(columns)
        self.step: Integers = _joined([part.step for part in self._parts], np.int64)
        self.wall_time: Floats = _joined([part.wall_time for part in self._parts], np.float64)
        self.totals: Integers = _joined([row_sums(part.bytes) for part in self._parts], np.int64)
        self.nbytes = sum(part.bytes.nbytes + 24 * len(part) for part in self._parts)

    def __len__(self) -> int:
        return len(self.step)

    def take(self, rows: npt.NDArray[np.intp]) -> LayerActivations:
        """The given rows, which are in ascending order, as one table."""
        values = np.full((len(rows), len(self.layers)), MISSING, np.int64)
        # Where the rows of each part begin and end among those asked for.
        edges = np.searchsorted(rows, self._ends, side="left").tolist()
        begin, start = 0, 0
        for part, end, stop in zip(self._parts, edges, self._ends.tolist(), strict=True):
            if end > begin:
                picked = part.bytes[rows[begin:end] - start]
                if part.layers == self.layers:
                    values[begin:end] = picked
                else:
                    values[begin:end, [self._columns[path] for path in part.layers]] = picked
            begin, start = end, stop
        return LayerActivations(self.step[rows], self.wall_time[rows], self.layers, values)


def row_sums(values: Integers) -> Integers:
    """The sum of each row of `values`, shape [rows, columns]; what is `MISSING` counts as nothing."""
    sums: Integers = np.minimum(np.maximum(values, 0).sum(axis=1, dtype=np.float64), _MOST).astype(np.int64)
    return sums


def _joined(arrays: Sequence[npt.NDArray[Any]], kind: type) -> npt.NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.empty(0, kind)
