"""What a recorded run shows: the steps of its program, which batch sizes ran or failed, and the
demand of a peak. Pure.

No prediction contradicts the batch sizes that ran or failed."""

import collections
import dataclasses
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tb_memplugin.allocator import ROUNDING, PoolRules, Simulator, rounded_bytes
from tb_memplugin.analysis import growth_of
from tb_memplugin.fit.conditions import Interval
from tb_memplugin.fit.simulation import (
    NO_LIMIT,
    FailedRequest,
    event_order,
    in_use,
    of_highest_kind,
    older_rows,
    part_of_map,
    reproduce,
    rounded_sizes,
)
from tb_memplugin.schema import (
    PHASES,
    LayerTable,
    Oom,
    Phase,
    Run,
    StepRequests,
    as_json,
    format_bytes,
    former_name,
)

_TRAIN: Phase = "train"
STEP_UP = 1.01
"""Factor from one tried size of a region to the next."""


class Ran(NamedTuple):
    """The peaks of the recorded steps of a batch size; typically their median."""

    peak: Interval
    capacity_bytes: int | None = None  # the smallest limit within which they ran; None if unknown


@dataclasses.dataclass(frozen=True)
class Failure:
    batch_size: int
    capacity_bytes: int | None
    step: int
    request: FailedRequest | None = None  # what failed, if all of it is known


@dataclasses.dataclass(frozen=True)
class Evidence:
    """The batch sizes that a run trained with, and their failures; each proves something under its
    own capacity."""

    ran: Mapping[int, Ran] = dataclasses.field(default_factory=dict)
    failures: Sequence[Failure] = ()
    # a sentence: memory grows over the steps, so none proves that later ones fit
    growth: str | None = None

    def about(
        self, batch_size: int | None, capacity_bytes: int | None
    ) -> tuple[bool | None, list[str], int | None]:
        """Whether a batch size fits into a capacity, None if the run does not show it; why, as
        sentences; and the capacity within which the steps ran that prove that it fits."""
        if batch_size is None or capacity_bytes is None:
            return None, [], None
        failed = self._failure(batch_size, capacity_bytes)
        if failed is not None:
            what = f"batch size {failed.batch_size:,} ran out of memory in step {failed.step:,}"
            return False, [f"Recorded: {what}, with {format_bytes(failed.capacity_bytes)}."], None
        proof = self._proof(batch_size, capacity_bytes)
        if proof is None:
            return None, [], None
        within = self.ran[proof].capacity_bytes
        ran = f"Recorded: batch size {proof:,} ran within {format_bytes(within)}."
        return True, [] if proof == batch_size else [ran], within

    def failed_request(
        self, batch_size: int | None, capacity_bytes: int | None
    ) -> FailedRequest | None:
        """The request that failed under exactly these conditions; None without one."""
        failed = [
            one.request
            for one in self.failures
            if (one.batch_size, one.capacity_bytes) == (batch_size, capacity_bytes)
        ]
        return failed[-1] if failed else None

    def fits(self, batch_size: int | None, capacity_bytes: int | None) -> bool | None:
        return self.about(batch_size, capacity_bytes)[0]

    def _failure(self, batch_size: int, capacity_bytes: int) -> Failure | None:
        """The failure that shows that a batch size does not fit: of this size, or of a smaller one
        if none ran."""
        failed = [
            one
            for one in self.failures
            if one.batch_size <= batch_size and capacity_bytes <= (one.capacity_bytes or 0)
        ]
        last = max(failed, key=lambda one: one.batch_size, default=None)
        if last is None or last.batch_size == batch_size:
            return last
        return None if any(size >= batch_size for size in self._ran(capacity_bytes)) else last

    def _proof(self, batch_size: int, capacity_bytes: int) -> int | None:
        """The smallest batch size whose steps prove that this one fits. None if one ran and failed
        later, within no smaller capacity: then steps that pass prove nothing, as memory may
        leak."""
        outlived = any(
            size >= one.batch_size and (ran.capacity_bytes or 0) <= (one.capacity_bytes or 0)
            for one in self.failures
            for size, ran in self.ran.items()
        )
        if self.growth is not None or outlived:
            return None
        return min((size for size in self._ran(capacity_bytes) if size >= batch_size), default=None)

    def _ran(self, capacity_bytes: int) -> list[int]:
        return [
            size
            for size, one in self.ran.items()
            if one.capacity_bytes and one.capacity_bytes <= capacity_bytes
        ]

    def largest(self, capacity_bytes: int) -> int:
        return max((size for size in self.ran if self.fits(size, capacity_bytes)), default=0)

    def smallest_failed(self, capacity_bytes: int) -> int | None:
        """The smallest batch size from which on none is known to fit into a capacity; None without
        any."""
        failed = [
            one.batch_size
            for one in self.failures
            if self.fits(one.batch_size, capacity_bytes) is False
        ]
        return min((size for size in failed if size > self.largest(capacity_bytes)), default=None)


