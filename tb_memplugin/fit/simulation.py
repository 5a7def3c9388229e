"""Simulates a training on BFC's rules from its first step on. Pure.

Which chunks the allocator splits depends on the chunks that earlier steps left behind, so a step is
simulated with what came before it: the recorded memory map when the first step began (or an empty
pool, if the simulated one cannot have these regions), the first step itself, which makes the
optimizer's slots, and then the recorded steps in turn."""

import collections
import copy
import dataclasses
import operator
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from tb_memplugin.allocator import ROUNDING, PoolRules, Simulator, next_region_bytes, rounded_bytes
from tb_memplugin.fit.changes import Changed, own_rows
from tb_memplugin.fit.conditions import Interval
from tb_memplugin.fit.steps import LEFT_OUT, SizedStep
from tb_memplugin.schema import (
    FREE,
    IN_USE,
    MISSING,
    PERSISTENT,
    ChunkOwner,
    Integers,
    MemoryMap,
    StepRequests,
    is_gpu,
    live_sums,
    owned,
)

TYPICAL_DISTANCE, LARGE_DISTANCE = 2, 8
"""Most places by which another order moves an event: of a typical step, and of one that must pass
in any order."""
DISTANCE_SHARE = 100
"""An event moves by at most this part of the step's events."""
SIMULATED_STEPS = 10
"""Simulated steps after the first one: the pool's pieces settle within a few."""
VARIANTS = 3
"""Simulations of a prediction, each with the recorded steps in another order."""
NO_LIMIT = 1 << 60
NEGLIGIBLE_SHARE = 0.002
"""Share of a step's requests up to which least and most sizes are simulated as one, only to save
simulations."""
OTHER_KIND = 0.2
"""Share of its requests by which a step of another kind differs. Those of one kind differ by up to
0.07, an update after gradients were accumulated by 0.29. At 1,
`test_the_peak_is_that_of_the_kind_of_steps_that_needs_most` fails."""
OTHER_START = 0.05
"""Share of the peak by which a step of another kind begins with more or fewer bytes. With Keras's
accumulated gradients, a step after an update lacks the accumulators, which share zeros then: 13 to
16 % in three models. At 1, `test_a_step_that_begins_with_less_memory_is_of_another_kind` fails."""
SETTLED = 2
"""Simulated steps that do not count for the peak: the first makes the optimizer's slots, the next
settles."""
MARGIN = 0.04
"""Share by which the range is wider than the simulated peaks: real steps run their ops in other
orders. The steps of the trainings in docs/accuracy.md differ by ± 3.7 % from their median peak
(median over graph mode). At 0,
`test_the_range_reaches_as_far_as_the_simulation_of_the_recorded_training_misses_its_peak` fails."""


# --- a recorded step
# -----------------------------------------------------------------------------------------------


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
    """An order of events in which each may have moved by `distance` places, as when ops run in
    parallel."""
    random = np.random.default_rng(seed)
    entries = np.asarray(order, np.int64)
    place = np.arange(len(entries)) + random.uniform(-distance, distance, len(entries))
    is_freed = entries < 0
    born = np.full(len(requests), -np.inf)
    born[entries[~is_freed]] = place[~is_freed]
    # a chunk is freed after its allocation
    place[is_freed] = np.maximum(place[is_freed], born[~entries[is_freed]] + 0.5)
    moved: list[int] = entries[np.argsort(place, kind="stable")].tolist()
    return moved


def lasting_order(requests: StepRequests) -> list[int]:
    """`event_order` without allocations that the next event frees; of nested ones, the inner are
    removed first.

    They leave the free chunks as they were. A first step has many: it runs ops one by one to make
    variables. The allocation at the step's peak stays, and the first one in each region by which
    the pool grew."""
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
    born = entries[entries >= 0]
    needed = set()
    if len(entries):
        at_peak = int(np.argmax(np.cumsum(_changes(entries, requests.allocated))))
        needed.add(order[at_peak] if order[at_peak] >= 0 else -1 - order[at_peak])
    address = requests.address[born]
    for begin, size in _added_regions(requests):
        needed.update(born[(address >= begin) & (address < begin + size)][:1].tolist())
    return needed


