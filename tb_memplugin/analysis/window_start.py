"""What was in use when the window opened: variables and held tensors, with the sizes of their chunks.

Python knows a tensor's address and the bytes it needs, not the size of its chunk, which may be up to twice that: the
BFC allocator splits a chunk only if it is at least twice the request or if 128 MiB would be left over. The size is
known if an earlier window saw the allocation or this one sees the end. Otherwise it is bounded by the next address at
which anything was ever seen; that is taken for the size only if all these sizes together explain the bytes in use.
"""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

import numpy as np

from tb_memplugin.analysis.bfc import ROUNDING, rounded_bytes
from tb_memplugin.analysis.distinct import distinct
from tb_memplugin.analysis.lifetimes import Chunks, chunks, input_events
from tb_memplugin.model import Category, Integers
from tb_memplugin.trace import AllocationTrace, KnownChunk, KnownRemainders, TraceFacts

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
    """A chunk that Python or an earlier window knows of.

    Attributes:
        size: Bytes of the chunk, the least possible where that is not `known`.
    """

    address: int
    layer: str | None
    category: Category
    trainable: bool | None
    requested: int
    size: int
    known: bool


class WindowStart(NamedTuple):
    """Variables and held tensors that were there before the window and that no event of it speaks of.

    Attributes:
        rows: The chunks.
        remainders: What is proven of those that are larger than needed, for later windows.
    """

    rows: tuple[Standing, ...]
    remainders: tuple[KnownRemainders, ...]


def window_start(trace: AllocationTrace, facts: TraceFacts, found: Chunks, batches: Integers) -> WindowStart:
    """What stood before the window and stands after it; `batches` are the rows of `found` that are batches of data."""
    old = found.birth == -1
    died = set(found.address[old].tolist())
    budget = trace.start_in_use - int(found.allocated[old].sum())
    items = _there(_items(trace, facts, died), trace, facts, found, budget)
    left = budget - sum(item.size for item in items)
    small = int(TOLERANCE * int(trace.in_use.max()))
    unknown = {item.address: item for item in items if not item.known}
    bounded, open_ended = _bounded(unknown.values(), _here(items, trace), facts)
    most = {**bounded, **open_ended}
    earlier = _without_gone(facts, found)
    unseen, proven = _batches_and_proven(facts, earlier, found.allocated[batches], items, bounded, most, left, small)
    left -= unseen or 0
    certain = bool(facts.earlier.chunks) and unseen is not None
    more, rest, proven = _as_proven(facts.window, proven, unknown, most)
    left -= sum(more.values()) + sum(row.allocated for row in rest)
    open_items = [item for address, item in unknown.items() if address not in more]
    bounded, open_ended = (
        {address: size for address, size in beyond.items() if address not in more} for beyond in (bounded, open_ended)
    )
    shared, shared_rest = _remainders(open_items, bounded, open_ended, left, small, certain)
    left -= sum(shared.values()) + sum(row.allocated for row in shared_rest)
    if certain and abs(left) <= small:
        proven = [*proven, *_proven(facts.window, open_items, shared, shared_rest, most)]
    more.update(shared)
    rows = (
        Standing(
            item.address,
            item.layer,
            item.category,
            item.trainable,
            item.size + more.get(item.address, 0),
            item.requested,
        )
        for item in items
    )
    return WindowStart((*rows, *rest, *shared_rest), tuple(proven))


