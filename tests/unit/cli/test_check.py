"""`tb-memplugin check`: exit codes, lines, JSON, and which runs are compared."""

import dataclasses
import json
import pathlib
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest
from reading_cases import MIB, event_files, make_samples, write_records

from tb_memplugin.cli import main
from tb_memplugin.cli.check import BudgetCheck, github_annotations, junit_xml, markdown_table
from tb_memplugin.schema import MISSING


def write_peak(directory: pathlib.Path, peak: int, device: str = "GPU:0") -> None:
    write_records(directory, make_samples([0, 1], [peak // 2, peak], device=device))


@pytest.fixture
def logdir(tmp_path: pathlib.Path) -> pathlib.Path:
    for run, peak in (
        ("main/small", 100),
        ("main/large", 1000),
        ("pr/small", 100),
        ("pr/large", 1100),
    ):
        write_peak(tmp_path / run, peak * MIB)
    return tmp_path


Check: TypeAlias = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Check:
    def check(*arguments: object) -> tuple[int, list[str]]:
        code = main(["check", *map(str, arguments)])
        captured = capsys.readouterr()
        assert code != 2 or captured.out or captured.err.count("\n") == 1
        return code, (captured.out or captured.err).splitlines()

    return check


def test_within_and_violated(logdir: pathlib.Path, check: Check) -> None:
    assert check(logdir / "pr", "--max-peak", "1.2GiB") == (
        0,
        [
            "within budget: large, GPU:0: peak 1.1 GiB at step 1 (train), allowed 1.2 GiB",
            "within budget: small, GPU:0: peak 100 MiB at step 1 (train), allowed 1.2 GiB",
            "2 within budget",
        ],
    )
    assert check(logdir / "pr", "--max-peak", "1000 MiB") == (
        1,
        [
            "within budget: small, GPU:0: peak 100 MiB at step 1 (train), allowed 1000 MiB",
            "violated: large, GPU:0: peak 1.1 GiB at step 1 (train), allowed 1000 MiB",
            "1 within budget, 1 violated",
        ],
    )


def test_a_share_is_of_each_devices_capacity(tmp_path: pathlib.Path, check: Check) -> None:
    for name, capacity in (("large", 1000), ("small", 500), ("unknown", MISSING)):
        samples = make_samples([0, 1], [300, 400], device="GPU:0")
        figures = {
            "GPU:0": dataclasses.replace(
                samples.devices["GPU:0"], capacity_bytes=np.full(2, capacity)
            )
        }
        write_records(tmp_path / name, dataclasses.replace(samples, devices=figures))
    code, lines = check(tmp_path, "--max-peak", "60%")
    assert code == 1 and lines == [
        "within budget: large, GPU:0: peak 400 B at step 1 (train), allowed 600 B",
        "not checked: unknown, GPU:0: the capacity of the device is unknown, so is a share of it",
        "violated: small, GPU:0: peak 400 B at step 1 (train), allowed 300 B",
        "1 within budget, 1 violated, 1 not checked",
    ]


def test_runs_are_compared_with_the_baselines_run_of_their_name(
    logdir: pathlib.Path, check: Check
) -> None:
    compare = [logdir / "pr", "--baseline", logdir / "main", "--max-regression"]
    assert check(*compare, "10%")[0] == 0
    code, lines = check(*compare, "5%")
    assert code == 1 and lines[1] == (
        "violated: large, GPU:0: peak 1.1 GiB at step 1 (train), allowed 1.0 GiB (baseline 1000 "
        "MiB + 5%)"
    )
    assert check(*compare, "100MiB")[0] == 0 and check(*compare, "99MiB")[0] == 1


def test_a_single_run_is_the_baseline_of_every_run(logdir: pathlib.Path, check: Check) -> None:
    code, lines = check(
        logdir / "pr", "--baseline", logdir / "main" / "large", "--max-regression", "5%"
    )
    assert code == 1 and [line.partition(":")[0] for line in lines[:2]] == [
        "within budget",
        "violated",
    ]
    # AND a run's own directory can be checked, under its path
    run = logdir / "pr" / "large"
    code, lines = check(run, "--baseline", logdir / "main" / "large", "--max-regression", "10%")
    assert code == 0 and lines[0].startswith(f"within budget: {run}, GPU:0: peak")


def test_the_baseline_inside_the_log_directory_is_not_checked(
    logdir: pathlib.Path, check: Check
) -> None:
    arguments = [
        logdir,
        "--baseline",
        logdir / "main" / "small",
        "--max-regression",
        "0%",
        "--format",
        "json",
    ]
    code, lines = check(*arguments)
    names = [one["run"] for one in json.loads(lines[0])["checks"]]
    assert code == 1 and names == ["main/large", "pr/large", "pr/small"]
    code, lines = check(logdir / "main", "--baseline", logdir / "main", "--max-regression", "0%")
    assert code == 2 and "belongs to the baseline" in lines[0]


def test_a_new_run_is_said_and_passes_only_if_allowed(logdir: pathlib.Path, check: Check) -> None:
    write_peak(logdir / "pr" / "huge", 5000 * MIB)
    arguments = [logdir / "pr", "--baseline", logdir / "main", "--max-regression", "10%"]
    code, lines = check(*arguments)
    assert code == 2 and lines[2] == "not in baseline: huge, GPU:0: the baseline has no such run"
    assert check(*arguments, "--allow-new") == (0, lines)


def test_a_run_that_is_only_in_the_baseline_is_said(logdir: pathlib.Path, check: Check) -> None:
    write_peak(logdir / "main" / "gone", MIB)
    arguments = [logdir / "pr", "--baseline", logdir / "main", "--max-regression", "10%"]
    code, lines = check(*arguments, "--allow-new")
    assert code == 2 and lines[2].startswith("not checked: gone: in the baseline, but not under")
    assert check(*arguments, "--run", "large", "--run", "small")[0] == 0


def test_a_damaged_file_does_not_pass_in_silence(logdir: pathlib.Path, check: Check) -> None:
    (file,) = event_files(logdir / "pr" / "small")
    data = bytearray(file.read_bytes())
    data[-40] ^= 0xFF
    file.write_bytes(data)
    code, lines = check(logdir / "pr", "--max-peak", "2GiB")
    assert code == 2 and lines[1].startswith("not checked: small") and "not read: " in lines[1]


def write_workers(directory: pathlib.Path, workers: int, top: int) -> None:
    """A run of several workers with a GPU, and an evaluator with a CPU; the last worker has the
    highest peak."""
    for worker in range(workers):
        samples = make_samples([0, 1], [MIB, top if worker == workers - 1 else MIB], device="GPU:0")
        write_records(directory, samples, worker=f"w{worker:03}")
    write_records(
        directory,
        make_samples([0], [3 * MIB], phase="validation", device="CPU:0"),
        worker="evaluator",
    )


def test_a_device_is_that_of_each_worker_or_of_one(tmp_path: pathlib.Path, check: Check) -> None:
    write_workers(tmp_path / "new" / "exp", 3, 5 * MIB)
    write_workers(tmp_path / "old" / "exp", 3, 4 * MIB)
    limit = [tmp_path / "new", "--max-peak", "4MiB", "--device"]
    code, lines = check(*limit, "GPU:0")
    assert code == 1 and lines[-1] == "2 within budget, 1 violated"
    assert check(*limit, "w001/GPU:0")[1][-1] == "1 within budget"
    assert check(*limit, "CPU:0")[1][-1] == "1 within budget"
    code, lines = check(*limit, "GPU:1")
    assert (
        code == 2
        and ("no peak on GPU:1 in any run; available: ") in lines[0]
        and "w001/GPU:0" in lines[0]
    )
    # AND one that no worker has is said beside one that some have
    code, lines = check(*limit, "w000/GPU:0", "--device", "GPU:1")
    assert code == 2 and lines == [
        "within budget: exp, w000/GPU:0: peak 1.0 MiB at step 0 (train), allowed 4.0 MiB",
        "not checked: exp, GPU:1: no peak recorded",
        "1 within budget, 1 not checked",
    ]
    code, lines = check(
        tmp_path / "new",
        "--baseline",
        tmp_path / "old",
        "--max-regression",
        "5%",
        "--device",
        "GPU:0",
    )
    assert code == 1 and lines[-2].startswith("violated: exp, w002/GPU:0: peak 5.0 MiB")


def test_json_holds_every_check(logdir: pathlib.Path, check: Check) -> None:
    code, lines = check(
        logdir / "pr", "--max-peak", "1000MiB", "--format", "json", "--run", "large"
    )
    described = json.loads(lines[0])
    (found,) = described.pop("checks")
    assert code == 1 and described == {"format": 1, "of": "peak", "status": "violated"}
    assert found == dataclasses.asdict(
        BudgetCheck(
            *(
                "large",
                "GPU:0",
                "max_peak",
                "violated",
                "peak 1.1 GiB at step 1 (train), allowed 1000 MiB",
            ),
            *(1100 * MIB, 1, "train", 1000 * MIB),
        )
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "nothing to check: pass --max-peak, or --max-regression with --baseline"),
        (
            ["--max-peak", "ten"],
            "a limit, unless a share such as 5%, is a size with its unit, such as 24GiB, at most "
            "1 PiB",
        ),
        (["--max-peak", "ten"], "Received: 'ten'"),
        (["--max-peak", "0B"], "is a size"),
        (
            ["--max-peak", "1GiB", "--baseline", "x"],
            "--max-regression and --baseline belong together",
        ),
        (["--max-regression", "5%"], "--max-regression and --baseline belong together"),
        (
            ["--max-regression", "5", "--baseline", "x"],
            "5: name a unit, for example 300MiB or 12GiB",
        ),
        (["--max-regression=-5%", "--baseline", "x"], "Received: '-5%'"),
        (["--max-regression", "5%", "--baseline", "/none"], "no directory /none"),
        (["--max-peak", "1GiB", "--run", "other"], "no run 'other'; available: large, small"),
        (["--max-peak", "1GiB", "--device", "GPU:7"], "no peak on GPU:7 in any run"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(logdir, check, arguments, sentence) -> None:
    code, lines = check(logdir / "pr", *(text if text != "x" else logdir for text in arguments))
    assert code == 2 and len(lines) == 1 and sentence in lines[0]


def test_names_from_a_run_directory_cannot_steer_the_terminal(
    tmp_path: pathlib.Path, check: Check
) -> None:
    write_peak(tmp_path / "exp", MIB, device="GPU:\x1b[31m0")
    _, lines = check(tmp_path, "--max-peak", "1GiB")
    assert "\x1b" not in "".join(lines)


HOSTILE = 'a|b`c``<img src=x>&"%\n::error::x,y:@user\\| \ufffe\x1b]0;'
CHECKS = [
    BudgetCheck("small", "GPU:0", "max_peak", "within", "peak 1 MiB"),
    BudgetCheck(HOSTILE, HOSTILE, "max_regression", "violated", f"peak 5% {HOSTILE}"),
    BudgetCheck("gone", None, None, "unchecked", "no peak recorded"),
    BudgetCheck("fresh", "GPU:0", "max_regression", "new", "the baseline has no such run"),
]


def test_annotations_cannot_be_broken_out_of() -> None:
    lines = github_annotations(CHECKS, allow_new=False).split("\n")
    assert len(lines) == len(CHECKS) + 1 and lines[-1].startswith("1 within budget, 1 violated")
    levels = [re.fullmatch(r"::(error|notice) title=[^:,\n]*::.*", line) for line in lines[:-1]]
    assert all(levels)
    assert {line.split(" ")[0] for line in lines[:-1] if "small" in line} == {"::notice"}
    assert lines[-2].startswith("::error title=Memory violated%3A a|b")
    # AND decoded as GitHub does, the message is what was said
    message = lines[-2].split("::", 2)[2]
    assert message.replace("%25", "%").startswith(
        'peak 5% a|b`c``<img src=x>&"%�::error::x,y:@user'
    )
    accepted = github_annotations(CHECKS, allow_new=True).split("\n")
    assert next(line for line in accepted if "fresh" in line).startswith("::notice")


def test_junit_has_the_results_and_any_name() -> None:
    root = ElementTree.fromstring(junit_xml(CHECKS, allow_new=True))
    suites = {suite.get("name"): suite for suite in root}
    assert len(suites) == 4
    found = {}
    for name, suite in suites.items():
        (case,) = suite
        found[name] = (
            [child.tag for child in case],
            suite.get("failures"),
            suite.get("errors"),
            suite.get("skipped"),
        )
    assert found["small"] == (["system-out"], "0", "0", "0")
    assert found["gone"] == (["error"], "0", "1", "0") and found["fresh"] == (
        ["skipped"],
        "0",
        "0",
        "1",
    )
    hostile = HOSTILE.replace("\n", "�").replace("\ufffe", "�").replace("\x1b", "�")
    assert found[hostile] == (["failure"], "1", "0", "0")
    (case,) = suites[hostile]
    assert case.get("name") == f"{hostile}, max regression"
    assert case[0].get("message") == f"violated: peak 5% {hostile}"


def cells(line: str) -> list[str]:
    """A table's row, split as GitHub's Markdown does: a backslash escapes any punctuation after
    it."""
    parts = re.findall(r"(?:\\[^\w\s]|[^|])*", line.strip().strip("|"))
    return [part.strip() for part in parts if part]


def test_markdown_cells_stay_cells_and_code() -> None:
    text = markdown_table(CHECKS, allow_new=False)
    rows = text.split("\n")[2:-2]
    assert len(rows) == len(CHECKS)
    for row in rows:
        first, run, _, comparison = cells(row)
        assert first[0] in "✅❌"
        for cell in (run, comparison):
            fence = re.match("`+", cell)
            assert fence is not None and cell.endswith(fence[0])
            inside = cell[len(fence[0]) : -len(fence[0])]
            assert fence[0] not in inside
    assert cells(rows[0])[0] == "✅ within budget" and "❌ violated" in rows[-1]


@pytest.mark.parametrize("name", ["github", "junit", "markdown"])
def test_the_exit_code_does_not_depend_on_the_format(
    name: str, tmp_path: pathlib.Path, check: Check
) -> None:
    write_peak(tmp_path / "run", 1100 * MIB)
    # 1,100 MiB are 1,153,433,600 bytes: more than 1.1 GB, less than 1.1 GiB
    for limit, code, said in (("1.1GiB", 0, "peak 1,153,433,600 B"), ("1.1GB", 1, "violated")):
        status, lines = check(tmp_path, "--max-peak", limit, "--format", name)
        assert status == code and said in "\n".join(lines)
