"""What was in use when the window opened: variables and held tensors, with the sizes of their chunks.

Python knows a tensor's address and the bytes it needs, not the size of its chunk, which may be up to twice that: the
BFC allocator splits a chunk only if it is at least twice the request or if 128 MiB would be left over. The size is
known if an earlier window saw the allocation or this one sees the end. Otherwise it is bounded by the next address at
which anything was ever seen; that is taken for the size only if all these sizes together explain the bytes in use.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np

from tb_memplugin.analysis.bfc import ROUNDING, rounded_bytes
from tb_memplugin.analysis.distinct import distinct
from tb_memplugin.analysis.lifetimes import Chunks, chunks, input_events
from tb_memplugin.model import Category, Integers
from tb_memplugin.trace import AllocationTrace, KnownChunk, TraceFacts

NOWHERE = 1 << 62
"""An address that is beyond every other."""
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


def standing(trace: AllocationTrace, facts: TraceFacts, found: Chunks) -> tuple[Standing, ...]:
    """Variables and held tensors that were there before the window and that no event of it speaks of."""
    old = found.birth == -1
    died = set(found.address[old].tolist())
    budget = trace.start_in_use - int(found.allocated[old].sum())
    items = _in_pool(_items(facts, died), trace, facts, budget)
    sizes, unknown = _sizes(items, trace, facts)
    items, sizes = _with_remembered(items, sizes, trace, facts, found, budget)
    left = budget - sum(sizes.values())
    small = int(TOLERANCE * int(trace.in_use.max()))
    unseen = _unseen_inputs(trace, facts, found, items, left, small)
    certain = bool(facts.chunks) and unseen is not None
    more, rest = _remainders(
        unknown, *_bounded(unknown, _here(items, trace), facts), left - (unseen or 0), small, certain
    )
    known = (
        Standing(
            item.address,
            item.layer,
            item.category,
            item.trainable,
            sizes[item.address] + more.get(item.address, 0),
            item.requested,
        )
        for item in items
    )
    return (*known, *rest)


def _remainders(
    items: list[_Item], bounded: Mapping[int, int], open_ended: Mapping[int, int], left: int, small: int, certain: bool
) -> tuple[dict[int, int], list[Standing]]:
    """Shares out the bytes that sizes do not explain: by address, and to kinds of chunks.

    A chunk reaches to the next address that was seen, if the bytes are enough for all that do; the others hold what is
    left then, if they can.

    Args:
        items: The chunks of unknown size.
        bounded, open_ended: By address, the most that chunks can be larger than needed, as `_bounded` gives them.
        left: Bytes to share out.
        small: Bytes that need no owner.
        certain: Whether there is nothing else that the bytes could be.
    """
    if left <= 0:
        return {}, []
    beyond = left - sum(bounded.values())
    if beyond < 0:
        return _shares(items, bounded, left)
    if beyond <= small:
        return dict(bounded), []
    most = sum(open_ended.values())
    if not certain or beyond > most + small:
        return {}, []
    more, rest = _shares(items, open_ended, min(beyond, most))
    return {**bounded, **more}, rest


def _shares(items: list[_Item], most: Mapping[int, int], left: int) -> tuple[dict[int, int], list[Standing]]:
    """What each chunk must hold of the bytes left, as the others cannot, then what each kind of chunk must."""
    spare = sum(most.values()) - left
    least = {address: size - spare for address, size in most.items() if size > spare}
    kinds: dict[tuple[Category, bool | None], tuple[int, int]] = {}
    for item in items:
        highest, given = kinds.get((item.category, item.trainable), (0, 0))
        highest, given = highest + most.get(item.address, 0), given + least.get(item.address, 0)
        kinds[item.category, item.trainable] = highest, given
    return least, [
        Standing(-1, None, category, trainable, highest - spare - given, 0)
        for (category, trainable), (highest, given) in kinds.items()
        if highest - spare > given
    ]


def _unseen_inputs(
    trace: AllocationTrace, facts: TraceFacts, found: Chunks, items: list[_Item], left: int, small: int
) -> int | None:
    """How many of the unexplained bytes are batches that the input pipeline made before the window; None if that cannot
    be said.

    Where it allocates none in the window, there are none. Otherwise they are what is unexplained beyond what was so
    before the first batch was asked for.
    """
    if left <= PIPELINE_SCALARS:
        return 0
    is_input = input_events(trace)
    births = found.birth[found.birth >= 0]
    sizes = found.allocated[: len(births)][is_input[births]]
    if not ((sizes > PIPELINE_SCALARS) & (sizes <= left)).any():
        return 0
    if facts.quiet_bytes is None:
        return None
    tensors = {tensor.address for tensor in facts.tensors} - facts.chunks.keys()
    held = sum(rounded_bytes(item.requested) for item in items if item.address in tensors)
    beyond = left - (facts.quiet_bytes - held)
    return beyond if beyond > small else 0


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
    seen = distinct(trace.address, facts.addresses)
    address = np.asarray([item.address for item in items], np.int64)
    place = np.searchsorted(seen, address)
    above, below = seen[np.minimum(place, len(seen) - 1)], seen[np.maximum(place - 1, 0)]
    near = (np.abs(above - address) <= NEAR) & (np.abs(address - below) <= NEAR)
    taken = [item for item, is_near in zip(items, near, strict=True) if is_near]
    others = [item for item, is_near in zip(items, near, strict=True) if not is_near]
    left = budget - sum(_size_at_least(item, facts) for item in taken)
    for item in sorted(others, key=lambda item: (item.category in ("inputs", "other_state"), -item.requested)):
        size = _size_at_least(item, facts)
        if size <= left:
            taken.append(item)
            left -= size
    return taken


def _known_size(item: _Item, facts: TraceFacts) -> int | None:
    """The chunk's size as an earlier window saw it."""
    seen = facts.chunks.get(item.address)
    return seen.allocated if seen is not None and seen.requested == item.requested else None


