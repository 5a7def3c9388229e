"""The rows of a timeline while they are collected, with owners and op names as numbers."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tb_memplugin.attribution.timeline_reduce import Rows
from tb_memplugin.attribution.window import Owner


class Row(NamedTuple):
    """Allocated bytes of one owner from moment `start` up to before `end`."""

    start: int
    end: int
    owner: Owner
    bytes: int
    rounding_bytes: int
    op: str | None = None


class RowBuilder:
    """Collects rows.

    Attributes:
        owners, ops: Owner, and op name, to its number.
    """

    def __init__(self) -> None:
        self.owners: dict[Owner, int] = {}
        self.ops: dict[str, int] = {}
        self._rows: list[tuple[int, int, int, int, int, int, int]] = []

    def add(self, row: Row, *, count: int = 1) -> None:
        """Add a row of `count` allocations, unless it has no bytes or no moments."""
        if row.bytes <= 0 or row.start >= row.end:
            return
        owner = self.owners.setdefault(row.owner, len(self.owners))
        op = -1 if row.op is None else self.ops.setdefault(row.op, len(self.ops))
        self._rows.append((row.start, row.end, row.bytes, row.rounding_bytes, count, owner, op))

    def extend(self, rows: Iterable[Row], op: str | None) -> None:
        """Add the rows of one allocation; those that name no op get `op`, which requested it."""
        for row in rows:
            self.add(row if row.op is not None else row._replace(op=op))

    def rows(self) -> Rows:
        """All rows as columns."""
        columns = np.asarray(self._rows, np.int64).reshape(-1, 7).T
        return Rows(*(np.ascontiguousarray(column) for column in columns))
