"""Recorded steps with sizes and lifetimes that may differ from the recorded ones: the input of a simulation. Pure.

Layers before the first trained one take no part in the backward pass: their results are freed in the forward pass. If
they are trained, their results are kept for it.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tb_memplugin.allocator import ROUNDING
from tb_memplugin.schema import IN_USE, MISSING, Floats, Integers, MemoryMap, StepRequests, is_gpu

LEFT_OUT = -1
"""Size of a chunk that does not exist under the conditions of a simulation."""

Rows: TypeAlias = npt.NDArray[np.bool_]
LATER_RESULTS = 3
"""A result that is not saved is freed once this many later ones exist: its consumers have run by then. No quick test
depends on its value: they pass with 1 as well."""


@dataclasses.dataclass(frozen=True)
class SizedStep:
    """A recorded step with the requested bytes of each chunk, `LEFT_OUT` for chunks that do not exist."""

    requests: StepRequests
    sizes: Integers


def as_recorded(requests: StepRequests) -> SizedStep:
    return SizedStep(requests, requests.requested)


def own_rows(requests: StepRequests) -> Rows:
    """Which chunks the step allocates and frees, shape [chunks]."""
    return (requests.birth >= 0) & (requests.death < requests.events)


def event_order(requests: StepRequests) -> list[int]:
    """For each event of the step the row of its chunk, as -1 - row where the event frees it."""
    order = np.zeros(requests.events, np.int64)
    rows = np.arange(len(requests))
    born, freed = requests.birth >= 0, requests.death < requests.events
    order[requests.birth[born]] = rows[born]
    order[requests.death[freed]] = -1 - rows[freed]
    events: list[int] = order.tolist()
    return events


def shuffled_order(requests: StepRequests, order: list[int], distance: int, seed: int) -> list[int]:
    """An order of events in which each may have moved by `distance` places, as when ops run in parallel."""
    random = np.random.default_rng(seed)
    entries = np.asarray(order, np.int64)
    place = np.arange(len(entries)) + random.uniform(-distance, distance, len(entries))
    rows = np.where(entries < 0, -1 - entries, entries)
    born = np.full(len(requests), -np.inf)
    born[rows[entries >= 0]] = place[entries >= 0]
    freed = entries < 0
    place[freed] = np.maximum(place[freed], born[rows[freed]] + 0.5)  # a chunk is freed after its allocation
    moved: list[int] = entries[np.argsort(place, kind="stable")].tolist()
    return moved


def lasting_order(requests: StepRequests) -> list[int]:
    """`event_order` without allocations that the next event frees; of nested ones, the inner are removed first.

    They leave the free chunks as they were. A first step has many: it runs ops one by one to make variables. The
    allocation at the step's peak stays, and the first one in each region by which the pool grew.
    """
    order = event_order(requests)
    needed = _peak_and_growth(requests, order)
    kept: list[int] = []
    for entry in order:
        if entry < 0 and kept and kept[-1] == -1 - entry and kept[-1] not in needed:
            kept.pop()
        else:
            kept.append(entry)
    return kept


def _peak_and_growth(requests: StepRequests, order: Sequence[int]) -> set[int]:
    entries = np.asarray(order, np.int64)
    rows = np.where(entries < 0, -1 - entries, entries)
    change = np.where(entries < 0, -requests.allocated[rows], requests.allocated[rows])
    needed = {int(rows[np.argmax(np.cumsum(change))])} if len(rows) else set()
    born = rows[entries >= 0]
    address = requests.address[born]
    for begin, size in zip(requests.added_address.tolist(), requests.added_bytes.tolist(), strict=True):
        needed.update(born[(address >= begin) & (address < begin + size)][:1].tolist())
    return needed


def exploratory_rows(first: StepRequests, later: Sequence[StepRequests]) -> frozenset[int]:
    """Rows of a first step's chunks with which a GPU's kernels only try out algorithms.

    In its first step a convolution runs every algorithm of cuDNN in turn. One whose scratch space does not fit is left
    out, so these requests may fail. They are sizes that the same op never requests again in later steps.
    """
    if not first.first or not is_gpu(first.device):
        return frozenset()
    known: dict[str, set[int]] = {}
    for one in later:
        for op, size in zip(one.op.tolist(), one.requested.tolist(), strict=True):
            if op >= 0:
                known.setdefault(one.ops[op], set()).add(size)
    tried = np.flatnonzero(own_rows(first) & (first.op >= 0))
    return frozenset(
        row
        for row in tried.tolist()
        if (sizes := known.get(first.ops[int(first.op[row])])) is not None and int(first.requested[row]) not in sizes
    )


def older_rows(requests: StepRequests) -> list[int]:
    """In address order."""
    rows = np.flatnonzero(requests.birth < 0)
    ordered: list[int] = rows[np.argsort(requests.address[rows], kind="stable")].tolist()
    return ordered


def start_map(requests: StepRequests) -> MemoryMap:
    old = older_rows(requests)
    columns = (requests.address[old], requests.allocated[old], requests.requested[old])
    chunks = list(zip(*(column.tolist() for column in columns), strict=True))
    order = np.argsort(requests.region_address, kind="stable")
    entries: list[tuple[int, int, int, int]] = []  # address, bytes, requested bytes, region
    at = 0
    for number, row in enumerate(order.tolist()):
        free_from = int(requests.region_address[row])
        end = free_from + int(requests.region_bytes[row])
        while at < len(chunks) and chunks[at][0] < end:
            place, allocated, requested = chunks[at]
            entries += [(free_from, place - free_from, MISSING, number), (place, allocated, requested, number)]
            free_from = place + allocated
            at += 1
        entries.append((free_from, end - free_from, MISSING, number))
    kept = np.asarray([entry for entry in entries if entry[1] > 0], np.int64).reshape(-1, 4)
    address, size, asked, region = kept.T.copy()
    return MemoryMap(
        step=requests.step,
        phase=requests.phase,
        device=requests.device,
        wall_time=requests.wall_time,
        address=address,
        bytes=size,
        requested_bytes=asked,
        state=np.where(asked == MISSING, 0, IN_USE).astype(np.int64),
        owner=np.full(len(kept), -1),
        source=np.zeros(len(kept), np.int64),
        since=np.full(len(kept), MISSING),
        region=region,
        owners=(),
        region_address=requests.region_address[order],
        region_bytes=requests.region_bytes[order],
        in_use_bytes=int(requests.allocated[old].sum()),
        pool_bytes=int(requests.region_bytes.sum()),
        capacity_bytes=requests.capacity_bytes,
        complete=True,
        not_available=(),
    )


def empty_map(requests: StepRequests) -> MemoryMap:
    started = start_map(requests)
    nothing: dict[str, Any] = {
        name: column[:0] for name, column in vars(started).items() if isinstance(column, np.ndarray)
    }
    return dataclasses.replace(started, in_use_bytes=0, pool_bytes=0, **nothing)


def peak_in_one_piece(step: SizedStep, may_fail: frozenset[int] = frozenset()) -> int:
    """Peak of a step's rounded requests, as if each took exactly its size. Requests that may fail are left out."""
    rounded = rounded_sizes(step.sizes)
    rounded[list(may_fail)] = 0
    return int(in_use(step.requests, rounded).max())