def exploratory_rows(first: StepRequests, later: Sequence[StepRequests]) -> frozenset[int]:
    """Rows of a first step's chunks with which a GPU only tries out algorithms, which may fail: in
    its first step a convolution runs every algorithm of cuDNN in turn, but for those whose scratch
    space does not fit, and XLA those of its kernels. They are sizes that the same op, or XLA, which
    requests for none, never requests again."""
    if not first.first or not is_gpu(first.device):
        return frozenset()
    compiled = all(one.mode == "xla" for one in later)

    def requested(step: StepRequests) -> list[tuple[str | None, int]]:
        unnamed = "" if compiled else None
        names = [step.ops[op] if op >= 0 else unnamed for op in step.op.tolist()]
        return list(zip(names, step.requested.tolist(), strict=True))

    known = {request for one in later for request in requested(one)}
    ops = {name for name, _ in known if name is not None}
    own = requested(first)
    tried = np.flatnonzero(own_rows(first)).tolist()
    return frozenset(row for row in tried if own[row][0] in ops and own[row] not in known)


def _changes(entries: Integers, sizes: Integers) -> Integers:
    """By how many bytes each event of an order changes those in use."""
    return np.where(entries < 0, -sizes[~entries], sizes[entries])


def older_rows(requests: StepRequests) -> list[int]:  # in address order
    rows = np.flatnonzero(requests.birth < 0)
    ordered: list[int] = rows[np.argsort(requests.address[rows], kind="stable")].tolist()
    return ordered


def start_map(
    requests: StepRequests, regions: Iterable[tuple[int, int]] | None = None
) -> MemoryMap:
    """The memory map when the step began; of some `regions` only, as (bytes, address), and what is
    in them, if they are given."""
    if regions is None:
        regions = _regions(requests)
    bounds = np.asarray(sorted((address, size) for size, address in regions), np.int64)
    begins, sizes = bounds.reshape(-1, 2).T.copy()
    inside = np.zeros(len(requests), bool)
    for begin, size in zip(begins.tolist(), sizes.tolist(), strict=True):
        inside |= (requests.address >= begin) & (requests.address < begin + size)
    rows = np.flatnonzero(inside & (requests.birth < 0))
    used, allocated = requests.address[rows], requests.allocated[rows]
    # Between chunks and behind them, the regions are free.
    free = np.sort(np.concatenate([begins, used + allocated]))
    free_bytes = np.sort(np.concatenate([begins + sizes, used])) - free
    free, free_bytes = free[free_bytes > 0], free_bytes[free_bytes > 0]
    state = np.repeat([IN_USE, FREE], [len(rows), len(free)])
    requested = np.concatenate([requests.requested[rows], np.full(len(free), MISSING)])
    address, size = np.concatenate([used, free]), np.concatenate([allocated, free_bytes])
    order = np.argsort(address)
    names = ("step", "phase", "device", "wall_time", "capacity_bytes")
    same: dict[str, Any] = {name: getattr(requests, name) for name in names}
    return MemoryMap(
        **same,
        address=address[order],
        bytes=size[order],
        requested_bytes=requested[order],
        state=state[order],
        owner=np.full(len(order), -1),
        source=np.zeros(len(order), np.int64),
        since=np.full(len(order), MISSING),
        region=np.searchsorted(begins, address[order], side="right") - 1,
        owners=(),
        region_address=begins,
        region_bytes=sizes,
        in_use_bytes=int(allocated.sum()),
        pool_bytes=int(sizes.sum()),
        complete=True,
        not_available=(),
    )


