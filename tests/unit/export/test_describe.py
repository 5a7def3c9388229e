"""The JSON object of ``inspect``: documented fields with the recorded values."""

import pytest
from reading_cases import DEVICE, MIB, make_run, write_small_run

from tb_memplugin import load
from tb_memplugin.export import Selection, describe_run
from tb_memplugin.schema import NO_SAMPLES, Run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    directory = tmp_path_factory.mktemp("runs")
    write_small_run(directory / "exp")
    return load(directory)["exp"]


def test_a_breakdown_sums_to_the_bytes_in_use_and_rounding_is_a_category(run: Run) -> None:
    for snapshot in describe_run(run)["snapshots"]:
        # Bytes are requested bytes, except in category rounding.
        known = [row for row in snapshot["ledger"] if row["rounding_bytes"] is not None]
        assert all(row["rounding_bytes"] == (row["bytes"] if row["category"] == "rounding" else 0) for row in known)
        assert sum(row["rounding_bytes"] for row in known) == snapshot["rounding_bytes"] == 512
        assert sum(row["bytes"] for row in snapshot["ledger"]) == snapshot["in_use_bytes"]


def test_the_figures_are_those_that_were_written(run: Run) -> None:
    described = describe_run(run)
    assert [described[name] for name in ("sessions", "steps", "first_step", "last_step", "oom")] == [1, 60, 0, 59, []]
    assert described["devices"] == {DEVICE: {"capacity_bytes": 2048 * MIB, "peak_bytes": 700 * MIB, "peak_step": 41}}
    assert [(layer["path"], layer["trainable"], layer["weight_bytes"]) for layer in described["layers"]] == [
        ("model/backbone", True, 4_000_000),
        ("model/head", True, 2_000),
    ]
    assert described["activations"] == [
        {"layer": "model/backbone", "steps": 3, "max_bytes": 300, "max_step": 1, "last_bytes": 200},
        {"layer": "model/head", "steps": 3, "max_bytes": 30, "max_step": 2, "last_bytes": 30},
    ]
    assert [snapshot["step"] for snapshot in described["snapshots"]] == [3, 41]


def test_a_step_selects_snapshots_and_the_layer_table_valid_then(run: Run) -> None:
    described = describe_run(run, Selection(step=3))
    assert [snapshot["step"] for snapshot in described["snapshots"]] == [3]
    assert [layer["trainable"] for layer in described["layers"]] == [False, True]
    assert described["steps"] == 60
    assert describe_run(run, Selection(step=4))["snapshots"] == []


def test_device_and_phase_select_too(run: Run) -> None:
    assert describe_run(run, Selection(device="GPU:0"))["snapshots"] == []
    assert describe_run(run, Selection(device="GPU:0"))["devices"] == {}
    assert describe_run(run, Selection(phase="validation"))["snapshots"] == []
    assert len(describe_run(run, Selection(phase="train", device=DEVICE))["snapshots"]) == 2


def test_an_empty_run_is_described_too() -> None:
    described = describe_run(make_run(NO_SAMPLES, sessions=(), workers=()))
    assert (described["steps"], described["first_step"], described["devices"], described["layers"]) == (0, None, {}, [])