NOTHING = Evidence()


def recorded_program(
    requests: Iterable[StepRequests], device: str, phase: Phase = "train"
) -> tuple[StepRequests, ...]:
    """The recorded steps of a device since the program last changed, without changes that no later
    step follows.

    The first one may be the step that made the long-lived chunks. Steps before it with other batch
    sizes count as well if they have the same weights and optimizer state, for example those of an
    earlier session. The one step of a batch smaller than all others is an epoch's partial one, and
    not the latest of them."""
    groups: list[list[StepRequests]] = [[]]
    for one in requests:
        if one.device == device and one.phase == phase:
            if one.first:
                groups.append([])
            groups[-1].append(one)
    complete = [group for group in groups if any(not one.first for one in group)]
    if not complete:
        return ()
    latest = complete[-1]
    first, later = [one for one in latest if one.first], [one for one in latest if not one.first]
    earlier: list[StepRequests] = []
    for group in reversed(complete[:-1]):
        if _program(group[-1]) != _program(latest[-1]):
            break
        known = {one.batch_size for one in (*earlier, *later)}
        earlier = [one for one in group if not one.first and one.batch_size not in known] + earlier
    is_partial = later[:-1] and 0 < (later[-1].batch_size or 0) < min(
        one.batch_size or 0 for one in later[:-1]
    )
    return (*first, *earlier, *((later[-1], *later[:-1]) if is_partial else later))


def program_of(run: Run, device: str) -> tuple[StepRequests, ...]:
    """The recorded training steps, or else what the first step was planned to be that ran out of
    memory last."""
    steps = recorded_program(run.requests, device, _TRAIN)
    planned = [
        one.requests
        for one in _failures(run, device, ())
        if one.requests is not None and one.requests.planned
    ]
    return steps or tuple(planned[-1:])


def _program(
    requests: StepRequests,
) -> tuple[str, collections.Counter[tuple[str | None, str, int]]]:
    """What distinguishes a step's program: its mode, and the weights and optimizer state that it
    starts with."""
    lasting: collections.Counter[tuple[str | None, str, int]] = collections.Counter()
    for row in np.flatnonzero(requests.birth < 0).tolist():
        owner = requests.owners[int(requests.owner[row])]
        if owner.category in ("weights", "optimizer_state") and former_name(owner.layer) is None:
            lasting[owner.layer, owner.category, int(requests.requested[row])] += 1
    return requests.mode, lasting


def measured_peak(
    run: Run, device: str, steps: Sequence[StepRequests], until: float = math.inf
) -> int | None:
    """Median peak of the steps like the latest recorded ones, of the kind that needs most, before a
    time, if known."""
    typical = [one for one in steps if not one.first and not one.planned]
    if not typical:
        return None
    own = [
        one.step
        for one in of_highest_kind(
            [one for one in typical if one.batch_size == typical[-1].batch_size]
        )
    ]
    peaks = _peaks_from(run, typical[-1], own[0], until)
    # of several batch sizes or kinds of steps: only traced steps show theirs
    if len(own) < len(typical):
        peaks = {step: peak for step, peak in peaks.items() if step in own}
    return int(statistics.median(peaks.values())) if peaks else None


def _peaks_from(
    run: Run, like: StepRequests, first: int, until: float = math.inf
) -> dict[int, int]:
    """Step to peak in bytes, of a step's device and phase, from the first step until a wall time or
    a failure."""
    samples, figures = run.samples, run.samples.devices.get(like.device)
    if figures is None:
        return {}
    rows = (
        (samples.phase == PHASES.index(like.phase))
        & (samples.step >= first)
        & (figures.peak_bytes > 0)
    )
    rows &= samples.wall_time < until
    failed = [
        one.step
        for one in _of_phase(run, like.device, like.phase)
        if one.step is not None and one.step > first
    ]
    if failed:
        rows &= samples.step < min(failed)
    return dict(zip(samples.step[rows].tolist(), figures.peak_bytes[rows].tolist(), strict=True))


