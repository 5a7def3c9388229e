"""Ledgers of many snapshots summed by category and trainability, for all layers or for one. Pure."""

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from tb_memplugin.model import Category, Integers, Snapshot, stack_order

Group: TypeAlias = tuple[Category, bool | None]
"""A category and whether its layers are trainable, None if that does not apply."""


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
    sums = [_sums(snapshot, layer) for snapshot in snapshots]
    groups = tuple(sorted({group for own in sums for group in own}, key=lambda group: stack_order(*group)))
    values = np.zeros((len(sums), len(groups)), np.int64)
    for at, own in enumerate(sums):
        for place, group in enumerate(groups):
            values[at, place] = own.get(group, 0)
    return LedgerTotals(groups, values)


def _sums(snapshot: Snapshot, layer: str | None) -> dict[Group, int]:
    sums: dict[Group, int] = {}
    for row in snapshot.ledger:
        if layer is None or row.layer == layer:
            sums[row.category, row.trainable] = sums.get((row.category, row.trainable), 0) + row.bytes
    return sums
