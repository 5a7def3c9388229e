"""The memory map: an allocator's chunks in address order."""

import dataclasses
from typing import Literal, TypeAlias, get_args

from tb_memplugin.model.basics import Integers, Phase
from tb_memplugin.model.snapshot import Category


@dataclasses.dataclass(frozen=True)
class ChunkOwner:
    """Layer, category and trainability of a chunk."""

    layer: str | None
    category: Category
    trainable: bool | None


FREE, IN_USE, UNKNOWN_STATE = 0, 1, 2
"""States of a chunk in a `MemoryMap`; the last marks a stretch of addresses with unknown contents."""


OwnerSource: TypeAlias = Literal["none", "variable", "held_tensor", "trace", "earlier_step", "size"]
OWNER_SOURCES: tuple[OwnerSource, ...] = get_args(OwnerSource)
"""How the owner of a chunk is known, most certain first: not at all; by the address of a variable; by the address of a
tensor that Python holds; by its traced allocation; by a chunk of an earlier traced step with the same address and size
at the same point; by the size alone, as all such chunks of earlier traced steps had that owner."""


@dataclasses.dataclass(frozen=True)
class MemoryMap:
    """A device's address space at one instant: chunks in address order, region after region.

    Attributes:
        step, phase, device, wall_time: Time and device of the map; step and phase are None for an imported file.
        address, bytes: Of the chunks, shape [chunks], as are the following columns.
        requested_bytes: Requested bytes of a chunk in use, `MISSING` if unknown.
        state: `FREE`, `IN_USE` or `UNKNOWN_STATE`.
        owner: Index into `owners`, -1 for free chunks and unknown owners.
        source: Index into `OWNER_SOURCES`.
        since: Step of the first snapshot with the chunk, `MISSING` if unknown.
        region: Index of the chunk's region.
        owners: The owners.
        region_address, region_bytes: Known extents of the regions, shape [regions].
        in_use_bytes, pool_bytes, capacity_bytes: The allocator's figures.
        complete: Whether the map contains every chunk of the pool.
        not_available: Sentences on what is unknown.
    """

    step: int | None
    phase: Phase | None
    device: str
    wall_time: float
    address: Integers
    bytes: Integers
    requested_bytes: Integers
    state: Integers
    owner: Integers
    source: Integers
    since: Integers
    region: Integers
    owners: tuple[ChunkOwner, ...]
    region_address: Integers
    region_bytes: Integers
    in_use_bytes: int | None
    pool_bytes: int | None
    capacity_bytes: int | None
    complete: bool
    not_available: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.address)
