"""Runs of a trainer and an evaluator: a device's answers are about its own worker's steps, in every place."""

import dataclasses

import numpy as np
import pytest
from reading_cases import MIB, START, make_run, make_samples

from tb_memplugin.analysis.facts import device_phase, main_phase
from tb_memplugin.analysis.questions import answers
from tb_memplugin.analysis.run_findings import findings
from tb_memplugin.analysis.workers import describe_devices
from tb_memplugin.export.describe import describe_run
from tb_memplugin.export.run_text import format_run
from tb_memplugin.schema import Phase, Run, Samples
from tb_memplugin.storage.read.columns import join_samples
from tb_memplugin.storage.read.worker_samples import samples_of_workers

STEPS = np.arange(240)
LEAK = 300 * MIB + STEPS * MIB


def samples_of(phase: Phase, leaks: bool, peak: int = 900 * MIB) -> Samples:
    in_use = LEAK if leaks else LEAK * 0 + 300 * MIB
    samples = make_samples(STEPS.tolist(), [peak] * 240, in_use=in_use.tolist(), phase=phase, device="GPU:0")
    return dataclasses.replace(samples, host_resident_bytes=in_use)


def run_of(samples: Samples, worker: str = "") -> Run:
    return make_run(samples, workers=(worker,), session_starts=(START,))


def merged(by_worker: dict[str, Run]) -> Run:
    samples, _ = samples_of_workers({worker: run.samples for worker, run in by_worker.items()})
    return make_run(samples, workers=tuple(by_worker), session_starts=(START, START))


@pytest.fixture
def by_worker() -> dict[str, Run]:
    """A trainer whose memory stays, and an evaluator, whose memory and host RSS grow."""
    return {
        "evaluator": run_of(samples_of("validation", leaks=True), "evaluator"),
        "trainer": run_of(samples_of("train", leaks=False), "trainer"),
    }


def test_an_evaluators_memory_is_that_of_its_validation_steps(by_worker: dict[str, Run]) -> None:
    run = merged(by_worker)
    assert main_phase(run) == "train" and device_phase(run, "evaluator/GPU:0") == "validation"
    fits, growing, _, _ = answers(run, "evaluator/GPU:0")
    assert fits.figures["peak_bytes"] == 900 * MIB
    assert growing.evidence.phase == "validation" and growing.sentence.startswith("+1.0 MiB/step since step ")
    # The page reads the evaluator alone.
    assert answers(by_worker["evaluator"], "GPU:0")[1].sentence == growing.sentence
    assert answers(run, "trainer/GPU:0")[1].sentence == "No growth over 240 steps (under 3.0 MiB)"
    found = [sentence.split(" grows")[0] for sentence in findings(by_worker)]
    assert found == ["evaluator/GPU:0: memory in use at step end", "evaluator: host RSS"]


def test_steps_of_other_workers_between_those_of_one_do_not_hide_them(by_worker: dict[str, Run]) -> None:
    # GIVEN a table in which a row of the evaluator lies before each row of the trainer
    alone = by_worker["trainer"] = run_of(samples_of("train", leaks=True), "trainer")
    growing = answers(merged(by_worker), "trainer/GPU:0")[1]
    assert growing.sentence == answers(alone, "GPU:0")[1].sentence
    assert growing.figures == answers(alone, "GPU:0")[1].figures


def test_the_devices_view_has_the_peak_that_the_answers_have(by_worker: dict[str, Run]) -> None:
    for phase in ("train", "validation"):
        told = describe_devices(by_worker, phase)  # type: ignore[arg-type]
        peaks = {one["device"]: one["peak_bytes"] for one in told["devices"]}
        for worker, run in by_worker.items():
            peak = answers(run, "GPU:0", phase)[0].figures.get("peak_bytes")  # type: ignore[arg-type]
            assert peaks.get(f"{worker}/GPU:0") == peak


def test_in_a_run_without_training_the_peak_is_that_of_all_phases() -> None:
    validated = samples_of("validation", leaks=False)
    predicted = samples_of("predict", leaks=False, peak=1200 * MIB)
    run = run_of(join_samples([validated, predicted])[0])
    (device,) = describe_devices({"": run}, "validation")["devices"]
    assert device["peak_bytes"] == answers(run, "GPU:0", "validation")[0].figures["peak_bytes"] == 1200 * MIB
    assert device["rows"] == 240
    (device,) = describe_devices({"": run}, "predict")["devices"]
    assert device["peak_bytes"] == answers(run, "GPU:0", "predict")[0].figures["peak_bytes"] == 1200 * MIB


def test_the_terminal_and_json_compare_the_phase_that_was_recorded() -> None:
    samples = samples_of("predict", leaks=False)
    other = dataclasses.replace(samples.devices["GPU:0"], peak_bytes=STEPS * 0 + 600 * MIB)
    run = run_of(dataclasses.replace(samples, devices={**samples.devices, "GPU:1": other}))
    compared = describe_run(run)["compared"]
    assert compared["phase"] == "predict" and [one["rows"] for one in compared["devices"]] == [240, 240]
    assert [one["last_in_use_bytes"] for one in compared["devices"]] == [300 * MIB] * 2
    assert "imbalance: GPU:0 peaks at 900 MiB, 300 MiB more than GPU:1" in format_run(run)
