"""Ledgers summed by category and trainability, as the stack shows them."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from tb_memplugin.model.snapshot import Category, LedgerRow, stack_order

Group: TypeAlias = tuple[Category, bool | None]
"""A category and whether its layers are trainable, None if that does not apply."""
_SPLIT: tuple[Category, ...] = ("weights",)
"""Categories of the stack with a group for each trainability."""


@dataclasses.dataclass(frozen=True)
class TracedPeak:
    """The breakdown of a traced step at its peak: bytes by group, in stack order."""

    step: int
    peak_bytes: int
    parts: Mapping[Group, int]


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
