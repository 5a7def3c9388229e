"""What the JSON object of ``inspect`` selects; `test_commands.py` compares whole objects with
stored ones."""

import pytest
from reading_cases import DEVICE, make_run, write_small_run

from tb_memplugin import load
from tb_memplugin.export import Selection, describe_run
from tb_memplugin.schema import NO_SAMPLES, Run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    directory = tmp_path_factory.mktemp("runs")
    write_small_run(directory / "exp")
    return load(directory)["exp"]


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
    assert (
        described["steps"],
        described["first_step"],
        described["devices"],
        described["layers"],
    ) == (0, None, {}, [])
