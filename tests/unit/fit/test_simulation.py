"""Steps on the rules of the allocator: their order, a training from its first step on, and the demand of a peak."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest
import requests_cases
from reading_cases import DEVICE
from requests_cases import hand_made_requests

import tb_memplugin
from tb_memplugin.allocator import PoolRules
from tb_memplugin.cli import main
from tb_memplugin.fit import SizedStep, demand_of, demand_sentences, describe_demand, peak_demand
from tb_memplugin.fit.evidence import growing_bytes, one_region_bytes
from tb_memplugin.fit.simulation import History, Outcome, StepPeak, event_order, lasting_order, older_rows, typical_peak
from tb_memplugin.schema import Run, StepRequests, format_bytes

PLANS = pathlib.Path(__file__).parents[2] / "fixtures" / "plans"
CHUNKS = (
    ("net", "workspace", "a", 1024, 0, 1),
    ("net", "workspace", "b", 512, 2, 3),
    ("net", "activations", "c", 4096, 4, 7),
    ("net", "workspace", "d", 256, 5, 6),
)
"""Rows 0, 1 and 3 are freed by the event after their allocation; row 2 is the peak together with row 3."""


def test_what_the_next_event_frees_is_left_out_but_for_the_peak() -> None:
    assert lasting_order(hand_made_requests(CHUNKS)) == [2, 3, -4, -3]


@pytest.mark.parametrize("row", [0, 1])
def test_the_first_allocation_in_an_added_region_stays(row: int) -> None:
    requests = hand_made_requests(CHUNKS)
    begin = requests.address[row : row + 1]
    grown = dataclasses.replace(requests, added_address=begin, added_bytes=np.array([256]))
    assert lasting_order(grown) == [row, -1 - row, 2, 3, -4, -3]


@pytest.mark.parametrize(
    ("steps_of_update", "expected"),
    [
        (1, 3),  # the median of 1, 2, 3, 5, 6 and 9 is the lower one of 3 and 5
        (2, 6),  # of 9, 9, 3, 5, 6
        (6, 9),
        (16, 9),  # more than were simulated
    ],
)
def test_with_accumulated_gradients_the_highest_peak_of_an_update_counts(steps_of_update: int, expected: int) -> None:
    peaks = (1, 9, 2, 3, 5, 6)
    outcome = Outcome(tuple(StepPeak(size, 0, at) for at, size in enumerate((99, 99, *peaks))), 100, None)
    typical = typical_peak([outcome], steps_of_update)
    # The breakdown is that of this step.
    assert (typical.bytes, typical.event) == (expected, 2 + peaks.index(expected))


@pytest.fixture(scope="module")
def wide() -> Run:
    return tb_memplugin.load(PLANS)["wide"]


def test_the_highest_peak_that_its_replay_reproduces_is_divided(wide: Run) -> None:
    demand = peak_demand(wide, "CPU:0")
    figures = wide.samples.devices["CPU:0"]
    measured = dict(zip(wide.samples.step.tolist(), figures.peak_bytes.tolist(), strict=True))
    assert demand.peak_bytes == measured[demand.step] == max(measured[one.step] for one in wide.requests)
    assert demand.demand_bytes + demand.rounding_bytes + demand.unsplit_bytes == demand.peak_bytes
    # A step whose addresses do not follow from the rules says nothing of the allocator.
    (highest,) = (one for one in wide.requests if one.step == demand.step)
    moved = dataclasses.replace(highest, address=highest.address[::-1].copy())
    others = tuple(moved if one is highest else one for one in wide.requests)
    other = peak_demand(dataclasses.replace(wide, requests=others), "CPU:0")
    assert other is not None and other.step != demand.step
    assert peak_demand(dataclasses.replace(wide, requests=()), "CPU:0") is None


def test_inspect_says_the_same_as_json_and_as_text(wide: Run, capsys: pytest.CaptureFixture[str]) -> None:
    demand = peak_demand(wide, "CPU:0")
    assert main(["inspect", str(PLANS), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"]["wide"]["demand"] == {"CPU:0": describe_demand(demand)}
    assert main(["inspect", str(PLANS)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "CPU:0, demand of the peak:" in printed
    for sentence in demand_sentences(demand):
        assert sentence in printed


def test_the_sentences_have_the_figures(tmp_path: pathlib.Path) -> None:
    requests_cases.write_run(tmp_path / "traced")
    demand = peak_demand(tb_memplugin.load(tmp_path)["traced"], DEVICE)
    parts, pool = demand_sentences(demand)
    for size in (demand.peak_bytes, demand.demand_bytes, demand.rounding_bytes, demand.unsplit_bytes):
        assert format_bytes(size) in parts
    whole, growing = format_bytes(demand.one_region_bytes), format_bytes(demand.growing_bytes)
    assert pool == (
        f"The pool has {format_bytes(demand.pool_bytes)}. Replayed in an empty pool, the step needs {whole} if that is "
        f"reserved as a whole, and {growing} if it grows by regions."
    )
    assert demand_sentences(dataclasses.replace(demand, one_region_bytes=None))[1] == (
        f"The pool has {format_bytes(demand.pool_bytes)}."
    )


def recorded() -> list[StepRequests]:
    (run,) = tb_memplugin.load(PLANS).values()
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
    emptied = SizedStep(dataclasses.replace(requests, region_bytes=requests.region_bytes * 0), requests.requested)
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
