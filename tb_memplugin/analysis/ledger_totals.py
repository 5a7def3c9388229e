"""What the ledgers of many snapshots sum to by category and trainability, of all layers or of one. Pure."""

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from tb_memplugin.model import CATEGORIES, Category, Integers, Snapshot

Group: TypeAlias = tuple[Category, bool | None]
"""A category and whether what it belongs to is trainable, None where that means nothing."""

_MOST = 2**56
"""Rounding stops here: the bytes sum to those in use, but a stranger's rounding may be anything."""

_ORDER: tuple[bool | None, ...] = (False, True, None)


@dataclasses.dataclass(frozen=True)
class LedgerTotals:
    """Sums of ledgers.

    Attributes:
        groups: Those that any of the ledgers has, categories in the order of the stack, frozen before trainable.
        bytes: Shape [snapshots, groups].
        rounding_bytes: Of those, what was not asked for, as far as it is known. Same shape.
    """

    groups: tuple[Group, ...]
    bytes: Integers
    rounding_bytes: Integers


def ledger_totals(snapshots: Sequence[Snapshot], layer: str | None = None) -> LedgerTotals:
    """The sums of each snapshot's ledger, or of one layer's rows of it."""
    sums = [_sums(taken, layer) for taken in snapshots]
    present = {group for own in sums for group in own}
    groups = tuple(
        (category, trainable) for category in CATEGORIES for trainable in _ORDER if (category, trainable) in present
    )
    values = np.zeros((2, len(sums), len(groups)), np.int64)
    for at, own in enumerate(sums):
        for place, group in enumerate(groups):
            values[:, at, place] = own.get(group, (0, 0))
    return LedgerTotals(groups, values[0], values[1])


def _sums(taken: Snapshot, layer: str | None) -> dict[Group, tuple[int, int]]:
    sums: dict[Group, tuple[int, int]] = {}
    for row in taken.ledger:
        if layer is None or row.layer == layer:
            held, rounding = sums.get((row.category, row.trainable), (0, 0))
            sums[row.category, row.trainable] = (held + row.bytes, min(rounding + (row.rounding_bytes or 0), _MOST))
    return sums