def rounded_sizes(sizes: Integers) -> Integers:
    """Sizes as the allocator rounds them; 0 for chunks that are left out."""
    return np.where(sizes == LEFT_OUT, 0, np.maximum(-(-sizes // ROUNDING) * ROUNDING, ROUNDING))


def in_use(requests: StepRequests, sizes: Integers) -> Integers:
    """Bytes in use before the first event and after each one, if the chunks have these sizes; shape [1 + events]."""
    changes = np.zeros(requests.events + 2, np.int64)
    np.add.at(changes, requests.birth + 1, sizes)
    np.subtract.at(changes, requests.death + 1, sizes)
    return np.cumsum(changes)[:-1]


def with_lifetimes(requests: StepRequests, unsaved: Rows, saved: Rows) -> StepRequests:
    """The step with some of its own chunks freed earlier or later.

    `unsaved` ones are freed in the forward pass, but for the last, as the first trained layer may save its input;
    `saved` ones are kept until the step ends.
    """
    own = own_rows(requests)
    freed = requests.death.astype(np.float64)
    early = np.flatnonzero(unsaved & own)
    early = early[np.argsort(requests.birth[early], kind="stable")]
    last = len(early) - 1
    consumed = requests.birth[early[np.minimum(np.arange(last) + LATER_RESULTS, last)]] + 0.5
    freed[early[:last]] = np.minimum(freed[early[:last]], consumed)
    late = saved & own
    freed[late] = 2.0 * requests.events - requests.birth[late]  # the last one first
    return _with_events(requests, requests.birth.astype(np.float64), freed)


def in_place(requests: StepRequests, rows: Rows) -> StepRequests:
    """The step with new contents of variables written into their chunks: `rows` are requested once the old ones are
    freed.
    """
    born = requests.birth.astype(np.float64)
    old = (requests.birth < 0) & (requests.death < requests.events)
    for row in np.flatnonzero(rows & (requests.birth >= 0)).tolist():
        same = (requests.owner == requests.owner[row]) & (requests.requested == requests.requested[row])
        replaced = np.flatnonzero(old & same)
        if len(replaced):
            old[replaced[0]] = False
            born[row] = max(born[row], float(requests.death[replaced[0]]) + 0.5)
    return _with_events(requests, born, requests.death.astype(np.float64))


def once_all_are_there(requests: StepRequests, awaited: Rows, waiting: Rows) -> StepRequests:
    """The step with `waiting` chunks requested and freed only after the last of the `awaited` ones, which stay until
    then.
    """
    last = int(requests.birth[awaited].max(initial=-1))
    born, freed = requests.birth.astype(np.float64), requests.death.astype(np.float64)
    early = waiting & (born >= 0) & (born < last)
    born[early] = last + (born[early] + 1) / (requests.events + 1)
    early = (waiting | awaited) & (freed < last)
    freed[early] = last + (freed[early] + 1) / (requests.events + 1)
    return _with_events(requests, born, freed)


def _with_events(requests: StepRequests, born: Floats, freed: Floats) -> StepRequests:
    if (born == requests.birth).all() and (freed == requests.death).all():
        return requests
    return rearranged(requests, born, freed)[0]


def rearranged(
    requests: StepRequests,
    born: Floats,
    freed: Floats,
    copies: Sequence[int] = (),
    copies_born: Sequence[float] = (),
    copies_freed: Sequence[float] = (),
) -> tuple[StepRequests, Integers]:
    """The step with its events in the order of these places and with copies of rows, and the old row of each.

    Of events at one place, deallocations come last: a result is freed after the request of its consumer.
    """
    count, more = len(requests), len(copies)
    new = np.arange(count, count + more)
    entries = np.asarray(event_order(requests), np.int64)
    place = np.where(entries < 0, freed[-1 - entries], born[entries])
    entries = np.concatenate([entries, new, -1 - new])
    place = np.concatenate([place, copies_born, copies_freed])
    entries = entries[np.lexsort((entries < 0, place))]
    events = len(entries)
    birth, death, numbers = np.full(count + more, -1), np.full(count + more, events), np.arange(events)
    birth[entries[entries >= 0]] = numbers[entries >= 0]
    death[-1 - entries[entries < 0]] = numbers[entries < 0]
    rows = np.concatenate([np.arange(count), np.asarray(copies, np.int64)])
    names = ("address", "allocated", "requested", "batch_power", "owner", "op")
    columns = {name: getattr(requests, name)[rows] for name in names}
    return dataclasses.replace(requests, events=events, birth=birth, death=death, **columns), rows
