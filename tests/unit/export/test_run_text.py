"""A run in the terminal: devices of one kind are compared; answers have a line each, with their
details below."""

import dataclasses

import numpy as np
import pytest
from reading_cases import MIB, make_run, make_samples, make_snapshot

from tb_memplugin.analysis import QUESTIONS, Answer, AnswerEvidence, describe_devices
from tb_memplugin.export import Selection
from tb_memplugin.export.text import answer_lines, category_name, device_lines, summarize_run


def lines_of(*peaks: tuple[str, int]) -> str:
    samples = make_samples([0, 1], [MIB, MIB])
    one = samples.devices["CPU:0"]
    devices = {
        name: dataclasses.replace(one, peak_bytes=np.full(2, peak * MIB)) for name, peak in peaks
    }
    run = make_run(dataclasses.replace(samples, devices=devices))
    return "\n".join(device_lines(describe_devices({"": run}, "train")))


@pytest.mark.parametrize(
    ("peaks", "whose"),
    [
        ((("GPU:0", 300), ("GPU:1", 200)), "the"),
        ((("GPU:0", 300), ("GPU:1", 200), ("CPU:0", 5000)), "the accelerators'"),
    ],
)
def test_the_sum_says_of_which_devices_it_is(
    peaks: tuple[tuple[str, int], ...], whose: str
) -> None:
    text = lines_of(*peaks)
    assert "imbalance: GPU:0 peaks at 300 MiB, 100 MiB more than GPU:1 at 200 MiB" in text
    assert f"sum of {whose} peaks: 500 MiB, an upper bound of the sum at any step" in text


def test_one_accelerator_beside_the_cpu_is_compared_with_nothing() -> None:
    assert lines_of(("GPU:0", 300), ("CPU:0", 5000)) == lines_of(("GPU:0", 300)) == ""


def test_details_stand_below_their_answer() -> None:
    evidence = AnswerEvidence("compare")
    changed = Answer(
        QUESTIONS["changed"],
        "changed",
        "CPU:0",
        "Unfroze 8",
        "ok",
        "measured",
        evidence,
        {},
        ("One.", "Two " * 40),
    )
    fits = {"question": QUESTIONS["fits"], "name": "fits", "details": (), "status": "failed"}
    lines = answer_lines("CPU:0", [changed, dataclasses.replace(changed, **fits)])
    assert lines[:3] == ["CPU:0:", "  What changed?  Unfroze 8", "                 One."]
    assert (
        all(line.startswith(17 * " ") and len(line) <= 120 for line in lines[3:-1])
        and len(lines) == 6
    )
    assert lines[-1] == f"  {QUESTIONS['fits']:<13}  Unfroze 8 (failed)"


def test_weights_of_which_it_is_unknown_whether_they_are_trained_are_named_as_on_the_page() -> None:
    names = [category_name("weights", trainable) for trainable in (False, True, None)]
    assert names == ["weights, frozen", "weights, trainable", "weights, frozen or trainable"]
    assert category_name("optimizer_state", None) == "optimizer state"


def test_the_layers_of_a_summary_are_those_of_the_highest_traced_peak_which_is_not_the_runs() -> (
    None
):
    peaks = [100 * MIB, 104 * MIB, 140 * MIB]
    text = summarize_run(make_run(make_samples([1, 2, 3], peaks), snapshots=(make_snapshot(2),)))
    assert "140 MiB of 2.0 GiB at peak" in text
    assert "memory at the highest traced peak, step 2 " in text


def test_the_layers_of_a_selected_step_are_not_said_to_be_those_of_the_highest_peak() -> None:
    snapshots = make_snapshot(1), make_snapshot(2, activations=200 * MIB)
    run = make_run(make_samples([1, 2], [100 * MIB, 240 * MIB]), snapshots=snapshots)
    text = summarize_run(run, Selection(step=1))
    assert "memory at the peak, step 1 " in text
    assert "highest" not in text
