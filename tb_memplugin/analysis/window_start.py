"""What was in use when the window opened: variables and held tensors, with the sizes of their chunks.

Python knows a tensor's address and the bytes it needs, not the size of its chunk, which may be up to twice that: the
BFC allocator splits a chunk only if it is at least twice the request or if 128 MiB would be left over. The size is
known if an earlier window saw the allocation or this one sees the end. Otherwise it is bounded by the next address at
which anything was ever seen; that is taken for the size only if all these sizes together explain the bytes in use.
"""

import collections
from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from tb_memplugin.analysis.lifetimes import Chunks, chunks, input_events
from tb_memplugin.model import Category, Integers
from tb_memplugin.trace import AllocationTrace, KnownChunk, TraceFacts

ROUNDING = 256
"""The BFC allocator rounds every request up to a multiple of this many bytes."""
SPLIT_AT = 128 << 20
"""The BFC allocator splits off what is left over of a chunk from this many bytes on, whatever the request."""
NEAR = 1 << 20
"""Distance within which addresses are of one region of the pool: the size of the smallest region."""
PIPELINE_SCALARS = 4096
"""Allocations of the input pipeline up to this many bytes are its counters and flags, not batches."""
TOLERANCE = 0.005
"""Share of the bytes in use that sizes taken from bounds may leave unexplained; otherwise they are not believed."""


class Standing(NamedTuple):
    """A chunk that was there before the window and is there after it; at address -1, remainders of some of these."""

    address: int
    layer: str | None
    category: Category
    trainable: bool | None
    allocated: int
    requested: int


class _Item(NamedTuple):
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
    items = _in_pool(_items(facts, died), trace, facts, budget)
    sizes = {item.address: _known_size(item, facts) for item in items}
    items, sizes = _with_remembered(items, sizes, trace, facts, found, budget)
    bounds, open_ended = _bounded(items, sizes, np.union1d(trace.address, facts.addresses))
    left = budget - sum(sizes.values()) - sum(bounds[address] - sizes[address] for address in bounds)
    small = TOLERANCE * int(trace.in_use.max())
    rest: list[Standing] = []
    if 0 <= left <= small:
        sizes.update(bounds)
    elif facts.chunks and 0 < left <= sum(open_ended.values()) + small and not _unseen_inputs(trace, found, left):
        sizes.update(bounds)
        if len(open_ended) == 1 and left <= sum(open_ended.values()):
            sizes.update((address, sizes[address] + left) for address in open_ended)
        else:
            rest.extend(_remainders(items, open_ended, left))
    known = (
        Standing(item.address, item.layer, item.category, item.trainable, sizes[item.address], item.requested)
        for item in items
    )
    return (*known, *rest)


def _remainders(items: list[_Item], open_ended: Mapping[int, int], left: int) -> list[Standing]:
    """What of the unexplained bytes must be remainders of one category's chunks, as the others' cannot be so large."""
    most: dict[Category, int] = collections.Counter()
    for item in items:
        most[item.category] += open_ended.get(item.address, 0)
    spare = max(0, sum(most.values()) - left)
    least = {category: size - spare for category, size in most.items()}
    return [Standing(-1, None, category, None, size, 0) for category, size in least.items() if size > 0]


def _unseen_inputs(trace: AllocationTrace, found: Chunks, left: int) -> bool:
    """Whether the input pipeline allocates batches here, so that unexplained bytes may be some that it made before."""
    is_input = input_events(trace)
    sizes = [
        int(found.allocated[row]) for row in np.flatnonzero(found.birth >= 0).tolist() if is_input[found.birth[row]]
    ]
    return any(PIPELINE_SCALARS < size <= left for size in sizes)


def _items(facts: TraceFacts, died: set[int]) -> list[_Item]:
    items: dict[int, _Item] = {}
    for variable in facts.variables:
        address = variable.start_address
        if address is not None and variable.requested_bytes and address not in died:
            item = _Item(address, variable.layer, variable.role, variable.trainable, variable.requested_bytes)
            items.setdefault(address, item)
    for tensor in facts.tensors:
        if tensor.requested_bytes and tensor.address not in died:
            items.setdefault(tensor.address, _Item(tensor.address, None, tensor.category, None, tensor.requested_bytes))
    return list(items.values())


