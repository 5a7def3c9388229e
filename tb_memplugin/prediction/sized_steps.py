"""Recorded steps with sizes and lifetimes that may differ from the recorded ones: the input of a simulation. Pure.

Layers before the first trained one take no part in the backward pass: their results are freed in the forward pass. If
they are trained, their results are kept for it.
"""

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tb_memplugin.allocator.rules import ROUNDING
from tb_memplugin.model import IN_USE, MISSING, Integers, MemoryMap, StepRequests, is_gpu

LEFT_OUT = -1
"""Size of a chunk that does not exist under the conditions of a simulation."""

Reals: TypeAlias = npt.NDArray[np.float64]
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
    """Rows of the allocation at the peak and of the first one in each added region."""
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
    tried = np.flatnonzero((first.birth >= 0) & (first.death < first.events) & (first.op >= 0))
    return frozenset(
        row
        for row in tried.tolist()
        if (sizes := known.get(first.ops[int(first.op[row])])) is not None and int(first.requested[row]) not in sizes
    )


def older_rows(requests: StepRequests) -> list[int]:
    """Rows of the chunks that are older than the step, in address order."""
    rows = np.flatnonzero(requests.birth < 0)
    ordered: list[int] = rows[np.argsort(requests.address[rows], kind="stable")].tolist()
    return ordered


def start_map(requests: StepRequests) -> MemoryMap:
    address: list[int] = []
    size: list[int] = []
    asked: list[int] = []
    region: list[int] = []
    old = older_rows(requests)
    columns = (requests.address[old], requests.allocated[old], requests.requested[old])
    chunks = list(zip(*(column.tolist() for column in columns), strict=True))
    order = np.argsort(requests.region_address, kind="stable")
    at = 0
    for number, row in enumerate(order.tolist()):
        begin, end = int(requests.region_address[row]), int(requests.region_address[row] + requests.region_bytes[row])
        free_from = begin
        while at < len(chunks) and chunks[at][0] < end:
            place, allocated, requested = chunks[at]
            for entry in ((free_from, place - free_from, MISSING), (place, allocated, requested)):
                if entry[1] > 0:
                    address.append(entry[0])
                    size.append(entry[1])
                    asked.append(entry[2])
                    region.append(number)
            free_from = place + allocated
            at += 1
        if free_from < end:
            address.append(free_from)
            size.append(end - free_from)
            asked.append(MISSING)
            region.append(number)
    requested_bytes = np.asarray(asked, np.int64)
    count = len(address)
    return MemoryMap(
        step=requests.step,
        phase=requests.phase,
        device=requests.device,
        wall_time=requests.wall_time,
        address=np.asarray(address, np.int64),
        bytes=np.asarray(size, np.int64),
        requested_bytes=requested_bytes,
        state=np.where(requested_bytes == MISSING, 0, IN_USE).astype(np.int64),
        owner=np.full(count, -1),
        source=np.zeros(count, np.int64),
        since=np.full(count, MISSING),
        region=np.asarray(region, np.int64),
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
    nothing = np.empty(0, np.int64)
    return dataclasses.replace(
        start_map(requests),
        address=nothing,
        bytes=nothing,
        requested_bytes=nothing,
        state=nothing,
        owner=nothing,
        source=nothing,
        since=nothing,
        region=nothing,
        region_address=nothing,
        region_bytes=nothing,
        in_use_bytes=0,
        pool_bytes=0,
    )


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
    own = (requests.birth >= 0) & (requests.death < requests.events)
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


def _with_events(requests: StepRequests, born: Reals, freed: Reals) -> StepRequests:
    """The step with its events in the order of these places, shape [chunks]."""
    if (born == requests.birth).all() and (freed == requests.death).all():
        return requests
    order = np.asarray(event_order(requests), np.int64)
    place = np.where(order < 0, freed[-1 - order], born[order])
    order = order[np.argsort(place, kind="stable")]
    birth, death, numbers = requests.birth.copy(), requests.death.copy(), np.arange(len(order))
    birth[order[order >= 0]] = numbers[order >= 0]
    death[-1 - order[order < 0]] = numbers[order < 0]
    return dataclasses.replace(requests, birth=birth, death=death)
