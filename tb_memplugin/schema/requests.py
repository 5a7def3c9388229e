"""Every request of one traced step to the allocator, so that the step can be replayed under other conditions."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Annotated

import numpy as np
import numpy.typing as npt

from tb_memplugin.schema.basics import Integers, Mode, Phase
from tb_memplugin.schema.fields import (
    MAX_BYTES,
    MAX_TOTAL_BYTES,
    Addresses,
    Bounds,
    IndexOf,
    Name,
    Size,
    Sizes,
    Step,
    Table,
)
from tb_memplugin.schema.memory_map import ChunkOwner

GRADIENT_OPS = "gradient_tape/"
"""Part of the names of a backward pass's ops."""
UNKNOWN_POWER = -1
"""Marks sizes in `StepRequests.batch_power` whose dependence on the batch size is unknown."""
SCRATCH_POWER = -2
"""Marks there the scratch space of a GPU's kernel, such as cuDNN's for a convolution: roughly proportional to the
batch, but with another algorithm it takes another size."""

SQUARE_POWER = -3
"""Marks there sizes that grow with the batch or with its square: it is unknown whether one of their dimensions, as
large as the batch or a multiple of it, holds the batch as well."""


_CHUNKS, _OPS, _LAYERS = Table("chunks"), Table("ops"), Table("unrepeatable")
_REGIONS, _ADDED = Table("regions", 10_000), Table("added_regions", 10_000)


@dataclasses.dataclass(frozen=True, eq=False)  # columns do not compare; a step is a key by its identity
class StepRequests:
    """The chunks of one traced step on one device, with all that its replay needs.

    Attributes:
        step, phase, device, wall_time, mode: As in the snapshot.
        first: Whether the step is the first after a change of the program: it makes long-lived chunks, such as the
            optimizer's slots.
        events: Number of the step's allocations and deallocations.
        address, allocated, requested: Place and sizes of each chunk, shape [chunks], as are the following columns.
        birth, death: Numbers of the events; -1 for older chunks, `events` for chunks that outlive the step.
        batch_power: 0 for a size that does not depend on the batch, 1 for one that is proportional to it, 2 for its
            square, `SCRATCH_POWER` for scratch space, `SQUARE_POWER` for 1 or 2, `UNKNOWN_POWER` for 0 or 1.
        op: Index into `ops`, the requesting op; -1 for older chunks and unknown ops.
        region_address, region_bytes: The pool's regions when the step began, shape [regions].
        added_address, added_bytes: Regions that the pool grew by during the step, shape [added regions].
        unrepeatable: Paths of layers that a second pass may not repeat, as `GraphFacts.unrepeatable`.
    """

    step: Step
    phase: Phase
    device: Name
    wall_time: float
    mode: Mode
    first: bool
    batch_size: Size | None
    capacity_bytes: Size | None
    events: Size
    address: Annotated[Addresses, _CHUNKS]
    allocated: Annotated[Sizes, _CHUNKS]
    requested: Annotated[Sizes, _CHUNKS]
    birth: Annotated[Integers, Bounds(-1, MAX_BYTES), _CHUNKS]
    death: Annotated[Sizes, _CHUNKS]
    batch_power: Annotated[Integers, Bounds(SQUARE_POWER, 2), _CHUNKS]
    owner: Annotated[Integers, IndexOf("owners", unknown=False), _CHUNKS]
    op: Annotated[Integers, IndexOf("ops"), _CHUNKS]
    owners: tuple[ChunkOwner, ...]
    ops: Annotated[tuple[str, ...], _OPS]
    region_address: Annotated[Addresses, _REGIONS]
    region_bytes: Annotated[Sizes, _REGIONS]
    added_address: Annotated[Addresses, _ADDED]
    added_bytes: Annotated[Sizes, _ADDED]
    unrepeatable: Annotated[tuple[str, ...], _LAYERS] = ()

    def __len__(self) -> int:
        return len(self.address)

    def faults(self) -> Iterator[str]:
        """What no step can be, as sentences: each event allocates or frees one chunk, and none overlap at its start."""
        birth, death, events = self.birth, self.death, self.events
        if float(self.allocated.astype(np.float64).sum()) > MAX_TOTAL_BYTES:
            yield f"chunks of a step sum to over {MAX_TOTAL_BYTES:.0f} bytes"
        if (self.requested > self.allocated).any():
            yield "a chunk of a step has more requested than allocated bytes"
        if (death <= birth).any() or (death > events).any():
            yield "a chunk of a step is freed before it is allocated, or after the step's last event"
        of_events = np.concatenate([birth[birth >= 0], death[death < events]])
        if len(of_events) != events or len(np.unique(of_events)) != events:
            yield f"{len(of_events)} allocations and deallocations do not match a step of {events} events"
        old = np.flatnonzero(birth < 0)
        old = old[np.argsort(self.address[old], kind="stable")]
        ends = self.address[old] + self.allocated[old]
        if (self.address[old][1:] < ends[:-1]).any():
            yield "chunks at the start of a step overlap"


def owned(requests: StepRequests, wanted: Callable[[ChunkOwner], bool]) -> npt.NDArray[np.bool_]:
    return np.asarray([wanted(owner) for owner in requests.owners], bool)[requests.owner]
