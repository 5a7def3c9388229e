"""Fixes of a failure, simulated from the steps that its session recorded before it."""

import dataclasses
import pathlib
import re

import numpy as np
import pytest
import requests_cases
from reading_cases import DEVICE, MIB, make_oom, write_small_run

import tb_memplugin
from tb_memplugin.analysis.fit.fixes import advice, recomputing_fix, with_advice
from tb_memplugin.analysis.fit.segment_search import units_of
from tb_memplugin.analysis.fit.what_if import RunPredictor
from tb_memplugin.commands.loading import Runs
from tb_memplugin.model import Oom, Run
from tb_memplugin.prediction.conditions import Conditions
from tb_memplugin.prediction.fixes import FailedTraining

FIXTURES = pathlib.Path(__file__).parents[3] / "fixtures"
BATCH = 48
OOM = dataclasses.replace(make_oom(18), capacity_bytes=100 * MIB, verdict="capacity", op=None, batch_size=BATCH)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    directory = tmp_path_factory.mktemp("runs")
    requests_cases.write_run(directory / "traced")
    return Runs(directory)["traced"]


def measured(run: Run, share: float, steps: slice = slice(1, None)) -> Run:
    """The run with other measured peaks; its first step, which made the optimizer's slots, keeps its own."""
    figures = run.samples.devices[DEVICE]
    peaks = figures.peak_bytes.copy()
    peaks[steps] = round(share * requests_cases.make_traced()[3].snapshot.in_use_bytes)
    devices = {DEVICE: dataclasses.replace(figures, peak_bytes=peaks)}
    return dataclasses.replace(run, samples=dataclasses.replace(run.samples, devices=devices))


def test_a_failure_has_the_fixes_that_pass(run: Run) -> None:
    found = advice(run, OOM)
    fixes = {fix.kind: fix for fix in found.fixes}
    assert {"batch", "accumulation", "limit"} <= set(fixes) and found.note is None
    # The training itself, of as many examples: see the tests of the simulation.
    batch = fixes["batch"].batch_size
    assert batch is not None and 4 < batch < BATCH
    program = requests_cases.Program(100 * MIB, batch)
    for step in range(12):
        program.step(step, first=not step)  # raises if a request fails
    told = with_advice(OOM, found)
    assert told.fixes == found.fixes and told.not_available == OOM.not_available


@pytest.mark.parametrize(("share", "word"), [(0.85, "above"), (1.18, "below")])
def test_a_simulation_that_misses_the_measured_peaks_gives_no_fix(run: Run, share: float, word: str) -> None:
    found = advice(measured(run, share), OOM)
    assert found.fixes == () and found.note is not None
    assert found.note.startswith("No fix could be simulated.")
    assert f"% {word} the median of the run's steps" in found.note
    assert with_advice(OOM, found).not_available == (*OOM.not_available, found.note)


def test_steps_after_the_failure_do_not_count(run: Run) -> None:
    assert advice(measured(run, 5.0, slice(18, None)), OOM) == advice(run, OOM)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"wall_time": OOM.wall_time - 100}, "no whole step was traced before."),
        ({"phase": None}, "no whole step was traced before."),
        ({"phase": "validation"}, "no whole step was traced before."),
        ({"batch_size": None}, "the batch size of the failed step is unknown."),
        ({"capacity_bytes": None}, "the allocator's capacity is unknown."),
    ],
)
def test_what_is_missing_is_named(run: Run, changes: dict[str, object], sentence: str) -> None:
    oom: Oom = dataclasses.replace(OOM, **changes)  # type: ignore[arg-type]
    assert advice(run, oom) == ((), f"No fix could be simulated: {sentence}")


def test_no_fix_contradicts_what_ran(run: Run) -> None:
    # GIVEN a failure at a capacity at which the recorded batch of 4 trained
    capacity = requests_cases.CAPACITY
    found = advice(run, dataclasses.replace(OOM, batch_size=1024, capacity_bytes=capacity))
    (batch,) = [fix for fix in found.fixes if fix.kind == "batch"]
    assert batch.batch_size is not None and batch.batch_size >= 4


def test_a_run_without_requests_has_figures_and_no_advice(tmp_path: pathlib.Path) -> None:
    write_small_run(tmp_path / "small", allocator=True)
    oom = Runs(tmp_path)["small"].ooms[-1]
    assert oom.fixes == () and oom.in_use_bytes and oom.verdict is not None
    assert oom.not_available[-1] == "No fix could be simulated: no whole step was traced before."
    assert np.sum([row.bytes for row in oom.ledger]) == oom.in_use_bytes


@pytest.fixture(scope="module")
def refit() -> Run:
    return tb_memplugin.load(FIXTURES / "refit")["net"]


def test_units_are_in_the_order_of_the_model_though_random_ops_run_first(refit: Run) -> None:
    predictor = RunPredictor(refit, "CPU:0")
    found = units_of(refit, predictor.steps[-1], predictor.layers).found
    # Masks have no inputs: TensorFlow makes them before the layers whose results they are applied to.
    begins = [part.begin for _, part in found]
    assert begins != sorted(begins)
    assert [unit.first for unit, _ in found] == sorted(unit.first for unit, _ in found)


def test_the_fix_passes_in_simulation_and_says_how_to_apply_it(refit: Run) -> None:
    (oom,) = refit.ooms
    (fix,) = (one for one in oom.fixes if one.kind == "recompute")
    assert oom.capacity_bytes is not None and fix.enough is True
    said = re.match(r"Recompute (\d+) segments? with \d+ layers .* Simulated peak: .* of 60.0 MiB", fix.sentence)
    assert said and fix.code is not None and fix.code.count('("') == int(said[1])
    # The training as it is fails; with the plan for the fix's budget it passes within the capacity.
    predictor = RunPredictor(refit, "CPU:0").predictor
    assert oom.batch_size == 48 and not predictor.passes(48, oom.capacity_bytes)
    plan = tb_memplugin.plan(refit, budget=fix.budget_bytes)
    segments = tuple(tuple(f"{plan.model}/{name}" for name in segment) for segment in plan.segments)
    assert plan.fits and predictor.passes(48, oom.capacity_bytes, Conditions(recompute=segments))


def test_there_is_no_fix_where_no_segments_are_enough(refit: Run) -> None:
    (oom,) = refit.ooms
    predictor = RunPredictor(refit, "CPU:0")
    units = units_of(refit, predictor.steps[-1], predictor.layers)
    failed = FailedTraining(48, 20 << 20, oom.verdict, is_gpu=False)
    assert recomputing_fix(predictor.predictor, units, predictor.layers, failed) is None
    roomy = dataclasses.replace(failed, capacity_bytes=oom.capacity_bytes or 0)
    assert recomputing_fix(predictor.predictor, units, predictor.layers, roomy) is not None
    assert recomputing_fix(predictor.predictor, dataclasses.replace(units, found=()), predictor.layers, roomy) is None
