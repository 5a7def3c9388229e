"""Simulates a training from its first step on. Pure.

Which chunks the allocator splits depends on the chunks that earlier steps left behind, so a step is simulated with
what came before it: the recorded memory map when the first step began (or an empty pool, if the simulated one cannot
have these regions), the first step itself, which makes the optimizer's slots, and then the recorded steps in turn.
"""

import collections
import copy
import dataclasses
import weakref
from collections.abc import Sequence

import numpy as np

from tb_memplugin.allocator import PoolRules, Simulator, rounded_bytes
from tb_memplugin.fit.sized_steps import (
    LEFT_OUT,
    SizedStep,
    empty_map,
    event_order,
    lasting_order,
    older_rows,
    rounded_sizes,
    shuffled_order,
    start_map,
)
from tb_memplugin.schema import StepRequests

TYPICAL_DISTANCE, LARGE_DISTANCE = 2, 8
"""Most places by which an event moves in a simulation with another order: of a typical step, and of one that must pass
whatever the order."""
DISTANCE_SHARE = 100
"""An event moves by at most this part of the step's events."""


_orders: "weakref.WeakKeyDictionary[StepRequests, tuple[list[int], list[int]]]" = weakref.WeakKeyDictionary()


def _order(requests: StepRequests) -> tuple[list[int], list[int]]:
    """The events of a step as a simulation runs them, and the rows of its older chunks; made once."""
    order = _orders.get(requests)
    if order is None:
        events = lasting_order(requests) if requests.first else event_order(requests)
        order = _orders[requests] = events, older_rows(requests)
    return order


