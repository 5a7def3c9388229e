"""Sums of ledgers: by category and trainability, as the stack shows them, and with rounding as a category of its own.

In every row, before and after the split, `rounding_bytes` is the part of `bytes` that was not requested. After the
split it is 0, or all bytes of a row of category ``rounding``; if it is unknown, the row has allocated bytes.
"""

import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

import numpy as np

from tb_memplugin.schema.basics import Integers
from tb_memplugin.schema.fields import Size, Step
from tb_memplugin.schema.snapshot import CATEGORIES, Category, LedgerRow, Snapshot, stack_order

Group: TypeAlias = tuple[Category, bool | None]
"""A category and whether its layers are trainable, None if that does not apply."""
_SPLIT: tuple[Category, ...] = ("weights",)
_Key: TypeAlias = tuple[str | None, Category, bool | None]


@dataclasses.dataclass(frozen=True)
class GroupBytes:
    """Bytes of a category, and whether its layers are trainable, None if that does not apply."""

    category: Category
    trainable: bool | None
    bytes: Size


@dataclasses.dataclass(frozen=True)
class TracedPeak:
    """The breakdown of a traced step at its peak: its groups in stack order."""

    step: Step
    peak_bytes: Size
    parts: tuple[GroupBytes, ...]


def group_sums(ledger: Iterable[LedgerRow], split: Collection[Category] = _SPLIT) -> dict[Group, int]:
    """Bytes of the groups of a ledger, in stack order, frozen before trainable.

    Categories of `split` have a group for each trainability, others one group.
    """
    sums: Counter[Group] = Counter()
    for row in ledger:
        sums[row.category, row.trainable if row.category in split else None] += row.bytes
    return {group: sums[group] for group in sorted(sums, key=lambda group: stack_order(*group))}


@dataclasses.dataclass(frozen=True)
class LedgerTotals:
    """Sums of ledgers: the groups of any of them, in stack order, and their bytes, shape [snapshots, groups]."""

    groups: tuple[Group, ...]
    bytes: Integers


def ledger_totals(snapshots: Sequence[Snapshot], layer: str | None = None) -> LedgerTotals:
    """Sum each snapshot's ledger, or the rows of one layer."""
    sums = [group_sums((row for row in one.ledger if layer in (None, row.layer)), CATEGORIES) for one in snapshots]
    groups = tuple(sorted({group for own in sums for group in own}, key=lambda group: stack_order(*group)))
    values = [[own.get(group, 0) for group in groups] for own in sums]
    return LedgerTotals(groups, np.asarray(values, np.int64).reshape(len(sums), len(groups)))


def split_rounding(rows: Iterable[LedgerRow]) -> tuple[LedgerRow, ...]:
    """The rows with all known rounding in rows of category ``rounding``, which keep their owners' layer and trainable.

    The sum of bytes stays the same. There is one row for each (layer, category, trainable), largest first, and none
    without bytes. Rows that are already split stay the same.
    """
    sums: Counter[_Key] = Counter()
    unknown: set[_Key] = set()
    for row in rows:
        own: _Key = (row.layer, row.category, row.trainable)
        rounding = row.bytes if row.category == "rounding" else min(max(row.rounding_bytes or 0, 0), row.bytes)
        if row.rounding_bytes is None:
            unknown.add(own)
        sums[own] += row.bytes - rounding
        sums[row.layer, "rounding", row.trainable] += rounding
    split = []
    for key, size in sums.items():
        rounding_bytes = size if key[1] == "rounding" else None if key in unknown else 0
        split += [LedgerRow(*key, size, rounding_bytes)] if size else []
    return tuple(sorted(split, key=lambda row: (-row.bytes, row.category, row.layer or "", str(row.trainable))))


def rounding_total(rows: Iterable[LedgerRow]) -> int:
    """Bytes of category ``rounding``."""
    return sum(row.bytes for row in rows if row.category == "rounding")
