"""Which recorded step's peak is divided, and what the sentences say."""

import dataclasses
import json
import pathlib

import pytest
import requests_cases
from reading_cases import DEVICE

import tb_memplugin
from tb_memplugin.analysis.fit.demand import demand_sentences, describe_demand, peak_demand
from tb_memplugin.cli import main
from tb_memplugin.model import Run
from tb_memplugin.model.units import format_bytes

PLANS = pathlib.Path(__file__).parents[3] / "fixtures" / "plans"


@pytest.fixture(scope="module")
def run() -> Run:
    return tb_memplugin.load(PLANS)["wide"]


def test_the_highest_peak_that_its_replay_reproduces_is_divided(run: Run) -> None:
    demand = peak_demand(run, "CPU:0")
    assert demand is not None and demand.one_region_bytes is not None
    figures = run.samples.devices["CPU:0"]
    measured = dict(zip(run.samples.step.tolist(), figures.peak_bytes.tolist(), strict=True))
    assert demand.peak_bytes == measured[demand.step] == max(measured[one.step] for one in run.requests)
    assert demand.demand_bytes + demand.rounding_bytes + demand.unsplit_bytes == demand.peak_bytes
    # A step whose addresses do not follow from the rules says nothing of the allocator.
    (highest,) = (one for one in run.requests if one.step == demand.step)
    moved = dataclasses.replace(highest, address=highest.address[::-1].copy())
    others = tuple(moved if one is highest else one for one in run.requests)
    other = peak_demand(dataclasses.replace(run, requests=others), "CPU:0")
    assert other is not None and other.step != demand.step
    assert peak_demand(dataclasses.replace(run, requests=()), "CPU:0") is None


def test_inspect_says_the_same_as_json_and_as_text(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    demand = peak_demand(run, "CPU:0")
    assert demand is not None
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
    assert demand is not None
    parts, pool = demand_sentences(demand)
    for size in (demand.peak_bytes, demand.demand_bytes, demand.rounding_bytes, demand.unsplit_bytes):
        assert format_bytes(size) in parts
    assert demand.one_region_bytes is not None and demand.growing_bytes is not None
    whole, growing = format_bytes(demand.one_region_bytes), format_bytes(demand.growing_bytes)
    assert pool == (
        f"The pool has {format_bytes(demand.pool_bytes)}. Replayed in an empty pool, the step needs {whole} if that is "
        f"reserved as a whole, and {growing} if it grows by regions."
    )
    assert demand_sentences(dataclasses.replace(demand, one_region_bytes=None))[1] == (
        f"The pool has {format_bytes(demand.pool_bytes)}."
    )
