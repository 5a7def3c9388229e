"""The memory map: an allocator's chunks in address order."""

import dataclasses
from typing import Annotated, Literal, TypeAlias, get_args

from tb_memplugin.schema.basics import Integers, Phase
from tb_memplugin.schema.fields import Addresses, Bounds, IndexOf, MaybeSizes, Name, Size, Sizes, Step, Table
from tb_memplugin.schema.snapshot import Category


@dataclasses.dataclass(frozen=True)
class ChunkOwner:
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


_CHUNKS = Table("chunks", 500_000)
_REGIONS = Table("regions", 10_000)


@dataclasses.dataclass(frozen=True)
class MemoryMap:
    """A device's address space at one instant: chunks in address order, region after region.

    Attributes:
        step, phase, device, wall_time: Time and device of the map; step and phase are None for an imported file.
        address, bytes: Of the chunks, shape [chunks], as are the following columns.
        requested_bytes: Requested bytes of a chunk in use, `MISSING` if unknown.
        state: `FREE`, `IN_USE` or `UNKNOWN_STATE`.
        owner: -1 for free chunks and unknown owners.
        source: Index into `OWNER_SOURCES`.
        since: Step of the first snapshot with the chunk, `MISSING` if unknown.
        region_address, region_bytes: Known extents of the regions, shape [regions].
        complete: Whether the map contains every chunk of the pool.
    """

    step: Step | None
    phase: Phase | None
    device: Name
    wall_time: float
    address: Annotated[Addresses, _CHUNKS]
    bytes: Annotated[Sizes, _CHUNKS]
    requested_bytes: Annotated[MaybeSizes, _CHUNKS]
    state: Annotated[Integers, Bounds(FREE, UNKNOWN_STATE), _CHUNKS]
    owner: Annotated[Integers, IndexOf("owners"), _CHUNKS]
    source: Annotated[Integers, Bounds(0, len(OWNER_SOURCES) - 1), _CHUNKS]
    since: Annotated[MaybeSizes, _CHUNKS]
    region: Annotated[Integers, IndexOf("region_address", unknown=False), _CHUNKS]
    owners: tuple[ChunkOwner, ...]
    region_address: Annotated[Addresses, _REGIONS]
    region_bytes: Annotated[Sizes, _REGIONS]
    in_use_bytes: Size | None
    pool_bytes: Size | None
    capacity_bytes: Size | None
    complete: bool
    not_available: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.address)
