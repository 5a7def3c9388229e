"""A forked child: what the recorders of its parent opened and registered belongs to the parent, and is let go of."""

import os
import weakref
from typing import Protocol


class Abandonable(Protocol):
    def _abandon(self) -> None:
        """Let go of it in the child. Takes no lock: a thread that does not exist in the child may hold it."""


_inherited: "weakref.WeakSet[Abandonable]" = weakref.WeakSet()


def abandon_in_child(item: Abandonable) -> None:
    """Call the item's `_abandon` in every child that is forked while it exists."""
    _inherited.add(item)


def _abandon_all() -> None:
    for item in list(_inherited):
        item._abandon()
    _inherited.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
