"""The parts of a recorded step's peak, and the pools in which it would pass. Pure."""

import dataclasses

from tb_memplugin.allocator import ROUNDING, PoolRules, Simulator, rounded_bytes
from tb_memplugin.fit.simulation import (
    NO_LIMIT,
    event_order,
    in_use,
    older_rows,
    reproduce,
    rounded_sizes,
    start_map,
)
from tb_memplugin.schema import Phase, Run, StepRequests, format_bytes

STEP_UP = 1.01
"""Factor from one tried size of a region to the next."""


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
    sentences: tuple[str, ...] = ()


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
    simulator = Simulator(start_map(requests, ()), PoolRules(NO_LIMIT))
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
    spans = _replay(requests, Simulator(start_map(requests, ()), PoolRules(limit, grows=False)))
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
            whole = dataclasses.replace(
                demand,
                one_region_bytes=one_region_bytes(requests),
                growing_bytes=growing_bytes(requests),
            )
            return dataclasses.replace(whole, sentences=demand_sentences(whole))
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
        f"{pool}; for this step {whole} would do if reserved as one region, {growing} if it grows."
    )
