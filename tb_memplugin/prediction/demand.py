"""How much of a recorded step's peak any allocator would need, and how much is BFC's. Pure."""

import dataclasses

from tb_memplugin.allocator.growth import PoolRules
from tb_memplugin.allocator.rules import ROUNDING, rounded_bytes
from tb_memplugin.allocator.simulator import Simulator
from tb_memplugin.model import Phase, StepRequests
from tb_memplugin.prediction.sized_steps import empty_map, event_order, in_use, older_rows, rounded_sizes

_NO_LIMIT = 1 << 60
STEP_UP = 1.01
"""Factor from one tried size of a region to the next."""


@dataclasses.dataclass(frozen=True)
class Demand:
    """The parts of a step's peak, which sum to it.

    Attributes:
        step, phase: The step.
        peak_bytes: Most bytes allocated at once.
        demand_bytes: Most requested bytes that are live at once: a lower bound for every allocator.
        rounding_bytes: What rounding up to 256 bytes adds.
        unsplit_bytes: What remainders that the allocator does not split off add.
        pool_bytes: The regions at the end of the step.
        one_region_bytes, growing_bytes: Results of the functions of these names; None if they were not computed.
    """

    step: int
    phase: Phase
    peak_bytes: int
    demand_bytes: int
    rounding_bytes: int
    unsplit_bytes: int
    pool_bytes: int
    one_region_bytes: int | None = None
    growing_bytes: int | None = None


def demand_of(requests: StepRequests) -> Demand:
    """The parts of a recorded step's peak."""
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
    """Bytes of the regions by which a pool grows that starts empty and without limit, when the step is replayed in it.

    Like `one_region_bytes`, with the chunks that are older than the step first.
    """
    simulator = Simulator(empty_map(requests), PoolRules(_NO_LIMIT))
    _replay(requests, simulator)
    return simulator.pool_bytes


def one_region_bytes(requests: StepRequests) -> int:
    """About the smallest pool, reserved as a whole, in which the replayed step passes; to 1 %.

    The region is empty but for the chunks that are older than the step.
    """
    size = _extent(requests, _NO_LIMIT) or ROUNDING
    while _extent(requests, size) is None:
        size = round(size * STEP_UP)
    return size


def _extent(requests: StepRequests, limit: int) -> int | None:
    """Bytes from the first to the last byte that is ever allocated in one region; None if a request fails."""
    spans = _replay(requests, Simulator(empty_map(requests), PoolRules(limit, grows=False)))
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
