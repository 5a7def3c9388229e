"""The fix that recomputes segments, of a recorded training with dropout that ran out of memory."""

import dataclasses
import pathlib
import re

import pytest

import tb_memplugin
from tb_memplugin.analysis.plan_units import units_of
from tb_memplugin.analysis.recomputing_fix import recomputing_fix
from tb_memplugin.analysis.what_if import RunPredictor
from tb_memplugin.model import Run
from tb_memplugin.prediction.conditions import Conditions
from tb_memplugin.prediction.fixes import FailedTraining

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures"


@pytest.fixture(scope="module")
def run() -> Run:
    return tb_memplugin.load(FIXTURES / "refit")["net"]


def test_units_are_in_the_order_of_the_model_though_random_ops_run_first(run: Run) -> None:
    predictor = RunPredictor(run, "CPU:0")
    found = units_of(run, predictor.steps[-1], predictor.layers).found
    # Masks have no inputs: TensorFlow makes them before the layers whose results they are applied to.
    begins = [part.begin for _, part in found]
    assert begins != sorted(begins)
    assert [unit.first for unit, _ in found] == sorted(unit.first for unit, _ in found)


def test_the_fix_passes_in_simulation_and_says_how_to_apply_it(run: Run) -> None:
    (oom,) = run.ooms
    (fix,) = (one for one in oom.fixes if one.kind == "recompute")
    assert oom.capacity_bytes is not None and fix.enough is True
    said = re.match(r"Recompute (\d+) segments? with \d+ layers .* Simulated peak: .* of 60.0 MiB", fix.sentence)
    assert said and fix.code is not None and fix.code.count('("') == int(said[1])
    # The training as it is fails; with the plan for the fix's budget it passes within the capacity.
    predictor = RunPredictor(run, "CPU:0").predictor
    assert oom.batch_size == 48 and not predictor.passes(48, oom.capacity_bytes)
    plan = tb_memplugin.plan(run, budget=str(fix.budget_bytes))
    segments = tuple(tuple(f"{plan.model}/{name}" for name in segment) for segment in plan.segments)
    assert plan.fits and predictor.passes(48, oom.capacity_bytes, Conditions(recompute=segments))


def test_there_is_no_fix_where_no_segments_are_enough(run: Run) -> None:
    (oom,) = run.ooms
    predictor = RunPredictor(run, "CPU:0")
    units = units_of(run, predictor.steps[-1], predictor.layers)
    failed = FailedTraining(48, 20 << 20, oom.verdict, is_gpu=False)
    assert recomputing_fix(predictor.predictor, units, predictor.layers, failed) is None
    roomy = dataclasses.replace(failed, capacity_bytes=oom.capacity_bytes or 0)
    assert recomputing_fix(predictor.predictor, units, predictor.layers, roomy) is not None
    assert recomputing_fix(predictor.predictor, dataclasses.replace(units, found=()), predictor.layers, roomy) is None