def recorded_evidence(
    run: Run, device: str, steps: Sequence[StepRequests], until: float = math.inf
) -> Evidence:
    """What a run shows of its batch sizes, by the recorded steps of its program, up to the wall
    time `until`."""
    typical = [one for one in steps if not one.first and not one.planned]
    # A failure of unknown batch size is one of the size that ran.
    running = typical[-1].batch_size if typical else None
    failed = []
    for oom in _failures(run, device, steps):
        size, limit = oom.batch_size or running, oom.capacity_bytes or 0
        # It, or a larger one, may have run afterwards, within no larger capacity.
        later = [
            one
            for one in typical
            if one.wall_time > oom.wall_time and (one.capacity_bytes or 0) <= limit
        ]
        if (
            size
            and oom.step is not None
            and not any((one.batch_size or 0) >= size for one in later)
        ):
            failed.append(Failure(size, oom.capacity_bytes, oom.step, _request(oom)))
    growth, grown = None, growth_of(run, device, _TRAIN)
    if grown is not None:
        trend = grown.trend
        owner = (
            ""
            if grown.owner is None
            else f" ({', '.join((grown.owner[1].replace('_', ' '), *grown.origin()))})"
        )
        growth = (
            f"Unknown: memory grows by {format_bytes(round(trend.bytes_per_step))} in each step. "
            f"It rose from {format_bytes(trend.from_bytes)} to {format_bytes(trend.to_bytes)} so "
            f"far{owner}. Fix the leak first."
        )
    if not typical:
        return Evidence(failures=failed, growth=growth)
    measured = _peaks_from(run, typical[-1], min(one.step for one in typical), until)
    ran: dict[int, Ran] = {}
    sizes = {one.batch_size for one in typical if one.batch_size}
    for size in sizes:
        own = [one for one in typical if one.batch_size == size and one.step in measured]
        traced = [measured[one.step] for one in (of_highest_kind(own) if own else ())]
        # Not every step was traced; of several sizes or kinds, only the traced ones show theirs.
        all_steps = (
            list(measured.values()) if len(sizes) == 1 and len(traced) == len(own) else traced
        )
        if traced:
            median = int(statistics.median(all_steps))
            limits = [one.capacity_bytes for one in own]
            within = None if None in limits else min(limit for limit in limits if limit)
            # The highest peak of all is the largest batch's: a partial one may be the last that was
            # seen.
            high = max(*(measured.values() if size == max(sizes) else all_steps), median)
            ran[size] = Ran(Interval(min(*traced, median), median, high), within)
    return Evidence(ran, failed, growth)


def _request(oom: Oom) -> FailedRequest | None:
    requested, free, largest = oom.requested_bytes, oom.free_bytes, oom.largest_free_bytes
    if requested is None or free is None or largest is None:
        return None
    return FailedRequest(oom.op, oom.layer, requested, oom.step or 0, free, largest)


def last_failed_batch(run: Run, device: str, steps: Sequence[StepRequests]) -> int | None:
    """Batch size of the failure that ended a run; None if training went on, or if it is unknown."""
    failures = _failures(run, device, steps)
    if not failures or failures[-1].step is None:
        return None
    last = max((one.step for one in steps), default=-1)
    return failures[-1].batch_size if failures[-1].step >= last else None


# the last one last
def _failures(run: Run, device: str, steps: Sequence[StepRequests]) -> list[Oom]:
    begin = min((one.step for one in steps), default=0)
    failed = [one for one in _of_phase(run, device, _TRAIN) if (one.step or 0) >= begin]
    return sorted(failed, key=lambda one: one.wall_time)


def _of_phase(run: Run, device: str, phase: Phase) -> list[Oom]:
    return [one for one in run.ooms if one.device == device and one.phase == phase and one.failed]


def layer_table_of(run: Run, steps: tuple[StepRequests, ...]) -> LayerTable | None:
    if not steps:
        return run.layer_tables[-1] if run.layer_tables else None
    tables = [table for table in run.layer_tables if table.step <= steps[-1].step]
    return tables[-1] if tables else None