def _events(requests: StepRequests, seed: int, distance: int) -> list[int]:
    events, _ = _order(requests)
    return shuffled_order(requests, events, min(distance, len(events) // DISTANCE_SHARE), seed) if seed else events


@dataclasses.dataclass(frozen=True)
class FailedRequest:
    """A request that fails in a simulation.

    Attributes:
        op, layer: The op that makes it and its layer, None if unknown.
        requested_bytes: Its size.
        step: Number of the simulated step, from 0.
        free_bytes: Bytes of the capacity that are not in use at that moment.
        largest_free_bytes: The largest free chunk at that moment.
    """

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
    """The peak of bytes in use in one simulated step: one of the given ones, by its index.

    `event` is the number of its event at the peak in the order of this simulation, -1 for its start; the order is
    that of `seed` and `distance`, as for `History.run`.
    """

    bytes: int
    index: int
    event: int
    seed: int = 0
    distance: int = 0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The peaks of the simulated steps that passed, in order, the pool at the end, and the request that failed."""

    peaks: tuple[StepPeak, ...]
    pool_bytes: int
    failed: FailedRequest | None


def live_rows(step: SizedStep, peak: StepPeak) -> list[int]:
    """Rows of the chunks of a simulated step that are live at its peak."""
    live = dict.fromkeys(_order(step.requests)[1])
    for entry in _events(step.requests, peak.seed, peak.distance)[: peak.event + 1]:
        if entry < 0:
            live.pop(-1 - entry, None)
        else:
            live[entry] = None
    return [row for row in live if step.sizes[row] != LEFT_OUT]


def most_live_bytes(step: SizedStep, peak: StepPeak) -> int:
    """Most rounded bytes that are live at once in the simulation of a step with this peak, which is no less."""
    rounded = rounded_sizes(step.sizes)
    entries = np.asarray(_events(step.requests, peak.seed, peak.distance), np.int64)
    rows = np.where(entries < 0, -1 - entries, entries)
    older = int(rounded[_order(step.requests)[1]].sum())
    return older + max(0, int(np.cumsum(np.where(entries < 0, -rounded[rows], rounded[rows])).max(initial=0)))


class History:
    """A training in simulation of steps of one device. Copies of it go on independently.

    `extra` are sizes of long-lived chunks to allocate first, in addition to the recorded ones; requests of the first
    step's rows in `may_fail` may fail, as from `exploratory_rows`.
    """

    def __init__(
        self,
        steps: Sequence[SizedStep],
        rules: PoolRules,
        extra: Sequence[int] = (),
        may_fail: frozenset[int] = frozenset(),
    ) -> None:
        self._steps = steps
        self._may_fail = may_fail
        first = steps[0]
        self._alive: dict[int, list[int]] = collections.defaultdict(list)  # addresses between steps, by size
        self._peaks: list[StepPeak] = []
        self._failed: FailedRequest | None = None
        pool = int(first.requests.region_bytes.sum())
        # A pool that does not grow has one region, of exactly its capacity.
        if pool <= rules.capacity_bytes and (rules.grows or pool == rules.first_region_bytes):
            added = zip(first.requests.added_address.tolist(), first.requests.added_bytes.tolist(), strict=True)
            self._simulator = Simulator(start_map(first.requests), rules, added)
            for row in older_rows(first.requests):
                address = int(first.requests.address[row])
                if first.sizes[row] == first.requests.requested[row]:
                    self._alive[int(first.sizes[row])].append(address)
                else:
                    self._simulator.free(address)
        else:
            self._simulator = Simulator(empty_map(first.requests), rules)
        for size in extra:
            if self._simulator.request(size) is None:
                self._failed = self._failed_request(None, None, size)

    def copy(self) -> "History":
        other = copy.copy(self)
        other._simulator = self._simulator.copy()
        other._alive = {size: list(addresses) for size, addresses in self._alive.items()}
        other._peaks = list(self._peaks)
        return other

    def run(self, order: Sequence[int], seed: int = 0, distance: int = TYPICAL_DISTANCE) -> Outcome:
        """Run steps until one fails.

        With a `seed` other than 0, events move by at most `distance` places, with each seed in another way: real steps
        run their ops in slightly different orders.
        """
        for index in order:
            if self._failed is not None:
                break
            turn = len(self._peaks)
            row = self._run_step(index, seed and 1000 * seed + turn, distance)
            if row is not None:
                step = self._steps[index]
                owner, op = step.requests.owners[int(step.requests.owner[row])], int(step.requests.op[row])
                name = None if op < 0 else step.requests.ops[op]
                self._failed = self._failed_request(name, owner.layer, int(step.sizes[row]))
        return Outcome(tuple(self._peaks), self._simulator.pool_bytes, self._failed)

    def _run_step(self, index: int, seed: int, distance: int) -> int | None:
        """Run a step; return the row of the chunk whose request failed, None if it passed."""
        step, simulator = self._steps[index], self._simulator
        sizes: list[int] = step.sizes.tolist()
        place: dict[int, int] = {}
        missing = []
        address: int | None
        for row in _order(step.requests)[1]:
            known = self._alive.get(sizes[row])
            if known:
                place[row] = known.pop()
            elif sizes[row] != LEFT_OUT:
                missing.append(row)
        for addresses in self._alive.values():
            for address in addresses:
                simulator.free(address)
        for row in missing:
            address = simulator.request(sizes[row])
            if address is None:
                return row
            place[row] = address
        request, free = simulator.request, simulator.free
        peak, at = simulator.in_use_bytes, -1
        events = _events(step.requests, seed, distance)
        may_fail = self._may_fail if step.requests.first else frozenset()
        for event, entry in enumerate(events):
            if entry < 0:
                if -1 - entry in place:
                    free(place.pop(-1 - entry))
            elif sizes[entry] != LEFT_OUT:
                address = request(sizes[entry])
                if address is None:
                    if entry in may_fail:
                        continue
                    return entry
                place[entry] = address
                if simulator.in_use_bytes > peak:
                    peak, at = simulator.in_use_bytes, event
        alive: dict[int, list[int]] = collections.defaultdict(list)
        for row in sorted(place, reverse=True):
            alive[sizes[row]].append(place[row])
        self._alive = alive
        self._peaks.append(StepPeak(peak, index, at, seed, distance))
        return None

    def _failed_request(self, op: str | None, layer: str | None, size: int) -> FailedRequest:
        free, largest = self._simulator.free_bytes, self._simulator.largest_free_bytes
        return FailedRequest(op, layer, size, len(self._peaks), free, largest)
