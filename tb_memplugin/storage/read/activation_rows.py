"""Recorded activation bytes in four bytes each, and rows of them.

100,000 steps × 300 layers are 240 MB as integers of eight bytes, more than a run may take. So the values of each frame
are kept in four bytes if they are below 4 GiB, and rows are widened when they are taken: a page shows a few thousand.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_memplugin.schema import MISSING, Floats, Integers, LayerActivations
from tb_memplugin.storage.frames import FrameHead, value_bytes

_MOST = 2.0**62
"""Limit of row sums: hostile values would overflow an integer."""
_SUMMED = 1 << 20
"""Values that are summed at once."""
_UNKNOWN = np.iinfo(np.uint32).max
"""Stands for `MISSING` in four bytes."""


@dataclasses.dataclass(frozen=True)
class ActivationPart:
    """The values of one frame.

    Attributes:
        step, wall_time: Of each row.
        layers: Layer paths.
        values: The bytes, shape [rows, layers], in four bytes each (see `_UNKNOWN`) or in eight.
        totals: Sum of each row's bytes; `MISSING` counts as 0.
    """

    step: Integers
    wall_time: Floats
    layers: tuple[str, ...]
    values: npt.NDArray[np.uint32] | Integers
    totals: Integers

    def __len__(self) -> int:
        return len(self.step)

    @property
    def nbytes(self) -> int:
        """Bytes in memory, without the paths, which parts share."""
        return self.values.nbytes + 24 * len(self)

    def take(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_] | slice) -> Integers:
        picked: npt.NDArray[Any] = self.values[rows]
        if picked.dtype == np.int64:
            return picked
        wide: Integers = picked.astype(np.int64)
        wide[picked == _UNKNOWN] = MISSING
        return wide


def part_of(table: LayerActivations, layers: tuple[str, ...] | None = None) -> ActivationPart:
    """A table as a part, `layers` being its paths, if other parts have them as well."""
    values: Any = table.bytes
    if not values.size or int(values.max()) < _UNKNOWN:
        # `MISSING`, whose lowest bytes are zero, is the only negative value.
        missing = values == MISSING
        values = values.astype(np.uint32, order="C")
        values[missing] = _UNKNOWN
    return ActivationPart(
        table.step, table.wall_time, table.layers if layers is None else layers, values, row_sums(table.bytes)
    )


def most_bytes(head: FrameHead) -> int:
    return sum(
        length * (4 if value_bytes(kind) <= 4 else 8) for columns in head.tables.values() for _, kind, length in columns
    )


class ActivationRows:
    """The rows of several parts, concatenated.

    Args:
        parts: The parts, in display order.
        order: Row of the parts for each row shown; None for all of them as they come.
        damage: See below.

    Attributes:
        parts: Those that have rows and layers.
        step, wall_time: Of each row.
        totals: Sum of each row's bytes; `MISSING` counts as 0.
        layers: Layer paths of all parts, one per column.
        nbytes: Memory of the parts.
        damage: Sentences on rows that are left out.
    """

    def __init__(
        self,
        parts: Sequence[ActivationPart],
        order: npt.NDArray[np.intp] | None = None,
        damage: Sequence[str] = (),
    ) -> None:
        self.parts = [part for part in parts if len(part) and part.layers]
        self.damage = tuple(damage)
        self._order = order
        self._ends = np.cumsum([len(part) for part in self.parts], dtype=np.int64)
        columns: dict[str, int] = {}
        for layers in dict.fromkeys(part.layers for part in self.parts):
            for path in layers:
                columns.setdefault(path, len(columns))
        self._columns = columns
        self.layers = tuple(columns)
        every = slice(None) if order is None else order
        self.step: Integers = _joined([part.step for part in self.parts], np.int64)[every]
        self.wall_time: Floats = _joined([part.wall_time for part in self.parts], np.float64)[every]
        self.totals: Integers = _joined([part.totals for part in self.parts], np.int64)[every]
        self.nbytes = sum(part.nbytes for part in self.parts) + 24 * len(self)

    def __len__(self) -> int:
        return len(self.step)

    def with_damage(self, damage: Sequence[str]) -> "ActivationRows":
        return ActivationRows(self.parts, self._order, damage)

    def order_of(self, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        return rows if self._order is None else self._order[rows]

    def take(self, rows: npt.NDArray[np.intp]) -> LayerActivations:
        return LayerActivations(self.step[rows], self.wall_time[rows], self.layers, self._bytes(rows))

    def bytes(self) -> Integers:
        """All values, shape [rows, layers]: eight bytes each."""
        return self._bytes(np.arange(len(self)))

    def _bytes(self, rows: npt.NDArray[np.intp]) -> Integers:
        if self._order is None:
            return self._in_order(rows)
        stored = self._order[rows]
        places = np.argsort(stored, kind="stable")
        values = np.empty((len(rows), len(self.layers)), np.int64)
        values[places] = self._in_order(stored[places])
        return values

    def _in_order(self, rows: npt.NDArray[np.intp]) -> Integers:
        values = np.empty((len(rows), len(self.layers)), np.int64)
        # The requested rows of each part.
        edges = np.searchsorted(rows, self._ends, side="left").tolist()
        begin, start = 0, 0
        for part, end, stop in zip(self.parts, edges, self._ends.tolist(), strict=True):
            if end > begin:
                picked = part.take(rows[begin:end] - start)
                if part.layers == self.layers:
                    values[begin:end] = picked
                else:
                    values[begin:end] = MISSING
                    values[begin:end, [self._columns[path] for path in part.layers]] = picked
            begin, start = end, stop
        return values


class RecordedActivations(LayerActivations):
    """A table of `ActivationRows`, whose `bytes` are put together when they are first asked for."""

    rows: ActivationRows

    def __getattr__(self, name: str) -> Any:
        if name != "bytes" or "rows" not in self.__dict__:
            raise AttributeError(name)
        object.__setattr__(self, "bytes", self.rows.bytes())
        return self.__dict__["bytes"]


def table_of(rows: ActivationRows) -> LayerActivations:
    table = object.__new__(RecordedActivations)
    for name in ("step", "wall_time", "layers"):
        object.__setattr__(table, name, getattr(rows, name))
    object.__setattr__(table, "rows", rows)
    return table


def activation_rows_of(table: LayerActivations) -> ActivationRows:
    rows = table.__dict__.get("rows")
    return rows if isinstance(rows, ActivationRows) else ActivationRows([part_of(table)])


def row_sums(values: Integers) -> Integers:
    """The sum of each row of `values`, shape [rows, columns]; `MISSING` counts as 0."""
    sums = np.empty(len(values))
    at_once = max(1, _SUMMED // max(1, values.shape[1]))
    for at in range(0, len(values), at_once):
        sums[at : at + at_once] = np.maximum(values[at : at + at_once], 0).sum(axis=1, dtype=np.float64)
    return np.minimum(sums, _MOST).astype(np.int64)


def _joined(arrays: Sequence[npt.NDArray[Any]], kind: type) -> npt.NDArray[Any]:
    return np.concatenate(arrays) if arrays else np.empty(0, kind)
