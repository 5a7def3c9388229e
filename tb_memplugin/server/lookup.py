"""Finds the record of a step that a request names, or says which there are."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from tb_memplugin.errors import NotFoundError
from tb_memplugin.model import AllocatorMap, Phase, Snapshot, Timeline

_Taken = TypeVar("_Taken", Snapshot, AllocatorMap, Timeline)


def at_step(
    records: Iterable[_Taken], device: str | None, step: int | None, phase: Phase, missing: str
) -> list[_Taken]:
    """Those of a step of a device in a phase; at least one.

    Raises:
        NotFoundError: There is none: `missing`, and which steps there are.
    """
    of_device = [taken for taken in records if taken.device == device and taken.phase == phase]
    found = [taken for taken in of_device if taken.step == step]
    if not found:
        raise NotFoundError(f"{missing}; there are: {some([taken.step for taken in of_device])}")
    return found


def some(names: Sequence[Any]) -> str:
    """The first of the names, and how many more there are."""
    shown = ", ".join(f"{name!s:.80}" for name in names[:10])
    return (shown + (f" and {len(names) - 10} more" if len(names) > 10 else "")) or "none"
