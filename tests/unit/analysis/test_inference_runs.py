"""Runs without training steps: answers, findings and texts are about the phase that was recorded."""

import dataclasses

import numpy as np
import pytest
from reading_cases import DEVICE, MIB, make_run, make_samples, make_snapshot, make_table

from tb_memplugin.analysis.changes import validation_passes
from tb_memplugin.analysis.facts import main_phase, phases
from tb_memplugin.analysis.growth import find_growth, growth_of
from tb_memplugin.analysis.questions import answers
from tb_memplugin.export.describe import describe_run
from tb_memplugin.export.run_text import format_run
from tb_memplugin.fit.conditions import Conditions
from tb_memplugin.fit.what_if import RunPredictor
from tb_memplugin.schema import Phase, Run
from tb_memplugin.storage.read.columns import join_samples

STEPS = np.arange(240)
GROWN = STEPS * (MIB // 4)


def run_of(phase: Phase, grown: bool = False, **parts: object) -> Run:
    """240 steps of one phase with a peak of 900 MiB, and 300 MiB in use at their ends, which may grow."""
    more = GROWN * grown
    pools = dict.fromkeys((5, 100), (2000 * MIB, 1000 * MIB))
    sizes = {"in_use": (300 * MIB + more).tolist(), "phase": phase, "pools": pools}
    return make_run(make_samples(STEPS.tolist(), (900 * MIB + more).tolist(), **sizes), **parts)


@pytest.mark.parametrize("phase", ["validation", "predict"])
def test_the_four_answers_are_about_the_recorded_phase(phase: Phase) -> None:
    run = run_of(phase)
    assert (main_phase(run), phases(run)) == (phase, [phase])
    fits, growing, fragmented, changed = answers(run, DEVICE)
    assert (fits.sentence, fits.evidence.phase) == ("Fits: 900 MiB of 2.0 GiB, 1.1 GiB headroom", phase)
    assert (growing.sentence, growing.status) == ("No growth over 240 steps (under 3.0 MiB)", "ok")
    assert growing.evidence.phase == phase
    assert fragmented.status != "unknown" and fragmented.evidence.phase == phase
    assert changed.sentence == "No changes in 240 steps"


def test_a_growing_cache_is_held_tensors() -> None:
    def snapshot(step: int) -> object:
        taken = make_snapshot(step, unattributed=int(GROWN[step]))
        rows = tuple(
            dataclasses.replace(row, category="held_tensors") if row.category == "unattributed" else row
            for row in taken.ledger
        )
        return dataclasses.replace(taken, phase="predict", ledger=rows)

    run = run_of("predict", grown=True, snapshots=(snapshot(60), snapshot(220)))
    (growth,) = find_growth(run)
    assert (growth.phase, growth.owner) == ("predict", (None, "held_tensors"))
    growing = answers(run, DEVICE)[1]
    assert growing.sentence == f"+256 KiB/step since step {growth.trend.since_step}: held tensors"
    assert (growing.evidence.phase, growing.evidence.category) == ("predict", "held_tensors")


def test_a_phase_after_training_has_a_trend_of_its_own() -> None:
    training = make_samples(STEPS.tolist(), [900 * MIB] * 240, in_use=[300 * MIB] * 240)
    generating = make_samples(
        (240 + STEPS).tolist(), (900 * MIB + GROWN).tolist(), in_use=(300 * MIB + GROWN).tolist(), phase="predict"
    )
    run = make_run(join_samples([training, generating])[0])
    assert answers(run, DEVICE)[1].sentence == "No growth over 240 steps (under 3.0 MiB)"
    assert answers(run, DEVICE, "predict")[1].evidence.phase == "predict"
    assert answers(run, DEVICE, "predict")[1].sentence.startswith("+256 KiB/step since step ")


def test_batches_after_one_training_step_are_no_trend() -> None:
    # GIVEN a prediction after training, whose batches have the number of the last training step
    training = make_samples(STEPS.tolist(), [900 * MIB] * 240, in_use=[300 * MIB] * 240)
    predicting = make_samples([239] * 240, [900 * MIB] * 240, in_use=(300 * MIB + GROWN).tolist(), phase="predict")
    assert growth_of(make_run(join_samples([training, predicting])[0]), DEVICE, "predict") is None


def test_batches_before_training_are_no_validation_passes() -> None:
    evaluated = make_samples(range(5), [MIB] * 5, phase="validation", start=1e9)
    assert validation_passes(evaluated, DEVICE) == []
    trained = make_samples(range(5), [MIB] * 5, start=1e9 + 100)
    validated = make_samples([4] * 3, [MIB] * 3, phase="validation", start=1e9 + 200)
    (passed,) = validation_passes(join_samples([evaluated, trained, validated])[0], DEVICE)
    assert (passed.after_step, passed.batches) == (4, 3)


def test_the_terminal_and_json_show_the_pool_of_the_phase() -> None:
    run = run_of("predict", layer_tables=(make_table(0, unfrozen=False),))
    text = format_run(run)
    assert "240 steps (0 to 239)" in text and f"{DEVICE}, pool over predict steps:" in text
    assert "(unknown)" not in text and "training" not in text
    described = describe_run(run)
    assert described["pool"][DEVICE]["spans"] and described["steps"] == 240
    assert described["answers"][DEVICE][1]["sentence"] == "No growth over 240 steps (under 3.0 MiB)"


def test_what_if_says_why_it_predicts_nothing() -> None:
    prediction = RunPredictor(run_of("predict"), DEVICE).predict(Conditions())
    assert prediction.assumptions == (
        "Unknown: predictions come from training steps, and this run has only predict steps.",
    )
