"""Makes `StepRequests` of a traced step. Pure."""

import numpy as np

from tb_memplugin.allocator.replay import added_regions
from tb_memplugin.attribution.batch_power import BatchPowers
from tb_memplugin.attribution.classifier import Classifier
from tb_memplugin.attribution.step_chunks import StepChunks, owned_at
from tb_memplugin.model import UNKNOWN_POWER, Integers, Mode, StepRequests
from tb_memplugin.model.trace import AllocationTrace, TraceFacts

MAX_EVENTS = 200_000
"""Most events of a step whose requests are kept."""


def step_requests(
    trace: AllocationTrace,
    facts: TraceFacts,
    classifier: Classifier,
    chunks: StepChunks,
    *,
    wall_time: float,
    first: bool,
    batch_size: int | None,
    capacity_bytes: int | None,
) -> StepRequests | None:
    """The requests of a step; None if its trace does not lead from one memory map to the other, or is too long.

    Args:
        trace, facts, classifier: The trace, the facts about its program, and their classifier.
        chunks: The step's chunks with their owners.
        wall_time, first, batch_size, capacity_bytes: As in `StepRequests`.
    """
    if trace.start_map is None or trace.end_map is None or trace.missed or len(trace) > MAX_EVENTS:
        return None
    added = added_regions(trace.start_map, trace.end_map)
    # A variable's new chunk has the variable as its owner, although it only is being filled at first.
    chunks = owned_at(chunks, classifier, chunks.events - 1)
    names, op = np.unique(_ops(trace, chunks.birth), return_inverse=True)
    unnamed = int(names[0] == "")  # "" sorts first
    return StepRequests(
        step=chunks.step,
        phase=chunks.phase,
        device=trace.device,
        wall_time=wall_time,
        mode=_mode(facts, classifier),
        first=first,
        batch_size=batch_size,
        capacity_bytes=capacity_bytes,
        events=len(trace),
        address=chunks.address,
        allocated=chunks.allocated,
        requested=chunks.requested,
        birth=chunks.birth,
        death=chunks.death,
        batch_power=_powers(trace, facts, classifier, chunks, batch_size),
        owner=chunks.owner,
        op=op.astype(np.int64) - unnamed,
        owners=chunks.owners,
        ops=tuple(names.tolist()[unnamed:]),
        region_address=trace.start_map.region_address,
        region_bytes=trace.start_map.region_bytes,
        added_address=np.asarray([address for address, _ in added], np.int64),
        added_bytes=np.asarray([size for _, size in added], np.int64),
    )


def _mode(facts: TraceFacts, classifier: Classifier) -> Mode:
    is_compiled = any(classifier.plan(chunk) is not None for chunk in range(len(classifier.chunks)))
    return "xla" if is_compiled else facts.mode


def _ops(trace: AllocationTrace, birth: Integers) -> list[str]:
    """The name of each chunk's op, empty if unknown."""
    return [(trace.text(int(trace.op[event])) or "") if event >= 0 else "" for event in birth.tolist()]


def _powers(
    trace: AllocationTrace, facts: TraceFacts, classifier: Classifier, chunks: StepChunks, batch_size: int | None
) -> Integers:
    if not batch_size:
        return np.full(len(chunks.birth), UNKNOWN_POWER, np.int64)
    powers = BatchPowers(trace, facts, classifier, batch_size)
    owners = [chunks.owners[number] for number in chunks.owner.tolist()]
    return np.asarray([powers.of(chunk, owner.category) for chunk, owner in enumerate(owners)], np.int64)
