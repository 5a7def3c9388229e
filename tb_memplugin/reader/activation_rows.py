"""Rows of recorded activation bytes, without joining all frames into one table.

100,000 steps × 300 layers are 240 MB as one array, but a page shows a few thousand rows, so rows are taken from the
frames' arrays.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_memplugin.model import MISSING, Floats, Integers, LayerActivations

_MOST = 2.0**62
"""Limit of row sums: hostile values would overflow an integer."""


class ActivationRows:
    """The rows of several tables, concatenated.

    Args:
        parts: The tables, in display order.

    Attributes:
        step, wall_time: Of each row.
        totals: Sum of each row's bytes; `MISSING` counts as 0.
        layers: Layer paths of all parts, one per column.
        nbytes: Memory of the parts.
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
        """The given rows, in ascending order, as one table."""
        values = np.full((len(rows), len(self.layers)), MISSING, np.int64)
        # The requested rows of each part.
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
    """The sum of each row of `values`, shape [rows, columns]; `MISSING` counts as 0."""
    sums: Integers = np.minimum(np.maximum(values, 0).sum(axis=1, dtype=np.float64), _MOST).astype(np.int64)
    return sums


def _joined(arrays: Sequence[npt.NDArray[Any]], kind: type) -> npt.NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.empty(0, kind)
