"""What was in use when the window opened: variables and held tensors, with the sizes of their chunks.

Python knows a tensor's address and the bytes it needs, not the size of its chunk, which may be up to twice that: the
BFC allocator splits a chunk only if it is at least twice the request or if 128 MiB would be left over. The size is
known if an earlier window saw the allocation or this one sees the end. Otherwise it is bounded by the next address at
which anything was ever seen; that is taken for the size only if all these sizes together explain the bytes in use.
"""

import dataclasses

import numpy as np

from tb_memplugin.analysis.lifetimes import Chunks
from tb_memplugin.model import Category
from tb_memplugin.trace import AllocationTrace, TraceFacts

ROUNDING = 256
"""The BFC allocator rounds every request up to a multiple of this many bytes."""
SPLIT_AT = 128 << 20
"""The BFC allocator splits off what is left over of a chunk from this many bytes on, whatever the request."""
TOLERANCE = 0.005
"""Share of the bytes in use that sizes taken from bounds may leave unexplained; otherwise they are not believed."""


@dataclasses.dataclass(frozen=True)
class Standing:
    """A chunk that was there before the window and is there after it."""

    layer: str | None
    category: Category
    trainable: bool | None
    allocated: int
    requested: int


@dataclasses.dataclass(frozen=True)
class _Item:
    address: int
    layer: str | None
    category: Category
    trainable: bool | None
    requested: int


def rounded(size: int) -> int:
    """Bytes that the BFC allocator gives for a request, before any remainder that it does not split off."""
    return max(ROUNDING, -(-size // ROUNDING) * ROUNDING)


def standing(trace: AllocationTrace, facts: TraceFacts, found: Chunks) -> tuple[Standing, ...]:
    """Variables and held tensors that were there before the window and that no event of it speaks of."""
    old = found.birth == -1
    died = set(found.address[old].tolist())
    budget = trace.start_in_use - int(found.allocated[old].sum())
    items = _items(trace, facts, died)
    if (
        sum(rounded(item.requested) for item in items) > budget
    ):  # a tensor that Python holds may lie outside of the pool
        items = [item for item in items if item.category not in ("inputs", "other_state")]
    sizes = {item.address: _known_size(item, facts) for item in items}
    bounds = _bounded(items, sizes, trace)
    explained = sum(sizes.values())
    more = sum(bounds[address] - sizes[address] for address in bounds)
    if 0 <= budget - explained - more <= TOLERANCE * int(trace.in_use.max()):
        sizes.update(bounds)
    return tuple(
        Standing(item.layer, item.category, item.trainable, sizes[item.address], item.requested) for item in items
    )


def _items(trace: AllocationTrace, facts: TraceFacts, died: set[int]) -> list[_Item]:
    items: dict[int, _Item] = {}
    for variable in facts.variables:
        address = variable.start_address
        if address is not None and variable.requested_bytes and address not in died:
            item = _Item(address, variable.layer, variable.role, variable.trainable, variable.requested_bytes)
            items.setdefault(address, item)
    first, last = int(trace.address.min()), int(trace.address.max())
    for tensor in facts.tensors:
        # Chunks begin at multiples of 256 bytes from the pool's start: anything else is no chunk of this allocator.
        in_pool = first <= tensor.address <= last and tensor.address % ROUNDING == first % ROUNDING
        if in_pool and tensor.requested_bytes and tensor.address not in died:
            items.setdefault(tensor.address, _Item(tensor.address, None, tensor.category, None, tensor.requested_bytes))
    return list(items.values())


def _known_size(item: _Item, facts: TraceFacts) -> int:
    """The chunk's size as an earlier window saw it; else the least that it can be."""
    seen = facts.chunks.get(item.address)
    return seen[0] if seen is not None and seen[1] == item.requested else rounded(item.requested)


def _bounded(items: list[_Item], sizes: dict[int, int], trace: AllocationTrace) -> dict[int, int]:
    """Addresses of chunks of unknown size to the size that reaches to the next address seen, where the allocator allows
    it.
    """
    addresses = np.unique(np.concatenate([trace.address, np.asarray([item.address for item in items], np.int64)]))
    found: dict[int, int] = {}
    for item in items:
        place = int(np.searchsorted(addresses, item.address, side="right"))
        if place == len(addresses):
            continue
        need, reach = rounded(item.requested), int(addresses[place]) - item.address
        if sizes[item.address] == need and need < reach < 2 * need and reach - need < SPLIT_AT:
            found[item.address] = reach
    return found
