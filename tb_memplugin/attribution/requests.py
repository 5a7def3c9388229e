"""The requests of a step for replays."""

import collections
import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tb_memplugin.allocator import TraceReplay, added_regions, rounded_bytes
from tb_memplugin.attribution.batch_powers import BatchPowers
from tb_memplugin.attribution.chunks import PLANNED
from tb_memplugin.attribution.maps import StepChunks, owned_at
from tb_memplugin.attribution.module_sizes import ModuleSizes
from tb_memplugin.attribution.modules import CompiledModule, Plan
from tb_memplugin.attribution.older_chunks import variable_owner
from tb_memplugin.attribution.owners import Classifier
from tb_memplugin.attribution.window import layerless
from tb_memplugin.schema import (
    UNKNOWN_POWER,
    ChunkOwner,
    ModuleMoment,
    StepRequests,
    join_rows,
    take_rows,
)

MAX_EVENTS = 200_000
"""Most events of a step whose requests are kept."""


def step_requests(
    classifier: Classifier,
    chunks: StepChunks,
    wall_time: float,
    first: bool,
    batch: int | None,
    capacity: int | None,
) -> StepRequests | None:
    """The requests of a step; None if its trace does not lead from one memory map to the other, or
    is too long. A module that XLA planned needs no map, and has no regions."""
    window, trace = classifier.window, classifier.window.trace
    start, end, added = trace.start_map, trace.end_map, list[tuple[int, int]]()
    if trace.missed or len(trace) > MAX_EVENTS:
        return None
    if trace.allocator == PLANNED:
        chunks = dataclasses.replace(chunks, address=np.where(chunks.birth < 0, chunks.address, 0))
        regions = np.zeros((2, 0), np.int64)
    elif start is None or end is None:
        return None
    else:
        regions = np.stack([start.region_address, start.region_bytes])
        added = TraceReplay(trace, -1).grown if added_regions(start, end) else added
    added_address, added_bytes = np.asarray(added, np.int64).reshape(-1, 2).T.copy()
    # A variable's new chunk has the variable as its owner, although it only is being filled at
    # first.
    chunks = owned_at(chunks, classifier, chunks.events - 1)
    powers = [UNKNOWN_POWER] * len(window.birth)
    moments: tuple[ModuleMoment, ...] = ()
    if batch:
        moments = ModuleSizes(window, batch).moments(classifier.plans)
        batch_powers = BatchPowers(classifier, batch)
        owners = enumerate(chunks.owners[number] for number in chunks.owner.tolist())
        powers = [batch_powers.of(chunk, one.category, one.layer) for chunk, one in owners]
    replicas = window.facts.batch.replicas
    requested_by = [window.op_name(chunk) or "" for chunk in range(len(powers))]
    names, op = np.unique(requested_by, return_inverse=True)
    unnamed = int(names[0] == "")  # "" sorts first
    columns = ("step", "phase", "address", "allocated", "requested", "birth", "death")
    return StepRequests(
        **{name: getattr(chunks, name) for name in (*columns, "owner", "owners")},
        device=trace.device,
        wall_time=wall_time,
        mode=classifier.mode[0],
        first=first,
        batch_size=batch and batch * replicas,
        replicas=replicas if replicas > 1 else None,
        capacity_bytes=capacity,
        events=len(trace),
        batch_power=np.asarray(powers, np.int64),
        op=op.astype(np.int64) - unnamed,
        ops=tuple(names.tolist()[unnamed:]),
        region_address=regions[0],
        region_bytes=regions[1],
        added_address=added_address,
        added_bytes=added_bytes,
        module_moments=moments,
        unrepeatable=tuple(
            sorted({one for graph in window.facts.graphs for one in graph.unrepeatable})
        ),
    )


def until_failure(until: StepRequests, requested: int) -> StepRequests:
    """A step's requests up to one that failed, and that one: the least that the step needs."""
    events = until.events
    death = np.where(until.death >= events, events + 2, until.death)
    step = dataclasses.replace(until, events=events + 2, death=death, module_moments=())
    return _with_chunks(step, [_Added(requested, events, events + 1)])


def planned_requests(
    classifier: Classifier, until: StepRequests, module: CompiledModule, batch: int
) -> StepRequests:
    """The chunks that a step has when its compiled module begins, of whose requests one failed, and
    all that the module requests while it runs.

    Slots that this step made as zeros of one shape share a chunk until their update, whose results
    get chunks of their own. These are added as older ones, at made-up addresses: the step needs
    both, and later ones begin with them."""
    window, allocations = classifier.window, module.module.allocations
    end = 2 * len(allocations)
    made = {chunk for chunk, plan in classifier.plans.items() if plan.module is module}
    lasting = np.flatnonzero(until.death >= until.events).tolist()
    kept = take_rows(until, [row for row in lasting if row not in made])
    added: list[_Added] = []
    holders = collections.Counter(one.end_address for one in window.facts.variables)
    address = 0
    for one in window.facts.variables:
        if one.end_address and holders[one.end_address] > 1:
            added.append(_Added(one.requested_bytes, -1, end, variable_owner(one), address))
            address += rounded_bytes(one.requested_bytes)
    plans = {
        row: Plan(module, allocation)
        for row, allocation in enumerate(allocations, len(kept) + len(added))
    }
    added += [_Added(one.bytes, at, end - 1 - at) for at, one in enumerate(allocations)]
    step = dataclasses.replace(
        kept,
        mode="xla",
        events=end,
        birth=np.full(len(kept), -1),
        death=np.full(len(kept), end),
        region_address=np.concatenate([until.region_address, until.added_address]),
        region_bytes=np.concatenate([until.region_bytes, until.added_bytes]),
        added_address=until.added_address[:0],
        added_bytes=until.added_bytes[:0],
        module_moments=ModuleSizes(window, batch).moments(plans),
    )
    return _with_chunks(step, added)


class _Added(NamedTuple):
    """A chunk that is added to a step's: an owner's, of a fixed size; without one, of workspace
    whose size at other batch sizes is unknown."""

    requested: int
    birth: int
    death: int
    owner: ChunkOwner | None = None
    address: int = 0


def _with_chunks(step: StepRequests, added: Sequence[_Added]) -> StepRequests:
    """The step with further chunks, those of owners first."""
    owners = [one.owner for one in added if one.owner is not None]
    number = np.minimum(np.arange(len(added)), len(owners))
    more = dataclasses.replace(
        step,
        address=np.asarray([one.address for one in added]),
        allocated=np.asarray([rounded_bytes(one.requested) for one in added]),
        requested=np.asarray([one.requested for one in added]),
        birth=np.asarray([one.birth for one in added]),
        death=np.asarray([one.death for one in added]),
        batch_power=np.where(number < len(owners), 0, UNKNOWN_POWER),
        owner=len(step.owners) + number,
        op=np.full(len(added), -1),
    )
    all_owners = (*step.owners, *owners, layerless("workspace"))
    return dataclasses.replace(join_rows([step, more]), owners=all_owners)
