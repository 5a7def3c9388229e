"""Recorded activation bytes in four bytes each, and rows of them: selected, joined, without those
that were repeated.

100,000 steps × 300 layers are 240 MB as integers of eight bytes, more than a run may take. So the
values of each frame are kept in four bytes if they are below 4 GiB, and rows are widened when they
are taken: a page shows a few thousand.
"""

import dataclasses
import itertools
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_memplugin.schema import MISSING, Floats, Integers, LayerActivations
from tb_memplugin.storage.frames import FrameHead, value_bytes

MAX_TABLE_BYTES = 512 << 20
"""Limit of one joined table once it is read as a whole; beyond it, rows are left out."""
_MOST = 2.0**62
"""Limit of row sums: hostile values would overflow an integer."""
_SUMMED = 1 << 20
"""Values that are summed at once."""
_UNKNOWN = np.iinfo(np.uint32).max
"""Stands for `MISSING` in four bytes."""


@dataclasses.dataclass(frozen=True)
class ActivationPart:
    """The values of one frame, shape [rows, layers], in four bytes each (see `_UNKNOWN`) or in
    eight.

    `totals` has the sum of each row's bytes; `MISSING` counts as 0."""

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
        table.step,
        table.wall_time,
        table.layers if layers is None else layers,
        values,
        row_sums(table.bytes),
    )


@dataclasses.dataclass(frozen=True)
class ActivationHead:
    """A frame without its values: its layers, and the most bytes that its values take; small ones
    take less."""

    layers: tuple[str, ...]
    most_bytes: int

    @classmethod
    def of(cls, head: FrameHead) -> "ActivationHead":
        sizes = [(kind, length) for columns in head.tables.values() for _, kind, length in columns]
        return cls(
            head.strings,
            sum(length * (4 if value_bytes(kind) <= 4 else 8) for kind, length in sizes),
        )


class ActivationRows:
    """The rows of several parts in display order, concatenated; parts without rows or layers are
    dropped.

    Args:
        order: Row of the parts for each row shown; None for all of them as they come.
        damage: Sentences on rows that are left out."""

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
        different = dict.fromkeys(part.layers for part in self.parts)
        self.layers = tuple(dict.fromkeys(itertools.chain(*different)))
        self._columns = {path: at for at, path in enumerate(self.layers)}
        every = slice(None) if order is None else order
        none = np.empty(0, np.int64)
        self.step: Integers = np.concatenate([none, *(part.step for part in self.parts)])[every]
        self.wall_time: Floats = np.concatenate(
            [np.empty(0), *(part.wall_time for part in self.parts)]
        )[every]
        self.totals: Integers = np.concatenate([none, *(part.totals for part in self.parts)])[every]
        self.nbytes = sum(part.nbytes for part in self.parts) + 24 * len(self)

    def __len__(self) -> int:
        return len(self.step)

    def with_damage(self, damage: Sequence[str]) -> "ActivationRows":
        return ActivationRows(self.parts, self._order, damage)

    def reordered(self, rows: npt.NDArray[np.intp]) -> "ActivationRows":
        return ActivationRows(
            self.parts, rows if self._order is None else self._order[rows], self.damage
        )

    def take(self, rows: npt.NDArray[np.intp]) -> LayerActivations:
        return LayerActivations(
            self.step[rows], self.wall_time[rows], self.layers, self.bytes(rows)
        )

    def bytes(self, rows: npt.NDArray[np.intp]) -> Integers:
        """Values, shape [rows, layers]: eight bytes each."""
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
        object.__setattr__(self, "bytes", self.rows.bytes(np.arange(len(self.rows))))
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


def take_activations(activations: LayerActivations, rows: npt.NDArray[np.intp]) -> LayerActivations:
    return table_of(activation_rows_of(activations).reordered(rows))


def _narrowed(part: ActivationPart, rows: Any, values: Integers) -> ActivationPart:
    """Some rows of a part, with their values."""
    return part_of(
        LayerActivations(part.step[rows], part.wall_time[rows], part.layers, values), part.layers
    )


def join_activations(parts: Sequence[LayerActivations]) -> tuple[LayerActivations, str | None]:
    """Concatenate the rows of `parts`, with the layers of all parts (`MISSING` where a part lacks
    one).

    Also returns a sentence if the last rows were left out to stay below `MAX_TABLE_BYTES`."""
    pieces = [piece for part in parts for piece in activation_rows_of(part).parts]
    layers = len({path for names in {piece.layers for piece in pieces} for path in names})
    rows, room = sum(map(len, pieces)), MAX_TABLE_BYTES // (8 * max(1, layers))
    if rows <= room:
        return table_of(ActivationRows(pieces)), None
    fitting, left = [], room
    for piece in pieces:
        cut = slice(0, left)
        fitting.append(piece if len(piece) <= left else _narrowed(piece, cut, piece.take(cut)))
        left = max(0, left - len(piece))
        if not left:
            break
    sentence = (
        f"activations of {rows - room} of {rows} rows are not shown: all would exceed "
        f"{MAX_TABLE_BYTES} bytes"
    )
    return table_of(ActivationRows(fitting)), sentence


def without_repeated_cells(
    earlier: LayerActivations, later: LayerActivations, trained: Sequence[tuple[int, int]] = ()
) -> LayerActivations:
    """`earlier` without the bytes of the layers of `later` for its steps and those of the ranges
    `trained`.

    The session of `later` trained these, so that it has their bytes or lost them."""
    if not len(earlier) or not len(later):
        return earlier
    repeated = (earlier.step >= later.step.min()) & (earlier.step <= later.step.max())
    for first, last in trained:
        repeated |= (earlier.step >= first) & (earlier.step <= last)
    common = set(later.layers)
    if not repeated.any() or common.isdisjoint(earlier.layers):
        return earlier
    parts, at = [], 0
    for part in activation_rows_of(earlier).parts:
        parts.append(_cleared(part, repeated[at : at + len(part)], common))
        at += len(part)
    return table_of(ActivationRows([part for part in parts if part is not None]))


def _cleared(
    part: ActivationPart, repeated: npt.NDArray[np.bool_], layers: Collection[str]
) -> ActivationPart | None:
    columns = [at for at, path in enumerate(part.layers) if path in layers]
    if not columns or not repeated.any():
        return part
    values = part.take(slice(None)).copy()
    values[np.ix_(np.flatnonzero(repeated), np.asarray(columns))] = MISSING
    keep = ~(repeated & (values == MISSING).all(axis=1))
    if not keep.any():
        return None
    return _narrowed(part, keep, values[keep])


def row_sums(values: Integers) -> Integers:
    """The sum of each row of `values`, shape [rows, columns]; `MISSING` counts as 0."""
    sums = np.empty(len(values))
    at_once = max(1, _SUMMED // max(1, values.shape[1]))
    for at in range(0, len(values), at_once):
        sums[at : at + at_once] = np.maximum(values[at : at + at_once], 0).sum(
            axis=1, dtype=np.float64
        )
    return np.minimum(sums, _MOST).astype(np.int64)
