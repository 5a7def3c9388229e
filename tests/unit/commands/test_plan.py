"""Answers of `tb_memplugin.plan` and of `tb-memplugin plan`."""

import json
import pathlib

import pytest
import requests_cases

import tb_memplugin
from tb_memplugin.cli import main
from tb_memplugin.model import Run


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("runs")
    requests_cases.write_run(directory / "traced")
    return directory


@pytest.fixture(scope="module")
def run(logdir: pathlib.Path) -> Run:
    return tb_memplugin.load(logdir)["traced"]


def test_the_command_prints_the_plan(logdir: pathlib.Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tb_memplugin.plan(run, budget="20MiB")
    assert plan.fits is True and plan.accumulation == 4
    asked = ["plan", str(logdir), "--budget", "20MiB"]
    assert main(asked) == 0
    assert capsys.readouterr().out == f"traced\n{plan}\n"
    assert main([*asked, "--run", "traced", "--device", plan.device, "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["run"], printed["peak_bytes"], printed["accumulation"]) == ("traced", plan.peak_bytes, 4)
    assert printed["options"][0]["kind"] == "none" and printed["options"][0]["fits"] is False


@pytest.mark.parametrize("budget", ["much", "0", "-3GiB", "2PiB"])
def test_a_budget_is_a_size(logdir: pathlib.Path, budget: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(logdir), f"--budget={budget}"]) == 2
    assert f"a budget is a size such as 24GiB, at most 1 PiB. Received: '{budget}'" in capsys.readouterr().err


def test_unknown_runs_and_devices_are_refused(logdir: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option, sentence in ((["--run", "trace"], "no run 'trace'"), (["--device", "GPU:7"], "GPU:7")):
        assert main(["plan", str(logdir), "--budget", "8GiB", *option]) == 2
        assert sentence in capsys.readouterr().err