@dataclasses.dataclass(frozen=True)
class Demand:
    """The parts of a step's peak, which sum to it."""

    step: int
    phase: Phase
    peak_bytes: int  # most bytes allocated at once
    # most requested bytes that are live at once: a lower bound for every allocator
    demand_bytes: int
    rounding_bytes: int  # what rounding up to 256 bytes adds
    unsplit_bytes: int  # what remainders that are not split off add
    pool_bytes: int  # the regions at the end of the step
    one_region_bytes: int | None = None  # see the functions of these names; None if not computed
    growing_bytes: int | None = None


def demand_of(requests: StepRequests) -> Demand:
    # Each is at least as much as the one before at every moment, so their maxima are, too.
    sizes = (requests.requested, rounded_sizes(requests.requested), requests.allocated)
    demand, whole, peak = (int(in_use(requests, one).max()) for one in sizes)
    return Demand(
        step=requests.step,
        phase=requests.phase,
        peak_bytes=peak,
        demand_bytes=demand,
        rounding_bytes=whole - demand,
        unsplit_bytes=peak - whole,
        pool_bytes=int(requests.region_bytes.sum() + requests.added_bytes.sum()),
    )


def growing_bytes(requests: StepRequests) -> int:
    """Bytes of a pool that starts empty and without limit when the step, its older chunks first, is
    replayed in it."""
    simulator = Simulator(part_of_map(requests), PoolRules(NO_LIMIT))
    _replay(requests, simulator)
    return simulator.pool_bytes


def one_region_bytes(requests: StepRequests) -> int:
    """About the smallest pool, reserved as a whole, in which the step passes as in `growing_bytes`;
    to 1 %."""
    size = _extent(requests, NO_LIMIT) or ROUNDING
    while _extent(requests, size) is None:
        size = round(size * STEP_UP)
    return size


def _extent(requests: StepRequests, limit: int) -> int | None:
    """Bytes from the first to the last byte that is ever allocated in one region; None if a request
    fails."""
    spans = _replay(requests, Simulator(part_of_map(requests), PoolRules(limit, grows=False)))
    if not spans:
        return None if spans is None else 0
    return max(end for _, end in spans) - min(begin for begin, _ in spans)


def _replay(requests: StepRequests, simulator: Simulator) -> list[tuple[int, int]] | None:
    """The span of addresses that each request gets; None if one fails."""
    place: dict[int, int] = {}
    spans: list[tuple[int, int]] = []
    for entry in [*older_rows(requests), *event_order(requests)]:
        if entry < 0:
            simulator.free(place.pop(-1 - entry))
            continue
        size = int(requests.requested[entry])
        address = simulator.request(size)
        if address is None:
            return None
        place[entry] = address
        spans.append((address, address + rounded_bytes(size)))
    return spans


def peak_demand(run: Run, device: str) -> Demand | None:
    """The parts of the highest peak among a device's recorded steps; None without one that its
    replay reproduces."""
    of_device = [one for one in run.requests if one.device == device]
    found = [(demand_of(one), one) for one in of_device]
    for demand, requests in sorted(found, key=lambda one: -one[0].peak_bytes):
        if reproduce(requests).whole:
            return dataclasses.replace(
                demand,
                one_region_bytes=one_region_bytes(requests),
                growing_bytes=growing_bytes(requests),
            )
    return None


def demand_sentences(demand: Demand) -> tuple[str, ...]:
    parts = (
        f"Of the peak of step {demand.step} ({demand.phase}), {format_bytes(demand.peak_bytes)}, "
        f"{format_bytes(demand.demand_bytes)} is live at once: no allocator needs less. Rounding "
        f"to 256 bytes adds {format_bytes(demand.rounding_bytes)}, unsplit remainders of chunks "
        f"{format_bytes(demand.unsplit_bytes)}."
    )
    pool = f"The pool has {format_bytes(demand.pool_bytes)}"
    if demand.one_region_bytes is None or demand.growing_bytes is None:
        return parts, f"{pool}."
    whole, growing = format_bytes(demand.one_region_bytes), format_bytes(demand.growing_bytes)
    return parts, (
        f"{pool}. Replayed in an empty pool, the step needs {whole} if that is reserved as a "
        f"whole, and {growing} if it grows by regions."
    )


def describe_demand(demand: Demand | None) -> dict[str, Any] | None:
    if demand is None:
        return None
    return {**as_json(demand), "sentences": list(demand_sentences(demand))}
