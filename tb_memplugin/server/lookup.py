"""Lookup of the records of a step."""

from collections.abc import Iterable
from typing import TypeVar

from tb_memplugin.errors import NotFoundError
from tb_memplugin.model import MemoryMap, Phase, Snapshot, Timeline
from tb_memplugin.model.suggestions import some

_Record = TypeVar("_Record", Snapshot, MemoryMap, Timeline)


def at_step(
    records: Iterable[_Record], device: str | None, step: int | None, phase: Phase, missing: str
) -> list[_Record]:
    """The records of a device in a phase at a step; at least one.

    Raises:
        NotFoundError: There is none; the message is `missing` and the available steps.
    """
    candidates = [record for record in records if record.device == device and record.phase == phase]
    matches = [record for record in candidates if record.step == step]
    if not matches:
        raise NotFoundError(f"{missing}; available steps: {some([record.step for record in candidates])}")
    return matches