def _batches_and_proven(
    facts: TraceFacts,
    earlier: list[KnownRemainders],
    sizes: Integers,
    items: list[_Item],
    bounded: Mapping[int, int],
    most: Mapping[int, int],
    left: int,
    small: int,
) -> tuple[int | None, list[KnownRemainders]]:
    """What batches in waiting take of the unexplained bytes, as `_unseen_inputs` has it, and what of the chunks' sizes
    is proven still.

    No batch waits where sizes explain the bytes but for less than a batch: those that are proven, with all that lies
    behind the other chunks; or else all that lies behind the chunks, whatever was so before.
    """
    unknown = {item.address: item for item in items if not item.known}
    proven = _still_proven(earlier, unknown, most, left)
    sure = {address for known in proven for address in known.more}
    explained = sum(sum(known.more.values()) + known.together for known in proven)
    explained += sum(size for address, size in bounded.items() if address not in sure)
    batch = min([small, *(size for size in sizes.tolist() if size > PIPELINE_SCALARS)])
    if 0 <= left - explained < batch:
        return 0, proven
    if small < sum(bounded.values()) <= left <= sum(bounded.values()) + small:
        return 0, []
    unseen = _unseen_inputs(facts, sizes, items, left, small)
    return unseen, _still_proven(earlier, unknown, most, left - (unseen or 0))


def _without_gone(facts: TraceFacts, found: Chunks) -> list[KnownRemainders]:
    """What earlier windows proved, without chunks that this one frees: how large these were is then known.

    Nothing of what that contradicts.
    """
    old = found.birth == -1
    freed = dict(zip(found.address[old].tolist(), found.allocated[old].tolist(), strict=True))
    needs = {tensor.address: tensor.requested_bytes for tensor in facts.tensors}
    needs |= {item.start_address: item.requested_bytes for item in facts.variables if item.start_address is not None}
    gone = {address: freed[address] - rounded_bytes(needs[address]) for address in needs.keys() & freed.keys()}
    kept = []
    for known in facts.earlier.remainders:
        beyond = [gone[address] - least for address, least in known.more.items() if address in gone]
        stayed = all(facts.earlier.since.get(address, 0) <= known.window for address in known.more)
        if stayed and all(size >= 0 for size in beyond) and sum(beyond) <= known.together:
            more = {address: least for address, least in known.more.items() if address not in gone}
            kept.append(dataclasses.replace(known, more=more, together=known.together - sum(beyond)))
    return [known for known in kept if known.more]


def _still_proven(
    earlier: list[KnownRemainders], unknown: Mapping[int, _Item], most: Mapping[int, int], left: int
) -> list[KnownRemainders]:
    """What is proven of chunks that are all there and can be as large; nothing if it is more than is left."""
    valid = [
        known
        for known in earlier
        if all(address in unknown and least <= most.get(address, 0) for address, least in known.more.items())
        and sum(most.get(address, 0) - least for address, least in known.more.items()) >= known.together
    ]
    return valid if sum(sum(known.more.values()) + known.together for known in valid) <= left else []


def _as_proven(
    window: int, proven: list[KnownRemainders], unknown: Mapping[int, _Item], most: Mapping[int, int]
) -> tuple[dict[int, int], list[Standing], list[KnownRemainders]]:
    """What earlier windows proved, shared out within what is known now: by address, to kinds of chunks, and as it is
    known now.
    """
    more: dict[int, int] = {}
    rest: list[Standing] = []
    now: list[KnownRemainders] = []
    for known in proven:
        if not known.together:
            more.update(known.more)
            now.append(known)
            continue
        items = [unknown[address] for address in known.more]
        beyond = {address: most.get(address, 0) - least for address, least in known.more.items()}
        shares, of_kinds = _shares(items, beyond, known.together)
        sizes = {address: least + shares.get(address, 0) for address, least in known.more.items()}
        more.update(sizes)
        rest += of_kinds
        now += _proven(window, items, sizes, of_kinds, most)
    return more, rest, now