def _regions(requests: StepRequests) -> list[tuple[int, int]]:
    """(bytes, address) of each region when the step began."""
    return list(zip(requests.region_bytes.tolist(), requests.region_address.tolist(), strict=True))


def _added_regions(requests: StepRequests) -> list[tuple[int, int]]:
    """(address, bytes) of each region by which the pool grew."""
    return list(zip(requests.added_address.tolist(), requests.added_bytes.tolist(), strict=True))


def in_one_piece(requests: StepRequests) -> bool:
    """Whether the pool is simulated as one region, as JAX takes it by default: of a step that XLA
    planned, no region is known."""
    return not len(requests.region_bytes)


def regions_by_age(requests: StepRequests) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """(bytes, address) of the regions at the start of a failed first step, the oldest first: of a
    growing pool, none is larger than a younger one. Those that the step has with any batch size,
    and those from the first one on that only a chunk of the batch can have made."""
    grows = (requests.birth < 0) & (requests.batch_power != 0)
    of_batch = set(requests.address[grows].tolist())
    # a data set comes before its batches
    regions = sorted(_regions(requests), key=lambda one: (one[0], one[1] in of_batch))
    kept, rules = list[tuple[int, int]](), PoolRules(requests.capacity_bytes or NO_LIMIT)
    for size, address in regions:
        # One of the size that was due may be another request's, for example an initializer's that
        # is freed by now.
        is_due = size == next_region_bytes(rules, (one for one, _ in kept))
        if (
            address in of_batch and not is_due
        ) or size >= rules.capacity_bytes // ROUNDING * ROUNDING:
            break
        kept.append((size, address))
    return kept, regions[len(kept) :]


def peak_in_one_piece(step: SizedStep, may_fail: frozenset[int] = frozenset()) -> int:
    """Peak of a step's rounded requests, as if each took exactly its size. Requests that may fail
    are left out."""
    rounded = rounded_sizes(step.sizes)
    rounded[list(may_fail)] = 0
    return int(in_use(step.requests, rounded).max())


