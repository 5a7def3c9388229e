"""What `plan` takes: a run without data, or a model with data."""

import pathlib
import subprocess
import sys

import pytest
import requests_cases

import tb_memplugin
from tb_memplugin.errors import RecordingError, RequestError


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("runs")
    requests_cases.write_run(directory / "traced")
    return directory


def test_a_run_is_planned_for_its_own_or_another_batch_size(logdir: pathlib.Path) -> None:
    run = tb_memplugin.load(logdir)["traced"]
    own, other = tb_memplugin.plan(run, budget="1TiB"), tb_memplugin.plan(run, budget="1TiB", batch_size=16)
    assert (own.batch_size, other.batch_size) == (4, 16)
    assert own.peak_bytes is not None and other.peak_bytes == tb_memplugin.what_if(run, batch_size=16).peak_bytes
    assert other.peak_bytes is not None and other.peak_bytes > own.peak_bytes
    with pytest.raises(RequestError, match="a batch size is an integer"):
        tb_memplugin.plan(run, budget="1TiB", batch_size=0)


def test_data_belongs_to_a_model(logdir: pathlib.Path) -> None:
    run = tb_memplugin.load(logdir)["traced"]
    with pytest.raises(RequestError, match="A run needs no data"):
        tb_memplugin.plan(run, [1, 2], budget="8GiB")
    with pytest.raises(RequestError, match="data is missing"):
        tb_memplugin.plan(object(), budget="8GiB")


def test_nothing_is_probed_while_recording_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TB_MEMPLUGIN", "0")
    with pytest.raises(RecordingError, match="TB_MEMPLUGIN=0"):
        tb_memplugin.plan(object(), [1], budget="8GiB")


def test_a_plan_for_a_run_imports_no_tensorflow(logdir: pathlib.Path) -> None:
    code = (
        "import sys, tb_memplugin; (run,) = tb_memplugin.load(sys.argv[1]).values();"
        "tb_memplugin.plan(run, budget='8GiB');"
        "print([name for name in ('tensorflow', 'keras') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(logdir)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
