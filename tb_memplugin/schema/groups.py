"""Ledgers summed by category and trainability, as the stack shows them."""

import dataclasses
from collections.abc import Collection, Iterable, Sequence
from typing import TypeAlias

import numpy as np

from tb_memplugin.schema.basics import Integers
from tb_memplugin.schema.fields import Size, Step
from tb_memplugin.schema.snapshot import CATEGORIES, Category, LedgerRow, Snapshot, stack_order

Group: TypeAlias = tuple[Category, bool | None]
"""A category and whether its layers are trainable, None if that does not apply."""
_SPLIT: tuple[Category, ...] = ("weights",)
"""Categories of the stack with a group for each trainability."""


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

    Args:
        ledger: Rows of one instant.
        split: Categories with a group for each trainability; others have one group.
    """
    sums: dict[Group, int] = {}
    for row in ledger:
        group = row.category, row.trainable if row.category in split else None
        sums[group] = sums.get(group, 0) + row.bytes
    return {group: sums[group] for group in sorted(sums, key=lambda group: stack_order(*group))}


@dataclasses.dataclass(frozen=True)
class LedgerTotals:
    """Sums of ledgers.

    Attributes:
        groups: Groups of any of the ledgers, in stack order, frozen before trainable.
        bytes: Shape [snapshots, groups].
    """

    groups: tuple[Group, ...]
    bytes: Integers


def ledger_totals(snapshots: Sequence[Snapshot], layer: str | None = None) -> LedgerTotals:
    """Sum each snapshot's ledger, or the rows of one layer."""
    sums = [
        group_sums((row for row in snapshot.ledger if layer in (None, row.layer)), CATEGORIES) for snapshot in snapshots
    ]
    groups = tuple(sorted({group for own in sums for group in own}, key=lambda group: stack_order(*group)))
    values = np.zeros((len(sums), len(groups)), np.int64)
    for at, own in enumerate(sums):
        for place, group in enumerate(groups):
            values[at, place] = own.get(group, 0)
    return LedgerTotals(groups, values)