def rounded_sizes(sizes: Integers) -> Integers:
    """Sizes as the allocator rounds them; 0 for chunks that are left out."""
    return np.where(sizes == LEFT_OUT, 0, np.maximum(-(-sizes // ROUNDING) * ROUNDING, ROUNDING))


def in_use(requests: StepRequests, sizes: Integers) -> Integers:
    """Bytes in use before the first event and after each one, if the chunks have these sizes; shape
    [1 + events]."""
    return live_sums(requests.birth + 1, requests.death + 1, sizes, requests.events + 1)


# --- one training
# --------------------------------------------------------------------------------------------------

between_steps = ContextVar[Callable[[], object]]("between_steps", default=lambda: None)
"""Called between simulated steps, where another simulation may have its turn."""
_orders: "weakref.WeakKeyDictionary[StepRequests, tuple[list[int], list[int], list[int]]]" = (
    weakref.WeakKeyDictionary()
)


def _order(requests: StepRequests) -> tuple[list[int], list[int], list[int]]:
    """The events of a simulated step, and by address the rows that it begins with and those that it
    leaves; once."""
    order = _orders.get(requests)
    if order is None:
        events = lasting_order(requests) if requests.first else event_order(requests)
        left = [
            row
            for row in np.argsort(requests.address).tolist()
            if requests.death[row] >= requests.events
        ]
        order = _orders[requests] = events, older_rows(requests), left
    return order


def _placed(
    rows: list[int], keys: Sequence[Any], alive: dict[Any, list[int]], place: list[int | None]
) -> list[int]:
    """Give rows the places of the chunks with their keys, the last one first; return the rows
    without one."""
    missing = []
    for row in rows:
        if known := alive.get(keys[row]):
            place[row] = known.pop()
        else:
            missing.append(row)
    return missing


def _events(requests: StepRequests, seed: int, distance: int) -> list[int]:
    events = _order(requests)[0]
    return (
        shuffled_order(requests, events, min(distance, len(events) // DISTANCE_SHARE), seed)
        if seed
        else events
    )


@dataclasses.dataclass(frozen=True)
class FailedRequest:
    """A request that fails, in a simulation or in the record.

    Attributes:
        op, layer: The op that makes it and its layer, None if unknown.
        requested_bytes: Its size.
        step: Number of the simulated step, from 0, or of the recorded one.
        free_bytes: Bytes of the capacity that are not in use at that moment; of a recorded one, of
            the pool.
        largest_free_bytes: The largest free chunk at that moment."""

    op: str | None
    layer: str | None
    requested_bytes: int
    step: int
    free_bytes: int
    largest_free_bytes: int

    @property
    def is_in_pieces(self) -> bool:
        """Whether enough memory is free, but in pieces."""
        return rounded_bytes(self.requested_bytes) <= self.free_bytes


@dataclasses.dataclass(frozen=True)
class StepPeak:
    """The peak of bytes in use in one simulated step."""

    bytes: int
    index: int  # of the step among the given ones
    event: int  # number of its event at the peak in the order of this simulation, -1 for its start
    seed: int = 0  # and `distance`: of that order, as for `History.run`
    distance: int = 0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The peaks of the simulated steps that passed, in order, and the request that failed."""

    peaks: tuple[StepPeak, ...]
    failed: FailedRequest | None


class History:
    """A training in simulation of steps of one device. Copies of it go on independently.

    `extra` are sizes of long-lived chunks to allocate first, in addition to the recorded ones;
    requests of the first step's rows in `may_fail` may fail, as from `exploratory_rows`."""

    def __init__(
        self,
        steps: Sequence[SizedStep],
        rules: PoolRules,
        extra: Sequence[int] = (),
        may_fail: frozenset[int] = frozenset(),
    ) -> None:
        self._steps = steps
        self._sizes: list[tuple[list[int], list[int]]] = [
            (step.sizes.tolist(), rounded_sizes(step.sizes).tolist()) for step in steps
        ]
        numbers: dict[ChunkOwner, int] = {}
        self._alike: list[list[tuple[int, int]]] = []  # number of the owner, and size
        for step in steps:
            owners = np.asarray(
                [numbers.setdefault(owner, len(numbers)) for owner in step.requests.owners]
            )
            self._alike.append(
                list(zip(owners[step.requests.owner].tolist(), step.sizes.tolist(), strict=True))
            )
        self._may_fail = may_fail
        first = steps[0]
        # addresses between steps
        self._alive: dict[tuple[int, int], list[int]] = collections.defaultdict(list)
        self._peaks: list[StepPeak] = []
        self._failed: FailedRequest | None = None
        requests, addresses = first.requests, first.requests.address.tolist()
        kept, others = _regions(requests), list[tuple[int, int]]()
        if requests.planned:
            kept, others = regions_by_age(requests)
        pool = sum(size for size, _ in kept)
        # A pool that does not grow has one region, of exactly its capacity.
        if pool > rules.capacity_bytes or not (rules.grows or pool == rules.first_region_bytes):
            kept, others = [], [*kept, *others] if requests.planned else []
        start, older = start_map(requests, kept), older_rows(requests)
        self._simulator = Simulator(start, rules, _added_regions(requests) if kept else ())
        here = set(start.address.tolist())
        for row in reversed(older):
            if first.sizes[row] == requests.requested[row] and addresses[row] in here:
                self._alive[self._alike[0][row]].append(addresses[row])
            else:
                self._simulator.free(addresses[row])
        for size, begin in others:
            again = [row for row in older if begin <= addresses[row] < begin + size]
            for row in again:
                size_now = int(first.sizes[row])
                place = None if size_now == LEFT_OUT else self._simulator.request(size_now)
                if place is not None:  # or `run` requests it again, and fails
                    self._alive[self._alike[0][row]].append(place)
        for size in extra:
            if self._simulator.request(size) is None:
                self._failed = self._failed_request(None, None, size)

    def copy(self) -> "History":
        other = copy.copy(self)
        other._simulator = self._simulator.copy()
        other._alive = {key: list(addresses) for key, addresses in self._alive.items()}
        other._peaks = list(self._peaks)
        return other

    def run(self, order: Sequence[int], seed: int = 0, distance: int = TYPICAL_DISTANCE) -> Outcome:
        """Run steps until one fails. With a `seed` other than 0, events move by at most `distance`
        places, with each seed in another way: real steps run their ops in slightly different
        orders."""
        for index in order:
            if self._failed is not None:
                break
            between_steps.get()()
            turn = len(self._peaks)
            row = self._run_step(index, seed and 1000 * seed + turn, distance)
            if row is not None:
                requests, size = self._steps[index].requests, int(self._steps[index].sizes[row])
                owner, op = requests.owners[int(requests.owner[row])], int(requests.op[row])
                name = None if op < 0 else requests.ops[op]
                self._failed = self._failed_request(name, owner.layer, size)
        return Outcome(tuple(self._peaks), self._failed)

    def _run_step(self, index: int, seed: int, distance: int) -> int | None:
        """Run a step; return the row of the chunk whose request failed, None if it passed."""
        step, simulator = self._steps[index], self._simulator
        sizes, rounded = self._sizes[index]
        place: list[int | None] = [None] * len(sizes)
        _, older, left = _order(step.requests)
        missing = _placed(older, self._alike[index], self._alive, place)
        by_size: dict[int, list[int]] = collections.defaultdict(list)
        for (_, size), addresses in self._alive.items():
            by_size[size] += addresses
        missing = [row for row in _placed(missing, sizes, by_size, place) if rounded[row]]
        for addresses in by_size.values():
            for address in addresses:
                simulator.free(address)
        failed, _, _ = simulator.play(missing, sizes, rounded, place)
        if failed is not None:
            return failed
        may_fail = self._may_fail if step.requests.first else frozenset()
        events = _events(step.requests, seed, distance)
        failed, peak, at = simulator.play(events, sizes, rounded, place, may_fail)
        if failed is not None:
            return failed
        self._alive = collections.defaultdict(list)
        for row in reversed(left):
            lies_at = place[row]
            if lies_at is not None:
                self._alive[self._alike[index][row]].append(lies_at)
        self._peaks.append(StepPeak(peak, index, at, seed, distance))
        return None

    def _failed_request(self, op: str | None, layer: str | None, size: int) -> FailedRequest:
        free, largest = self._simulator.free_bytes, self._simulator.largest_free_bytes
        return FailedRequest(op, layer, size, len(self._peaks), free, largest)


@dataclasses.dataclass(frozen=True)
class Reproduced:
    """How much of recorded steps their replay reproduced: allocations at the recorded address, of
    all allocations."""

    addresses: int
    of: int

    @property
    def whole(self) -> bool:
        return self.addresses == self.of


NOT_REPLAYED = Reproduced(0, 0)


def reproduce(requests: StepRequests) -> Reproduced:
    simulator, added = Simulator(start_map(requests)), _added_regions(requests)
    address, allocated, requested = (
        column.tolist() for column in (requests.address, requests.allocated, requests.requested)
    )
    same = allocations = 0
    for entry in event_order(requests):
        if entry < 0:
            simulator.free(address[-1 - entry])
            continue
        allocations += 1
        place = address[entry]
        if simulator.choose(requested[entry]) is None:
            for begin, size in added:
                if begin <= place < begin + size:
                    simulator.add_region(begin, size)
            added = [(begin, size) for begin, size in added if not begin <= place < begin + size]
        same += simulator.follow(place, requested[entry], allocated[entry])
    return Reproduced(same, allocations)


# --- several trainings
# ----------------------------------------------------------------------------------------------


def trainings(
    steps: Sequence[SizedStep],
    rules: PoolRules,
    extra: Sequence[int],
    may_fail: frozenset[int],
    capacity: int | None = None,
    orders: Iterable[int] = range(VARIANTS),
    count: int = SIMULATED_STEPS,
    same_start: bool = False,
) -> Iterator[Outcome]:
    """Simulate a training of `count` steps after the first in each of some orders, 0 being the
    recorded one.

    The orders are those of typical steps if there is no capacity to pass within, and else differ
    more. With `same_start` the first step runs in the recorded order, which decides what free
    chunks later steps find."""
    distance = TYPICAL_DISTANCE if capacity is None else LARGE_DISTANCE
    if capacity is None:
        grows = not in_one_piece(steps[0].requests)
        rules = PoolRules(NO_LIMIT, grows, descends=rules.descends)
    else:
        rules = dataclasses.replace(rules, capacity_bytes=capacity)
    first = int(steps[0].requests.first)
    start = History(steps, rules, extra, may_fail)
    later = len(steps) - first
    for seed in orders:
        history = start.copy()
        history.run(range(first), 0 if same_start else seed, distance)
        yield history.run([first + (turn + seed) % later for turn in range(count)], seed, distance)


def settled(outcome: Outcome) -> Sequence[StepPeak]:
    return outcome.peaks[SETTLED:] or outcome.peaks


def highest_peak(outcome: Outcome) -> int:
    return max(peak.bytes for peak in settled(outcome))


@dataclasses.dataclass(frozen=True)
class Simulated:
    """The peak of trainings in a pool without limit."""

    peak: Interval
    owned: collections.Counter[ChunkOwner]  # bytes of each owner at the typical peak
    # most bytes, each rounded up to 256, that are live at once in the steps with this peak
    live_bytes: int


def simulated(
    changed: Changed, rules: PoolRules, may_fail: frozenset[int], same_start: bool = False
) -> Simulated:
    """Simulate the least and the most bytes, or one that stands for both if they are negligibly
    apart; and typical steps where these are not halfway between."""

    def run(steps: Sequence[SizedStep]) -> list[Outcome]:
        return list(trainings(steps, rules, changed.extra, may_fail, same_start=same_start))

    most = run(changed.high)
    later = [one.requests for one in changed.high if not one.requests.first]
    turn = changed.batches
    # Of several kinds of steps, each turn of all has the one that needs most.
    if len(of_highest_kind(later)) < len(later):
        turn = max(turn, len(later))
    total = max(int(step.requests.requested.sum()) for step in changed.high)
    uncertain = _uncertain_bytes(changed)
    if uncertain is None or uncertain > NEGLIGIBLE_SHARE * total:
        least, uncertain = run(changed.low), 0
        sides = [(changed.low, least), (changed.high, most)]
    else:
        least, sides = most, [(changed.high, most)]
    if changed.typical is not None:
        sides = [(changed.typical, run(changed.typical))]
    medians = [(steps, typical_peak(outcomes, turn)) for steps, outcomes in sides]
    lowest = min(peak.bytes for one in least for peak in settled(one))
    highest = max(map(highest_peak, most))
    peak = Interval(
        round(lowest * (1 - MARGIN)) - uncertain,
        sum(one.bytes for _, one in medians) // len(medians),
        round(highest * (1 + MARGIN)),
    )
    return Simulated(peak, *at_peaks([(steps[one.index], one) for steps, one in medians]))


def _uncertain_bytes(changed: Changed) -> int | None:
    """Bytes between the least and the most sizes of a step together; None if more than sizes
    differ."""
    if changed.typical is not None:
        return None
    between = []
    for least, most in zip(changed.low, changed.high, strict=True):
        for name in ("birth", "death"):
            if not np.array_equal(getattr(least.requests, name), getattr(most.requests, name)):
                return None
        if not least.requests.first:
            between.append(int((most.sizes - least.sizes).sum()))
    return max(between)


def typical_peak(outcomes: Sequence[Outcome], steps: int) -> StepPeak:
    """The median, or the lower of two, of the highest peaks of every `steps` steps in a row, as in
    an update."""
    size = operator.attrgetter("bytes")
    highest: list[StepPeak] = []
    for peaks in map(settled, outcomes):
        highest += (
            max(peaks[at : at + steps], key=size) for at in range(max(1, len(peaks) - steps + 1))
        )
    return sorted(highest, key=size)[(len(highest) - 1) // 2]


def of_highest_kind(steps: Sequence[StepRequests]) -> list[StepRequests]:
    """Those of some steps that begin with as many bytes, and make the same requests, but for a few,
    as the step with the highest peak."""

    def made(step: StepRequests) -> collections.Counter[str]:
        return collections.Counter(
            step.ops[op] for op in step.op[step.birth >= 0].tolist() if op >= 0
        )

    def start_bytes(step: StepRequests) -> int:
        """Without batches, of which other numbers wait."""
        is_input = owned(step, lambda owner: owner.category == "inputs")
        return int(step.allocated[(step.birth < 0) & ~is_input].sum())

    highest = max(steps, key=lambda one: recorded_peak(one).bytes)
    top, start, peak = made(highest), start_bytes(highest), recorded_peak(highest).bytes

    def differs(step: StepRequests) -> int:
        own = made(step)
        return max((own - top).total(), (top - own).total())

    return [
        one
        for one in steps
        if differs(one) <= OTHER_KIND * top.total()
        and abs(start_bytes(one) - start) <= OTHER_START * peak
    ]


def recorded_peak(requests: StepRequests) -> StepPeak:
    levels = in_use(requests, requests.allocated)
    highest = int(np.argmax(levels))
    return StepPeak(int(levels[highest]), 0, highest - 1)


def at_peaks(
    ends: Sequence[tuple[SizedStep, StepPeak]],
) -> tuple[collections.Counter[ChunkOwner], int]:
    """Bytes of each owner, and the most rounded bytes that are live at once, which are no more than
    the peak: the means of some steps at their peaks."""
    sums, most_live = collections.Counter[ChunkOwner](), 0
    for step, peak in ends:
        entries = np.asarray(_events(step.requests, peak.seed, peak.distance), np.int64)
        older, rounded = _order(step.requests)[1], rounded_sizes(step.sizes)
        highest = np.cumsum(_changes(entries, rounded)).max(initial=0)
        most_live += int(rounded[older].sum() + highest)
        before = entries[: peak.event + 1]
        rows = np.concatenate([np.asarray(older, np.int64), before[before >= 0]])
        is_live = ~np.isin(rows, ~before[before < 0]) & (step.sizes[rows] != LEFT_OUT)
        sums.update(_live_bytes(step, older, rows[is_live].tolist()))
    means = {owner: size // len(ends) for owner, size in sums.items()}
    return collections.Counter(means), most_live // len(ends)


def _live_bytes(
    step: SizedStep, older: Sequence[int], live: Sequence[int]
) -> collections.Counter[ChunkOwner]:
    """Bytes of live chunks by owner, the older ones first. Until a variable's old chunk is freed,
    the new one counts as workspace."""
    requests = step.requests
    keys = list(zip(requests.owner.tolist(), step.sizes.tolist(), strict=True))
    known = collections.Counter(keys[row] for row in older)
    replaced = {keys[row] for row in older if requests.death[row] < requests.events}
    totals, values = collections.Counter[ChunkOwner](), collections.Counter[tuple[int, int]]()
    for row in live:
        key = keys[row]
        owner, size = requests.owners[key[0]], key[1]
        values[key] += 1
        if owner.category in PERSISTENT and key in replaced and values[key] > known[key]:
            owner = ChunkOwner(owner.layer, "workspace", owner.trainable)
        totals[owner] += size
    return totals