def _proven(
    window: int, items: list[_Item], more: Mapping[int, int], rest: list[Standing], most: Mapping[int, int]
) -> list[KnownRemainders]:
    """The remainders of a window in which they explain what was left.

    Each by itself, but those that share bytes with others of their kind; by category where some are only known to be
    of that.
    """
    mixed = {row.category for row in rest if row.trainable is None}
    together: Counter[tuple[Category, bool | None]] = Counter()
    for row in rest:
        together[row.category, None if row.category in mixed else row.trainable] += row.allocated
    sharing: dict[tuple[Category, bool | None], dict[int, int]] = {}
    alone: dict[int, int] = {}
    for item in items:
        kind = item.category, None if item.category in mixed else item.trainable
        least = more.get(item.address, 0)
        may_share = together[kind] and least < most.get(item.address, 0)
        (sharing.setdefault(kind, {}) if may_share else alone)[item.address] = least
    found = [KnownRemainders(window, {address: least}, 0) for address, least in alone.items()]
    return found + [KnownRemainders(window, sizes, together[kind]) for kind, sizes in sharing.items()]


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
    """What each chunk must hold of the bytes left, as others cannot; then each kind of chunk, then each category."""
    spare = sum(most.values()) - left
    least = {address: size - spare for address, size in most.items() if size > spare}
    rest: list[Standing] = []
    given: Counter[Category] = Counter()
    for category, trainable in dict.fromkeys((item.category, item.trainable) for item in items):
        own = [item.address for item in items if (item.category, item.trainable) == (category, trainable)]
        known = sum(least.get(address, 0) for address in own)
        beyond = max(0, sum(most.get(address, 0) for address in own) - spare - known)
        rest += [Standing(-1, None, category, trainable, beyond, 0)] * (beyond > 0)
        given[category] += known + beyond
    for category, known in given.items():
        beyond = sum(most.get(item.address, 0) for item in items if item.category == category) - spare - known
        rest += [Standing(-1, None, category, None, beyond, 0)] * (beyond > 0)
    return least, rest


def _unseen_inputs(facts: TraceFacts, sizes: Integers, items: list[_Item], left: int, small: int) -> int | None:
    """How many of the unexplained bytes are batches that the input pipeline made before the window; None if that cannot
    be said.

    Where no batch is made or read in the window (`sizes` are theirs), there are none. Otherwise they are what is
    unexplained beyond what was so before the first batch was asked for.
    """
    if not ((sizes > PIPELINE_SCALARS) & (sizes <= left)).any():
        return 0
    if facts.quiet_bytes is None:
        return None
    tensors = {tensor.address for tensor in facts.tensors} - facts.earlier.chunks.keys()
    held = sum(rounded_bytes(item.requested) for item in items if item.address in tensors)
    beyond = left - (facts.quiet_bytes - held)
    return beyond if beyond > small else 0


def _items(trace: AllocationTrace, facts: TraceFacts, died: set[int]) -> list[_Item]:
    """Variables and held tensors, less those that died.

    What an earlier window saw of a chunk does not hold where something else is now where the chunk would reach to.
    """
    items: dict[int, _Item] = {}

    def add(address: int, layer: str | None, category: Category, trainable: bool | None, requested: int) -> None:
        if requested and address not in died:
            least = _Item(address, layer, category, trainable, requested, rounded_bytes(requested), False)
            items.setdefault(address, least)

    for variable in facts.variables:
        if variable.start_address is not None:
            role, size = variable.role, variable.requested_bytes
            add(variable.start_address, variable.layer, role, variable.trainable, size)
    for tensor in facts.tensors:
        add(tensor.address, None, tensor.category, None, tensor.requested_bytes)
    here = _here(list(items.values()), trace)
    for address, item in items.items():
        seen = facts.earlier.chunks.get(address)
        if (
            seen is not None
            and seen.requested == item.requested
            and address + seen.allocated <= _next(here, address + item.size)
        ):
            items[address] = item._replace(size=seen.allocated, known=True)
    return list(items.values())


