"""The parts of a step's peak, against sums over the step's chunks."""

import dataclasses
import pathlib

import numpy as np
import pytest
import requests_cases

import tb_memplugin
from tb_memplugin.allocator.growth import PoolRules
from tb_memplugin.model import StepRequests
from tb_memplugin.prediction.demand import demand_of, growing_bytes, one_region_bytes
from tb_memplugin.prediction.history import History
from tb_memplugin.prediction.sized_steps import as_recorded, event_order, older_rows

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures"


def recorded() -> list[StepRequests]:
    (run,) = tb_memplugin.load(FIXTURES / "plans").values()
    return [*run.requests, *(one.requests for one in requests_cases.make_traced().values())]


@pytest.mark.parametrize("requests", recorded(), ids=lambda one: f"{len(one)}-chunks-step-{one.step}")
def test_the_parts_are_those_of_the_live_chunks_at_each_moment(requests: StepRequests) -> None:
    demand = demand_of(requests)
    most = dict.fromkeys(("requested", "allocated"), 0)
    for name in most:
        sizes = getattr(requests, name).tolist()
        live = sum(sizes[row] for row in older_rows(requests))
        most[name] = live
        for entry in event_order(requests):
            live += -sizes[-1 - entry] if entry < 0 else sizes[entry]
            most[name] = max(most[name], live)
    assert (demand.demand_bytes, demand.peak_bytes) == (most["requested"], most["allocated"])
    parts = (demand.demand_bytes, demand.rounding_bytes, demand.unsplit_bytes)
    assert min(parts) >= 0 and sum(parts) == demand.peak_bytes
    assert demand.rounding_bytes <= 256 * len(requests)


@pytest.mark.parametrize("requests", recorded()[-2:], ids=["step-1", "step-3"])
def test_the_step_passes_in_one_region_of_that_size_and_not_in_its_demand(requests: StepRequests) -> None:
    demand, size = demand_of(requests), one_region_bytes(requests)
    assert demand.demand_bytes <= size <= 1.3 * demand.peak_bytes
    emptied = as_recorded(dataclasses.replace(requests, region_bytes=requests.region_bytes * 0))
    for capacity, passes in ((size, True), (demand.demand_bytes - 4096, False)):
        outcome = History([emptied], PoolRules(capacity, grows=False)).run([0])
        assert (outcome.failed is None) is passes


@pytest.mark.parametrize("requests", recorded()[-2:], ids=["step-1", "step-3"])
def test_a_growing_pool_has_the_regions_of_the_training_whose_pool_grew(requests: StepRequests) -> None:
    assert sorted(requests.region_bytes.tolist()) == [2 << 20, 4 << 20, 8 << 20, 16 << 20]
    assert growing_bytes(requests) == 30 << 20


def test_requests_of_multiples_of_256_have_no_rounding() -> None:
    requests = requests_cases.make_traced()[3].requests
    whole = -(-requests.requested // 256) * 256
    even = demand_of(dataclasses.replace(requests, requested=whole, allocated=whole))
    assert (even.rounding_bytes, even.unsplit_bytes) == (0, 0)
    assert even.demand_bytes == even.peak_bytes
    wider = demand_of(
        dataclasses.replace(requests, requested=whole, allocated=whole + np.where(whole > 1 << 20, 512, 0))
    )
    assert wider.rounding_bytes == 0 and wider.unsplit_bytes > 0
