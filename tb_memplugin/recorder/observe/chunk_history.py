"""`ChunkHistory`: a device's chunks with known contents, from one traced step to the next."""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Collection
from typing import Literal

import numpy as np

from tb_memplugin.attribution.trace.lifetimes import chunks, input_events
from tb_memplugin.model import IN_USE, MemoryMap
from tb_memplugin.model.trace import AllocationTrace, Earlier, KnownChunk, TraceFacts, VariableFact


class ChunkHistory:
    """Remembers chunks of one device. Call its methods for each window in order, from one thread at a time, except
    `ownable`, which any thread may call.

    Args:
        handle_bytes: Requested bytes of a variable's resource handle, None if handles are elsewhere.
    """

    def __init__(self, handle_bytes: int | None = None) -> None:
        self._handle_bytes = handle_bytes
        self._known: dict[int, KnownChunk] = {}
        self._input_sizes: set[int] = set()

    def first_batches(self, before: MemoryMap, after: MemoryMap) -> None:
        """Note the chunks that only the second map has as inputs: only the input pipeline ran between the maps."""
        for address, allocated, requested in _chunks_in_use(after) - _chunks_in_use(before):
            if requested == self._handle_bytes:  # the iterator's handle
                continue
            self._known.setdefault(address, KnownChunk(allocated, requested, "inputs"))
            self._input_sizes.add(requested)

    def ownable(self, memory_map: MemoryMap) -> set[int]:
        """Addresses of the chunks in use that a variable or a tensor may own: all but variables' resource handles."""
        chunks = _chunks_in_use(memory_map)
        return {address for address, _, requested in chunks if requested != self._handle_bytes}

    def add_to(self, facts: TraceFacts, trace: AllocationTrace) -> TraceFacts:
        """The facts of a window with the known chunks from before it."""
        if trace.start_map is not None:
            in_use = _chunks_in_use(trace.start_map)
            self._known = {
                address: chunk
                for address, chunk in self._known.items()
                if (address, chunk.allocated, chunk.requested) in in_use
            }
            facts = dataclasses.replace(facts, variables=self._with_addresses(facts, trace.start_map))
        earlier = Earlier(dict(self._known), frozenset(self._input_sizes), self._handle_bytes)
        return dataclasses.replace(facts, earlier=earlier)

    def _with_addresses(self, facts: TraceFacts, start: MemoryMap) -> tuple[VariableFact, ...]:
        """The variables with the addresses of copy-on-read variables corrected.

        A sparse update, such as an embedding's, makes a variable copy-on-read for good. Python then sees no address, or
        that of a copy that no longer exists when the map is read; the value is in a chunk of its size with unknown
        contents. Variables of one size are matched only if there are as many such chunks as variables.
        """
        in_use = {address: requested for address, _, requested in _chunks_in_use(start)}
        unmatched = [
            fact
            for fact in facts.variables
            if fact.start_address is None or in_use.get(fact.start_address) != fact.requested_bytes
        ]
        if not unmatched:
            return facts.variables
        counts = Counter(fact.requested_bytes for fact in unmatched)
        known = {fact.start_address for fact in facts.variables} | {fact.address for fact in facts.tensors}
        known -= {fact.start_address for fact in unmatched}
        known |= {address for address, chunk in self._known.items() if chunk.category == "inputs"}
        candidates: dict[int, list[int]] = defaultdict(list)
        for address, requested in sorted(in_use.items()):
            if requested in counts and address not in known:
                candidates[requested].append(address)
        sizes = {size for size, count in counts.items() if len(candidates[size]) == count}
        addresses = {
            id(fact): candidates[fact.requested_bytes].pop() for fact in unmatched if fact.requested_bytes in sizes
        }
        return tuple(
            dataclasses.replace(fact, start_address=addresses[id(fact)]) if id(fact) in addresses else fact
            for fact in facts.variables
        )

    def remember(
        self, trace: AllocationTrace, input_sizes: Collection[int] = (), arguments: Collection[str] = ()
    ) -> None:
        """Note the chunks that a window left behind.

        Args:
            trace: The window's trace.
            input_sizes: Requested bytes of its batches.
            arguments: `TraceFacts.arguments` of the window.
        """
        made = chunks(trace)
        is_input = input_events(trace, arguments)
        for address in made.address[made.birth == -1].tolist():
            self._known.pop(address, None)
        self._input_sizes.update(trace.requested[is_input].tolist())
        self._input_sizes.update(input_sizes)
        for row in np.flatnonzero((made.birth >= 0) & (made.death == len(trace))).tolist():
            category: Literal["inputs", "other_state"] = "inputs" if is_input[made.birth[row]] else "other_state"
            chunk = KnownChunk(int(made.allocated[row]), int(made.requested[row]), category)
            self._known[int(made.address[row])] = chunk


def _chunks_in_use(memory_map: MemoryMap) -> set[tuple[int, int, int]]:
    """(address, allocated bytes, requested bytes) of the chunks in use."""
    used = memory_map.state == IN_USE
    columns = (memory_map.address[used], memory_map.bytes[used], memory_map.requested_bytes[used])
    return set(zip(*(column.tolist() for column in columns), strict=True))
