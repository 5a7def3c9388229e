"""The rows of a timeline while they are collected, with owners and op names as numbers."""

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from tb_memplugin.attribution.timeline_reduce import Rows, rows_of
from tb_memplugin.attribution.window import Owner
from tb_memplugin.model import TensorShape

Key = TypeVar("Key")


class Row(NamedTuple):
    """Allocated bytes of one owner from moment `start` up to before `end`; `address` as the allocator gives it."""

    start: int
    end: int
    owner: Owner
    bytes: int
    rounding_bytes: int
    op: str | None = None
    address: int | None = None
    shape: TensorShape | None = None
    line: str | None = None


class RowBuilder:
    """Collects rows.

    Attributes:
        owners, ops, shapes, lines: Owner, op name, shape and line to its number.
    """

    def __init__(self) -> None:
        self.owners: dict[Owner, int] = {}
        self.ops: dict[str, int] = {}
        self.shapes: dict[TensorShape, int] = {}
        self.lines: dict[str, int] = {}
        self._rows: list[tuple[int, ...]] = []

    def add(self, row: Row, *, count: int = 1) -> None:
        """Add a row of `count` allocations, unless it has no bytes or no moments."""
        if row.bytes <= 0 or row.start >= row.end:
            return
        owner = self.owners.setdefault(row.owner, len(self.owners))
        numbers = (
            _number(self.ops, row.op),
            row.address,
            _number(self.shapes, row.shape),
            _number(self.lines, row.line),
        )
        known = (-1 if number is None else number for number in numbers)
        self._rows.append((row.start, row.end, row.bytes, row.rounding_bytes, count, owner, *known))

    def extend(self, rows: Iterable[Row], op: str | None) -> None:
        """Add the rows of one allocation; those that name no op get `op`, which requested it."""
        for row in rows:
            self.add(row if row.op is not None else row._replace(op=op))

    def rows(self) -> Rows:
        """All rows as columns."""
        return rows_of(self._rows)


def _number(known: dict[Key, int], key: Key | None) -> int | None:
    """The number of a key, a new one if it has none; None for None."""
    return None if key is None else known.setdefault(key, len(known))
