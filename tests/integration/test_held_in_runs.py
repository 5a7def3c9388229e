"""What Python holds in real trainings: tensors that are kept are told from data and constants, and
who keeps them; and what a persistent tape keeps is saved for the backward pass.
"""

import functools
import pathlib
import tempfile
from typing import Any

import pytest
from child import run_file

CHILD = pathlib.Path(__file__).with_name("held_child.py").read_text(encoding="utf-8").splitlines()
RESULT = 256 * 512 * 4
"""Bytes of one result of the model."""
SAVED = 4 * 8 * RESULT
"""Bytes that four layers of a batch eight times as large save."""


@functools.cache
def trained(scenario: str) -> Any:
    """What the child process prints of a scenario."""
    with tempfile.TemporaryDirectory() as directory:
        return run_file("held_child.py", scenario, directory)


@pytest.mark.parametrize(
    ("scenario", "holder", "path"),
    [
        (
            "results_in_a_list",
            "list `history` in module __main__",
            "module __main__ › history (list) › [",
        ),
        ("fit_on_tensors", "list in attribute `kept` of Keeper", "(Keeper) › kept (list) › ["),
        (
            "batches_of_a_dataset",
            "list `history` in module __main__",
            "module __main__ › history (list) › [",
        ),
    ],
)
def test_kept_tensors_grow_as_held_tensors_and_their_holder_is_named(
    scenario: str, holder: str, path: str
) -> None:
    answer = trained(scenario)
    for snapshot in answer["snapshots"]:
        kept = [group for group in snapshot["groups"] if group["shape"] == [256, 512]]
        # A kept tensor of each step before, and perhaps the traced one's. The last batch is still
        # in use.
        assert (
            snapshot["step"] - (scenario == "batches_of_a_dataset")
            <= sum(group["count"] for group in kept)
            <= snapshot["step"] + 1
        )
        assert (
            sum(group["bytes"] for group in kept) == sum(group["count"] for group in kept) * RESULT
        )
        assert snapshot["categories"]["held_tensors"] >= sum(
            group["bytes"] for group in snapshot["groups"]
        )
    largest = max(answer["snapshots"][-1]["groups"], key=lambda group: group["bytes"])
    assert largest["held_by"] == holder and path in largest["retaining_path"]
    line = "history.append(next(batches))" if scenario == "batches_of_a_dataset" else None
    if line is not None:  # the line that took the batches
        assert line in CHILD[int(largest["line"].rpartition(":")[2]) - 1]
    (finding,) = [one for one in answer["findings"] if ": held tensors, " in one]
    assert f"kept alive by {holder}" in finding
    assert answer["notes"] == []


def test_data_tensors_of_fit_and_of_its_validation_are_inputs() -> None:
    answer = trained("fit_on_tensors")
    data = 4 * 60 * 32 * 512 * 4
    for snapshot in answer["snapshots"]:
        assert snapshot["categories"]["inputs"] >= data
        assert [1920, 512] not in [group["shape"] for group in snapshot["groups"]]


def test_batches_of_a_loop_are_inputs() -> None:
    answer = trained("batch_of_a_loop")
    last = answer["snapshots"][-1]
    assert last["categories"]["inputs"] >= 61 * RESULT
    assert last["categories"].get("held_tensors", 0) < RESULT
    assert not any("held tensors" in sentence for sentence in answer["findings"])


def test_a_captured_constant_is_other_state() -> None:
    last = trained("captured_constant")["snapshots"][-1]
    assert last["categories"]["other_state"] >= 4 * RESULT
    assert last["categories"]["inputs"] >= RESULT
    assert last["categories"].get("held_tensors", 0) < RESULT


@pytest.mark.parametrize(
    "scenario",
    [
        *("persistent_graph", "persistent_eager"),
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in ("tape_graph", "persistent_inside", "persistent_eager_inside")
        ),
    ],
)
def test_what_a_persistent_tape_keeps_is_saved_for_the_backward_pass(scenario: str) -> None:
    for snapshot in trained(scenario)["snapshots"]:
        assert snapshot["saved"] == SAVED
        # An eager tape that persists keeps all up to the peak. The backward pass of a graph frees
        # them one by one: how many are left at the peak depends on when the executor runs the ops
        # that free and allocate.
        held = snapshot["categories"]["activations"]
        assert held == SAVED if scenario.startswith("persistent_eager") else 0 < held <= SAVED