def _in_pool(items: list[_Item], trace: AllocationTrace, facts: TraceFacts, budget: int) -> list[_Item]:
    """The items that lie in the allocator's pool.

    On an accelerator all do. On the CPU, tensors made from Python values do not: what lies near addresses that the
    allocator gave out is its own, the rest as far as the bytes in use allow, variables first.
    """
    if not trace.device.startswith("CPU"):
        return items
    seen = np.union1d(trace.address, facts.addresses)
    address = np.asarray([item.address for item in items], np.int64)
    place = np.searchsorted(seen, address)
    above, below = seen[np.minimum(place, len(seen) - 1)], seen[np.maximum(place - 1, 0)]
    near = (np.abs(above - address) <= NEAR) & (np.abs(address - below) <= NEAR)
    taken = [item for item, is_near in zip(items, near, strict=True) if is_near]
    others = [item for item, is_near in zip(items, near, strict=True) if not is_near]
    left = budget - sum(_known_size(item, facts) for item in taken)
    for item in sorted(others, key=lambda item: (item.category in ("inputs", "other_state"), -item.requested)):
        size = _known_size(item, facts)
        if size <= left:
            taken.append(item)
            left -= size
    return taken


def _known_size(item: _Item, facts: TraceFacts) -> int:
    """The chunk's size as an earlier window saw it; else the least that it can be."""
    seen = facts.chunks.get(item.address)
    return seen.allocated if seen is not None and seen.requested == item.requested else rounded(item.requested)


def _with_remembered(
    items: list[_Item],
    sizes: dict[int, int],
    trace: AllocationTrace,
    facts: TraceFacts,
    found: Chunks,
    budget: int,
) -> tuple[list[_Item], dict[int, int]]:
    """Adds the chunks that earlier windows left behind, as far as they can still be there: constants of compiled
    functions, batches.

    Where this window allocates without anything being freed before, there was nothing.
    """
    starts = np.concatenate([found.address, np.fromiter(sizes, np.int64, len(sizes))])
    ends = np.concatenate(
        [found.address + found.allocated, starts[len(found) :] + np.fromiter(sizes.values(), np.int64, len(sizes))]
    )
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    first = np.fromiter(facts.chunks, np.int64, len(facts.chunks))
    last = first + np.asarray([chunk.allocated for chunk in facts.chunks.values()], np.int64)
    place = np.searchsorted(starts, last, side="left")
    free = (place == 0) | (np.append(ends, 0)[place - 1] <= first)
    more = [
        _Item(address, None, facts.chunks[address].category, None, facts.chunks[address].requested)
        for address in first[free].tolist()
    ]
    added = {item.address: facts.chunks[item.address].allocated for item in more}
    if sum(added.values()) + sum(sizes.values()) > budget:
        return items, sizes
    return items + more, {**sizes, **added}


def learned(known: Mapping[int, KnownChunk], trace: AllocationTrace) -> dict[int, KnownChunk]:
    """What is known of chunks after a window.

    What was known before, less what the window freed, and what it left behind.
    """
    found = chunks(trace)
    is_input = input_events(trace)
    gone = set(found.address[found.birth == -1].tolist())
    after = {address: chunk for address, chunk in known.items() if address not in gone}
    for row in np.flatnonzero((found.birth >= 0) & (found.death == len(trace))).tolist():
        category: Literal["inputs", "other_state"] = "inputs" if is_input[found.birth[row]] else "other_state"
        after[int(found.address[row])] = KnownChunk(int(found.allocated[row]), int(found.requested[row]), category)
    return after


def _bounded(items: list[_Item], sizes: dict[int, int], seen: Integers) -> tuple[dict[int, int], dict[int, int]]:
    """Chunks of unknown size: by address, the size that reaches to the next address seen, where that is possible.

    Second, by address, the most that a chunk can be larger than needed, of those that no address near bounds.
    """
    addresses = np.union1d(seen, np.asarray([item.address for item in items], np.int64))
    places = np.searchsorted(addresses, np.asarray([item.address for item in items], np.int64), side="right")
    following = np.append(addresses, -1)[places].tolist()
    bounds: dict[int, int] = {}
    open_ended: dict[int, int] = {}
    for item, after in zip(items, following, strict=True):
        need = rounded(item.requested)
        if sizes[item.address] != need:
            continue
        reach = after - item.address if after >= 0 else 2 * need
        most = min(need, SPLIT_AT) - ROUNDING
        if need < reach <= need + most:
            bounds[item.address] = reach
        elif reach > need + most and most:
            open_ended[item.address] = most
    return bounds, open_ended
