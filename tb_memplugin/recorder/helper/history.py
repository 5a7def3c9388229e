"""`ChunkHistory`: what earlier windows showed of the chunks of one device."""

import dataclasses
from collections.abc import Collection
from typing import Literal

import numpy as np

from tb_memplugin.attribution import event_chunks, input_events
from tb_memplugin.schema import (
    IN_USE,
    AllocationTrace,
    Earlier,
    KnownChunk,
    MemoryMap,
    TraceFacts,
)


class ChunkHistory:
    """Remembers chunks of one device, where each resource handle of a variable requested
    `handle_bytes`, None without. For one thread at a time, each window in order; any thread may
    call `ownable`."""

    def __init__(self, handle_bytes: int | None = None) -> None:
        self.handle_bytes = handle_bytes
        self._known: dict[int, KnownChunk] = {}
        self._input_sizes: set[int] = set()

    def first_batches(self, before: MemoryMap, after: MemoryMap) -> None:
        """Note the chunks that only the second map has as inputs: only the input pipeline ran
        between the maps."""
        for address, allocated, requested in _chunks_in_use(after) - _chunks_in_use(before):
            if requested != self.handle_bytes:  # as the iterator's handle does
                self._known.setdefault(address, KnownChunk(allocated, requested, "inputs"))
                self._input_sizes.add(requested)

    def ownable(self, memory_map: MemoryMap) -> set[int]:
        """Addresses of the chunks in use that a variable or a tensor may own: all but variables'
        resource handles."""
        chunks = _chunks_in_use(memory_map)
        return {address for address, _, requested in chunks if requested != self.handle_bytes}

    def add_to(self, facts: TraceFacts, trace: AllocationTrace) -> TraceFacts:
        if trace.start_map is not None:
            in_use, known = _chunks_in_use(trace.start_map), self._known.items()
            self._known = {
                at: one for at, one in known if (at, one.allocated, one.requested) in in_use
            }
        earlier = Earlier(dict(self._known), frozenset(self._input_sizes), self.handle_bytes)
        return dataclasses.replace(facts, earlier=earlier)

    def remember(
        self,
        trace: AllocationTrace,
        input_sizes: Collection[int] = (),
        arguments: Collection[str] = (),
    ) -> None:
        """Note the chunks that a window left behind, given the requested bytes of its batches."""
        made, is_input = event_chunks(trace), input_events(trace, arguments)
        for address in made.address[made.birth == -1].tolist():
            self._known.pop(address, None)
        self._input_sizes.update(trace.requested[is_input].tolist(), input_sizes)
        for row in np.flatnonzero((made.birth >= 0) & (made.death == len(trace))).tolist():
            category: Literal["inputs", "other_state"] = (
                "inputs" if is_input[made.birth[row]] else "other_state"
            )
            chunk = KnownChunk(int(made.allocated[row]), int(made.requested[row]), category)
            self._known[int(made.address[row])] = chunk


def _chunks_in_use(memory_map: MemoryMap) -> set[tuple[int, int, int]]:
    used = memory_map.state == IN_USE
    columns = (memory_map.address[used], memory_map.bytes[used], memory_map.requested_bytes[used])
    return set(zip(*(column.tolist() for column in columns), strict=True))
