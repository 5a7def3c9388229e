"""The rows of a timeline, and how they are kept few: moments are dropped and small allocations merged by owner. Pure.

Kept moments stay exact.
"""

import array
import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from tb_memplugin.attribution.trace import Owner
from tb_memplugin.schema import MISSING, Integers, TensorShape, extreme_rows, format_bytes, live_sums

MAX_ALLOCATIONS = 20_000
"""Most rows of a timeline; in a larger step, only the largest allocations keep rows of their own, and the others share
rows by layer and category."""
MAX_MOMENTS = 40_000
"""About the most moments of a timeline; each allocation begins at one and ends at another."""

Key = TypeVar("Key")


@dataclasses.dataclass(frozen=True)
class Rows:
    """Columns as in `model.Timeline`."""

    start: Integers
    end: Integers
    bytes: Integers
    rounding_bytes: Integers
    count: Integers
    owner: Integers
    op: Integers
    address: Integers
    shape: Integers
    line: Integers

    def take(self, chosen: Integers) -> "Rows":
        return Rows(*(column[chosen] for column in vars(self).values()))


def _columns(values: Integers) -> Rows:
    """Columns of the values of rows, one row after another."""
    columns = values.reshape(-1, len(dataclasses.fields(Rows))).T
    return Rows(*(np.ascontiguousarray(column) for column in columns))


def reduced(
    rows: Rows, time_ns: Integers, event: Integers, always: Sequence[int]
) -> tuple[Rows, Integers, Integers, Integers, list[str]]:
    """(rows, times, events, kept moments, sentences on the reduction).

    Rows are given in terms of the moments of `time_ns` and `event`, which are as in `Timeline`; moments of `always` are
    kept.
    """
    moments = len(time_ns)
    if len(rows.start) <= MAX_ALLOCATIONS and moments <= MAX_MOMENTS:
        return _sorted(rows), time_ns, event, np.arange(moments), []
    largest = np.argsort(-rows.bytes, kind="stable")
    in_use = live_sums(rows.start, rows.end, rows.bytes, moments)
    limit = MAX_MOMENTS
    while True:
        kept = extreme_rows([in_use], limit, always=sorted(set(always))).astype(np.int64)
        # Rows that are live at none of the kept moments begin where they end.
        start, end = (np.searchsorted(kept, edge).astype(np.int64) for edge in (rows.start, rows.end))
        placed = dataclasses.replace(rows, start=start, end=end)
        own, small = np.sort(largest[: MAX_ALLOCATIONS // 2]), np.sort(largest[MAX_ALLOCATIONS // 2 :])
        merged = _merged(placed.take(small))
        if len(own) + len(merged.start) <= MAX_ALLOCATIONS or limit <= 16:
            break
        limit //= 2
    alive = own[placed.start[own] < placed.end[own]]
    pairs = zip(vars(placed.take(alive)).values(), vars(merged).values(), strict=True)
    both = _sorted(Rows(*map(np.concatenate, pairs)))
    return both, time_ns[kept], event[kept], kept, _sentences(rows, small, moments, len(kept))


def _sentences(rows: Rows, small: Integers, moments: int, kept: int) -> list[str]:
    sentences = []
    if len(small):
        largest = format_bytes(int(rows.bytes[small].max()))
        sentences.append(
            f"Of the step's {len(rows.start)} allocations, the {len(small)} smallest (up to {largest}) are merged by "
            "layer and category."
        )
    if kept < moments:
        sentences.append(
            f"Of the step's {moments} moments, {kept} are kept: the highest and lowest of their neighbors."
        )
    return sentences


def _sorted(rows: Rows) -> Rows:
    return rows.take(np.lexsort((rows.end, rows.start)))


def _merged(rows: Rows) -> Rows:
    """One row for each owner and stretch of moments over which the owner's bytes stay the same.

    Allocations of unknown rounding have rows of their own. A stretch with one allocation keeps what is known of it.
    """
    parts: list[tuple[int, ...]] = []
    rows = rows.take(np.flatnonzero(rows.start < rows.end))
    unknown = rows.rounding_bytes == MISSING
    for owner, hidden in sorted(set(zip(rows.owner.tolist(), unknown.tolist(), strict=True))):
        own = rows.take(np.flatnonzero((rows.owner == owner) & (unknown == hidden)))
        rounding_bytes = np.zeros_like(own.bytes) if hidden else own.rounding_bytes
        known = (own.op, own.address, own.shape, own.line)
        columns = (np.ones_like(own.bytes), own.bytes, rounding_bytes, own.count, *known)
        edges = np.unique(np.concatenate([own.start, own.end]))
        first, last = np.searchsorted(edges, own.start), np.searchsorted(edges, own.end)
        levels = [live_sums(first, last, column, len(edges) - 1).tolist() for column in columns]
        stretches = zip(edges[:-1].tolist(), edges[1:].tolist(), *levels, strict=True)
        for start, end, alive, size, rounding, count, *facts in stretches:
            if size:
                only = facts if alive == 1 else [-1] * len(facts)
                parts.append((start, end, size, MISSING if hidden else rounding, count, owner, *only))
    return _columns(np.fromiter(itertools.chain.from_iterable(parts), np.int64))


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
    """Collects rows; `owners`, `ops`, `shapes` and `lines` have the number of each."""

    def __init__(self) -> None:
        self.owners: dict[Owner, int] = {}
        self.ops: dict[str, int] = {}
        self.shapes: dict[TensorShape, int] = {}
        self.lines: dict[str, int] = {}
        self._values = array.array("q")  # an object for each row would let Python's garbage collector run earlier

    def add(self, row: Row, *, count: int = 1) -> None:
        """Add a row of `count` allocations, unless it has no bytes or no moments."""
        if row.bytes <= 0 or row.start >= row.end:
            return
        numbers = (_number(self.ops, row.op), _number(self.shapes, row.shape), _number(self.lines, row.line))
        owner, (op, shape, line) = self.owners.setdefault(row.owner, len(self.owners)), numbers
        place = (op, -1 if row.address is None else row.address, shape, line)
        self._values.extend((row.start, row.end, row.bytes, row.rounding_bytes, count, owner, *place))

    def extend(self, rows: Iterable[Row], op: str | None) -> None:
        """Add the rows of one allocation; those that name no op get `op`, which requested it."""
        for row in rows:
            self.add(row if row.op is not None else row._replace(op=op))

    def rows(self) -> Rows:
        return _columns(np.array(self._values, np.int64))


def _number(known: dict[Key, int], key: Key | None) -> int:
    return -1 if key is None else known.setdefault(key, len(known))
