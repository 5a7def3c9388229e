"""A plan for a recorded training, applied in a process of its own: the allocator's peak is as planned."""

import json
import pathlib
import subprocess
import sys
from typing import Any

import pytest

import tb_memplugin

CHILD = pathlib.Path(__file__).with_name("plan_child.py")


def child(*arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, str(CHILD), "wide", *arguments],
        cwd=CHILD.parents[2],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.long
def test_the_measured_peak_is_in_the_range_of_the_plan_and_within_the_budget(tmp_path: pathlib.Path) -> None:
    directory = str(tmp_path / "run")
    child("record", directory)
    (run,) = tb_memplugin.load(directory).values()
    recorded = tb_memplugin.plan(run, budget="1TiB").recorded_peak_bytes
    assert recorded is not None
    for share in (0.87, 0.7):
        budget = int(share * recorded)
        answer = child("measure", str(budget), directory)
        assert answer["fits"] is True
        assert answer["segments"] or (share == 0.7 and answer["accumulation"] > 1), answer["text"]
        low, _, high = answer["range"]
        assert low <= answer["measured"] <= high <= budget


@pytest.mark.long
def test_a_plan_for_a_model_and_its_data_is_like_that_for_a_recorded_run() -> None:
    # GIVEN a run of the same model and batch size
    (run,) = tb_memplugin.load(CHILD.parents[1] / "fixtures" / "plans").values()
    recorded = tb_memplugin.plan(run, budget="1TiB").recorded_peak_bytes
    assert recorded is not None
    budget = int(0.87 * recorded)
    # WHEN the model is planned from steps with small batches
    answer = child("probe", str(budget))
    # THEN the model is as before, and its peak without a change is predicted for the dataset's batches
    assert answer["same"] is True and answer["batch_size"][0] == 16
    assert answer["recorded"] == pytest.approx(recorded, rel=0.15)
    assert answer["fits"] is True and answer["segments"] and answer["range"][2] <= budget, answer["text"]
