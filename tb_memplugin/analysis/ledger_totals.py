"""Many ledgers summed by category and trainability, for all layers or for one. Pure."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from tb_memplugin.model import CATEGORIES, Integers, Snapshot, stack_order
from tb_memplugin.model.groups import Group, group_sums


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
