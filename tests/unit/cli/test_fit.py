"""Answers of `tb_memplugin.what_if` and of `tb-memplugin what-if` where no batch size passes, or
none is known to."""

import dataclasses
import json
import pathlib
from typing import Any

import pytest
import requests_cases
from reading_cases import MIB, make_oom

import tb_memplugin
from tb_memplugin.analysis import device_facts
from tb_memplugin.cli import main
from tb_memplugin.schema import OomStatus, Run


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("runs")
    requests_cases.write_run(directory / "traced")
    return directory


@pytest.fixture(scope="module")
def run(logdir: pathlib.Path) -> Run:
    return tb_memplugin.load(logdir)["traced"]


def line(text: str) -> str:
    (found,) = [one for one in text.splitlines() if one.startswith("largest batch size")]
    return found


def test_no_batch_size_passes(
    logdir: pathlib.Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = tb_memplugin.what_if(run, capacity="2MiB")  # less than the weights
    assert answer.largest_batch_size == 0 and answer.prediction.fits is False
    asked = ["what-if", str(logdir), "--run", "traced", "--capacity", "2MiB"]
    assert main(asked) == 1
    assert line(capsys.readouterr().out) == "largest batch size: none"
    assert main([*asked, "--format", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["largest_batch_size"] == 0


def test_layers_are_chosen_by_globs_separated_or_repeated(logdir, run, capsys) -> None:
    answer = tb_memplugin.what_if(run, freeze="net/conv2, */head")
    assert "of 2 layers are removed" in answer.prediction.assumptions[0]
    asked = ["what-if", str(logdir), "--run", "traced", "--format", "json"]
    printed = []
    for options in (
        ["--freeze", "net/conv2,*/head"],
        ["--freeze", "net/conv2", "--freeze", "*/head"],
    ):
        assert main([*asked, *options]) == 0
        printed.append(json.loads(capsys.readouterr().out))
    assert printed[0] == printed[1]
    assert tb_memplugin.what_if(run, freeze=["net/conv2", "*/head"]).prediction == answer.prediction
    assert printed[0]["peak_bytes"] == answer.prediction.peak_bytes


def test_the_command_prints_the_plan(
    logdir: pathlib.Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = tb_memplugin.plan(run, budget="20MiB")
    assert plan.fits is True and plan.accumulation == 4
    asked = ["plan", str(logdir), "--budget", "20MiB"]
    assert main(asked) == 0
    assert capsys.readouterr().out == f"traced\n{plan}\n"
    assert main([*asked, "--run", "traced", "--device", plan.device, "--format", "json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["run"], printed["peak_bytes"], printed["accumulation"]) == (
        "traced",
        plan.peak_bytes,
        4,
    )
    assert printed["options"][0]["kind"] == "none" and printed["options"][0]["fits"] is False


def test_a_budget_is_a_size_or_a_share_of_the_capacity(logdir, run, capsys) -> None:
    (capacity,) = {one.capacity_bytes for one in device_facts(run)}
    assert capacity is not None
    for share, size in (("60%", capacity * 6 // 10), ("0.1 %", capacity // 1000)):
        code = main(["plan", str(logdir), "--budget", share, "--format", "json"])
        printed = json.loads(capsys.readouterr().out)
        assert printed["budget_bytes"] == size == tb_memplugin.plan(run, budget=share).budget_bytes
        # AND the exit code says whether the plan fits
        assert code == (0 if printed["fits"] else 1) and printed["fits"] is (share == "60%")


@pytest.mark.parametrize(
    "arguments",
    [
        *(["plan", "--budget"], ["what-if", "--capacity"], ["check", "--max-peak"]),
        ["check", "--baseline", ".", "--max-regression"],
    ],
)
def test_a_number_without_a_unit_is_refused_with_an_example(arguments, logdir, capsys) -> None:
    for number in ("300", "1.5"):
        assert main([arguments[0], str(logdir), *arguments[1:], number]) == 2
        assert capsys.readouterr().err == (
            f"tb-memplugin: {number}: name a unit, for example 300MiB or 12GiB\n"
        )


NO_SIZE = "a budget is a size with its unit, such as 24GiB, at most 1 PiB. Received: "


@pytest.mark.parametrize(
    ("command", "options", "sentence"),
    [
        (
            "what-if",
            ["--unfreeze", "conv2"],
            "no layer with weights has a path like 'conv2'; the nearest is 'net/conv2'",
        ),
        *(
            ("plan", [f"--budget={size}"], f"{NO_SIZE}'{size}'")
            for size in ("much", "0B", "-3GiB", "2PiB")
        ),
        ("plan", ["--budget", "8GiB", "--run", "trace"], "no run 'trace'"),
        ("plan", ["--budget", "8GiB", "--device", "GPU:7"], "GPU:7"),
    ],
)
def test_what_is_no_condition_of_the_run_is_refused(
    command, options, sentence, logdir, capsys
) -> None:
    assert main([command, str(logdir), *options]) == 2
    assert sentence in capsys.readouterr().err


ELSEWHERE: list[tuple[dict[str, Any], str, str]] = [
    (
        {"phase": "validation", "batch_size": 512},
        "at step 19 (validation), within 256 MiB: 8.0 MiB requested.",
        "Choose a smaller batch than 512: validation_batch_size of fit, batch_size of evaluate, or "
        "the data set's own. One of 4, as in training, needs less than a training step.",
    ),
    (
        {"phase": "predict", "batch_size": 2},
        "at step 19 (predict), within 256 MiB: 8.0 MiB requested.",
        "Choose a smaller batch than 2: batch_size of predict, or the data set's own.",
    ),
    (
        {"phase": None, "during": "between_steps"},
        "between steps, after step 19, within 256 MiB: 8.0 MiB requested.",
        "Only its training steps are predicted.",
    ),
]


@pytest.mark.parametrize("status", ["failed", "failing"])
@pytest.mark.parametrize(("about", "place", "remedy"), ELSEWHERE)
def test_a_run_that_failed_outside_of_training_does_not_fit(
    about: dict[str, Any],
    place: str,
    remedy: str,
    status: OomStatus,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # GIVEN a run whose training steps fit and that ended as memory ran out elsewhere
    oom = dataclasses.replace(make_oom(19), capacity_bytes=256 * MIB, status=status, **about)
    requests_cases.write_run(tmp_path / "exp", oom=oom)
    run, what = tb_memplugin.load(tmp_path)["exp"], "ran out of memory"
    if status == "failing":
        what = "waited for memory as the process ended"
    # THEN at its capacity the run does not fit, and the failure and what helps come first
    for command in (["what-if"], ["what-if", "--capacity", "256MiB"], ["plan", "--budget", "100%"]):
        assert main([command[0], str(tmp_path), *command[1:]]) == 1
        said = capsys.readouterr().out.splitlines()[2].strip()
        assert said.startswith(f"The run {what} {place} Only its training steps are predicted.")
        assert said.endswith(remedy)
    answer = tb_memplugin.what_if(run)
    assert answer.fits is False and answer.peak_bytes and answer.enough is None
    assert answer.sentence == f"Does not fit: {said.rstrip('.')}"
    # AND at another capacity, or with other conditions, nothing is known of the whole run
    for other in ({"capacity": "1GiB"}, {"optimizer": "sgd"}, {"batch_size": 2}):
        assert tb_memplugin.what_if(run, **other).fits is None
    assert tb_memplugin.plan(run, budget="1GiB").fits is None
    assert tb_memplugin.what_if(run, capacity="2MiB").fits is False


def test_a_process_that_ended_as_a_step_waited_for_memory_does_not_fit(
    tmp_path: pathlib.Path,
) -> None:
    oom = dataclasses.replace(
        make_oom(19), status="failing", capacity_bytes=256 * MIB, batch_size=4, requested_bytes=None
    )
    requests_cases.write_run(tmp_path / "exp", oom=oom)
    run = tb_memplugin.load(tmp_path)["exp"]
    answer = tb_memplugin.what_if(run)
    assert answer.fits is False and answer.prediction.elsewhere is None
    assert answer.prediction.assumptions[0] == (
        "Recorded: batch size 4 waited for memory as the process ended in step 19, with 256 MiB."
    )
    assert not tb_memplugin.plan(run, budget="100%").options[0].fits


def test_a_failure_after_which_training_went_on_decides_nothing(tmp_path: pathlib.Path) -> None:
    oom = dataclasses.replace(
        make_oom(10),
        status="survived",
        phase="validation",
        batch_size=512,
        capacity_bytes=256 * MIB,
    )
    requests_cases.write_run(tmp_path / "exp", oom=oom)
    assert tb_memplugin.what_if(tb_memplugin.load(tmp_path)["exp"]).fits is True
