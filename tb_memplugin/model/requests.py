"""Every request of one traced step to the allocator, so that the step can be replayed under other conditions."""

import dataclasses

from tb_memplugin.model.basics import Integers, Mode, Phase
from tb_memplugin.model.memory_map import ChunkOwner

UNKNOWN_POWER = -1
"""Marks sizes in `StepRequests.batch_power` whose dependence on the batch size is unknown."""
SCRATCH_POWER = -2
"""Marks there the scratch space of a GPU's kernel, such as cuDNN's for a convolution: roughly proportional to the
batch, but with another algorithm it takes another size."""

SQUARE_POWER = -3
"""Marks there sizes that grow with the batch or with its square: it is unknown whether one of their dimensions, as
large as the batch or a multiple of it, holds the batch as well."""


@dataclasses.dataclass(frozen=True, eq=False)  # columns do not compare; a step is a key by its identity
class StepRequests:
    """The chunks of one traced step on one device, with all that its replay needs.

    Attributes:
        step, phase, device, wall_time, mode: As in the snapshot.
        first: Whether the step is the first after a change of the program: it makes long-lived chunks, such as the
            optimizer's slots.
        batch_size: Examples in its batch, None if unknown.
        capacity_bytes: The allocator's limit, None if unknown.
        events: Number of the step's allocations and deallocations.
        address, allocated, requested: Place and sizes of each chunk, shape [chunks], as are the following columns.
        birth, death: Numbers of the events; -1 for older chunks, `events` for chunks that outlive the step.
        batch_power: 0 for a size that does not depend on the batch, 1 for one that is proportional to it, 2 for its
            square, `SCRATCH_POWER` for scratch space, `SQUARE_POWER` for 1 or 2, `UNKNOWN_POWER` for 0 or 1.
        owner: Index into `owners`.
        op: Index into `ops`, the requesting op; -1 for older chunks and unknown ops.
        owners, ops: The owners and op names.
        region_address, region_bytes: The pool's regions when the step began, shape [regions].
        added_address, added_bytes: Regions that the pool grew by during the step, shape [added regions].
        unrepeatable: Paths of layers that a second pass may not repeat, as `GraphFacts.unrepeatable`.
    """

    step: int
    phase: Phase
    device: str
    wall_time: float
    mode: Mode
    first: bool
    batch_size: int | None
    capacity_bytes: int | None
    events: int
    address: Integers
    allocated: Integers
    requested: Integers
    birth: Integers
    death: Integers
    batch_power: Integers
    owner: Integers
    op: Integers
    owners: tuple[ChunkOwner, ...]
    ops: tuple[str, ...]
    region_address: Integers
    region_bytes: Integers
    added_address: Integers
    added_bytes: Integers
    unrepeatable: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.address)