def _size_at_least(item: _Item, facts: TraceFacts) -> int:
    return _known_size(item, facts) or rounded_bytes(item.requested)


def _sizes(items: list[_Item], trace: AllocationTrace, facts: TraceFacts) -> tuple[dict[int, int], list[_Item]]:
    """Sizes of the chunks by address, and those of which only the least possible is known.

    What an earlier window saw does not hold where something else is now where the chunk would reach to.
    """
    here = _here(items, trace)
    sizes: dict[int, int] = {}
    unknown: list[_Item] = []
    for item in items:
        size, need = _known_size(item, facts), rounded_bytes(item.requested)
        if size is None or item.address + size > _next(here, item.address + need):
            unknown.append(item)
            size = need
        sizes[item.address] = size
    return sizes, unknown


def _here(items: list[_Item], trace: AllocationTrace) -> Integers:
    """Where something begins while the items stand."""
    return distinct(trace.address, np.asarray([item.address for item in items], np.int64))


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


def _bounded(unknown: list[_Item], here: Integers, facts: TraceFacts) -> tuple[dict[int, int], dict[int, int]]:
    """By address, the most that chunks of unknown size can be larger than needed.

    First of those for which the next address at which anything began says it, then of those that no address near
    bounds.
    """
    bounded: dict[int, int] = {}
    open_ended: dict[int, int] = {}
    for item in unknown:
        need = rounded_bytes(item.requested)
        most = min(need, SPLIT_AT) - ROUNDING
        end = item.address + need
        beyond = min(_next(here, end), _next_seen(facts, item.address, end, end + most)) - end
        if beyond > most > 0:
            open_ended[item.address] = most
        elif 0 < beyond <= most:
            bounded[item.address] = beyond
    return bounded, open_ended


def _next(addresses: Integers, start: int) -> int:
    """The first of the sorted addresses from `start` on; one that is out of reach if there is none."""
    place = int(np.searchsorted(addresses, start))
    return int(addresses[place]) if place < len(addresses) else NOWHERE


def _next_seen(facts: TraceFacts, address: int, start: int, stop: int) -> int:
    """The first address from `start` to `stop` that earlier windows saw while the chunk at `address` lay there."""
    first, last = np.searchsorted(facts.addresses, [start, stop], side="left").tolist()
    valid = np.flatnonzero(facts.last_seen[first:last] >= facts.since.get(address, 0))
    return int(facts.addresses[first + int(valid[0])]) if len(valid) else NOWHERE
