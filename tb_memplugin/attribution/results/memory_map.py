"""Memory maps with owners: from the traced step to the map, and from the map to a ledger. Pure."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from tb_memplugin.attribution.owners.step_chunks import UNATTRIBUTED, StepChunks
from tb_memplugin.model import IN_USE, MISSING, OWNER_SOURCES, LedgerRow, MemoryMap
from tb_memplugin.model.rounding import split_rounding
from tb_memplugin.model.trace import TraceFacts

_TRACE, _VARIABLE = OWNER_SOURCES.index("trace"), OWNER_SOURCES.index("variable")

Ages = Mapping[tuple[int, int], int]
"""(address, bytes) of a chunk to the step of its first snapshot."""


def ages_after(known: Ages, step: StepChunks) -> Ages:
    """The ages of the chunks in use at the end of a traced step."""
    rows = np.flatnonzero(step.death == step.events)
    keys = zip(step.address[rows].tolist(), step.allocated[rows].tolist(), step.birth[rows].tolist(), strict=True)
    return {
        (address, size): known.get((address, size), step.step) if birth < 0 else step.step
        for address, size, birth in keys
    }


def owned_map(memory_map: MemoryMap, step: StepChunks, event: int, ages: Ages) -> MemoryMap:
    """The memory map with owners.

    Args:
        memory_map: The map just after an event of the step.
        step: The step's chunks and their owners.
        event: Number of the event, -1 for the map before the first.
        ages: Ages of the chunks allocated before the step.
    """
    owner, source, since = memory_map.owner.copy(), memory_map.source.copy(), memory_map.since.copy()
    rows = {address: row for row, address in enumerate(memory_map.address.tolist())}
    for chunk in np.flatnonzero((step.birth <= event) & (step.death > event)).tolist():
        row = rows.get(int(step.address[chunk]))
        if row is None:
            continue
        is_new = bool(step.birth[chunk] >= 0)
        key = (int(step.address[chunk]), int(step.allocated[chunk]))
        since[row] = step.step if is_new else ages.get(key, MISSING)
        if step.owners[int(step.owner[chunk])].category != "unattributed":
            owner[row] = int(step.owner[chunk])
            source[row] = _TRACE if is_new else _VARIABLE
    return dataclasses.replace(
        memory_map, step=step.step, phase=step.phase, owner=owner, source=source, since=since, owners=step.owners
    )


def ledger_of(memory_map: MemoryMap) -> tuple[LedgerRow, ...]:
    """The ledger of a map; sums to the map's `in_use_bytes`. Empty if these are unknown."""
    if memory_map.in_use_bytes is None:
        return ()
    rows = [_chunk_row(memory_map, row) for row in np.flatnonzero(memory_map.state == IN_USE).tolist()]
    missing = memory_map.in_use_bytes - sum(row.bytes for row in rows)
    if missing < 0:
        return ()
    return split_rounding((*rows, LedgerRow(None, "unattributed", None, missing, None)))


def _chunk_row(memory_map: MemoryMap, row: int) -> LedgerRow:
    """A row of the allocated bytes of a chunk."""
    owner = memory_map.owners[int(memory_map.owner[row])] if memory_map.owner[row] >= 0 else UNATTRIBUTED
    size, requested = int(memory_map.bytes[row]), int(memory_map.requested_bytes[row])
    rounding = None if requested < 0 else size - requested
    return LedgerRow(owner.layer, owner.category, owner.trainable, size, rounding)


def unmoved(facts: TraceFacts, memory_map: MemoryMap) -> TraceFacts:
    """Facts of an earlier step without the variables and tensors that have moved since.

    The map has no chunk of their size at their address any more.
    """
    rows = np.flatnonzero(memory_map.state == IN_USE)
    here = set(zip(memory_map.address[rows].tolist(), memory_map.requested_bytes[rows].tolist(), strict=True))
    return dataclasses.replace(
        facts,
        variables=tuple(fact for fact in facts.variables if (fact.end_address, fact.requested_bytes) in here),
        tensors=tuple(fact for fact in facts.tensors if (fact.address, fact.requested_bytes) in here),
    )