def _there(items: list[_Item], trace: AllocationTrace, facts: TraceFacts, found: Chunks, budget: int) -> list[_Item]:
    """What of the items and of the chunks that earlier windows left behind is in the allocator's pool.

    On an accelerator all items are. On the CPU, tensors made from Python values are not: variables near addresses that
    the allocator gave out are its own, and what it was seen to allocate; the rest as far as the bytes in use allow.
    """
    sure, near, far = items, [], []
    if trace.device.startswith("CPU"):
        tensors = {tensor.address for tensor in facts.tensors}
        is_near = dict(zip(items, _near(items, trace, facts), strict=True))
        sure = [item for item in items if is_near[item] and (item.known or item.address not in tensors)]
        doubtful = sorted(set(items) - set(sure), key=lambda item: -item.size)
        sure = _as_fits(sure, (item for item in doubtful if item.address not in tensors), budget)
        near = [item for item in doubtful if item.address in tensors and is_near[item]]
        far = [item for item in doubtful if item.address in tensors and not is_near[item]]
    left_behind = sorted(_left_behind(items, facts, found), key=lambda item: -item.size)
    constants = [item for item in left_behind if item.category == "other_state"]
    batches = [item for item in left_behind if item.category == "inputs"]
    # Any of these may be gone, or not of the pool: what explains most of the bytes in use is there.
    orders = itertools.permutations([group for group in (constants, near, batches, far) if group])
    ways = [_as_fits(sure, itertools.chain(*order), budget) for order in orders]
    return max(ways, key=lambda taken: sum(item.size for item in taken))


def _as_fits(sure: list[_Item], others: Iterable[_Item], budget: int) -> list[_Item]:
    """The sure items, and of the others, in their order, those that still fit into the bytes in use."""
    taken, left = list(sure), budget - sum(item.size for item in sure)
    for item in others:
        if item.size <= left:
            taken.append(item)
            left -= item.size
    return taken


def _near(items: list[_Item], trace: AllocationTrace, facts: TraceFacts) -> list[bool]:
    """Whether the items lie between addresses near them that the allocator gave out."""
    seen = distinct(trace.address, facts.earlier.addresses)
    address = np.asarray([item.address for item in items], np.int64)
    place = np.searchsorted(seen, address)
    above, below = seen[np.minimum(place, len(seen) - 1)], seen[np.maximum(place - 1, 0)]
    near: list[bool] = ((np.abs(above - address) <= NEAR) & (np.abs(address - below) <= NEAR)).tolist()
    return near


def _here(items: list[_Item], trace: AllocationTrace) -> Integers:
    """Where something begins while the items stand."""
    return distinct(trace.address, np.asarray([item.address for item in items], np.int64))


def _left_behind(items: list[_Item], facts: TraceFacts, found: Chunks) -> list[_Item]:
    """Chunks that earlier windows left behind, as far as they can still be there: constants of compiled functions,
    batches.

    Where this window allocates without anything being freed before, there was nothing.
    """
    starts = np.concatenate([found.address, np.asarray([item.address for item in items], np.int64)])
    sizes = np.concatenate([found.allocated, np.asarray([item.size for item in items], np.int64)])
    order = np.argsort(starts, kind="stable")
    ends = np.maximum.accumulate((starts + sizes)[order])
    first = np.fromiter(facts.earlier.chunks, np.int64, len(facts.earlier.chunks))
    last = first + np.asarray([chunk.allocated for chunk in facts.earlier.chunks.values()], np.int64)
    place = np.searchsorted(starts[order], last, side="left")
    free = (place == 0) | (np.append(ends, 0)[place - 1] <= first)
    return [
        _Item(address, None, chunk.category, None, chunk.requested, chunk.allocated, True)
        for address in first[free].tolist()
        for chunk in (facts.earlier.chunks[address],)
    ]


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


def _bounded(unknown: Iterable[_Item], here: Integers, facts: TraceFacts) -> tuple[dict[int, int], dict[int, int]]:
    """By address, the most that chunks of unknown size can be larger than needed.

    First of those for which the next address at which anything began says it, then of those that no address near
    bounds.
    """
    bounded: dict[int, int] = {}
    open_ended: dict[int, int] = {}
    for item in unknown:
        need = item.size
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
    first, last = np.searchsorted(facts.earlier.addresses, [start, stop], side="left").tolist()
    valid = np.flatnonzero(facts.earlier.last_seen[first:last] >= facts.earlier.since.get(address, 0))
    return int(facts.earlier.addresses[first + int(valid[0])]) if len(valid) else NOWHERE
