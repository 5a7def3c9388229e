"""The scripts of action.yml, run as GitHub runs them."""

import os
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest
import requests_cases
from reading_cases import MIB, make_samples, write_records

ROOT = pathlib.Path(__file__).resolve().parents[2]
ACTION = ROOT / "action.yml"
DEFAULTS = {
    "LOGDIR": "runs/pr",
    "MAX_PEAK": "10GiB",
    "BASELINE": "runs/main",
    "MAX_REGRESSION": "5%",
    "OF": "peak",
}

pytestmark = pytest.mark.skipif(not ACTION.exists(), reason="a source distribution has no action")


def script(name: str) -> str:
    """What a step runs, one line or a block of lines."""
    step = re.search(
        rf"    - name: {name}\n(?:      .*\n)*?      run: "
        r"(?:\|\n((?: "
        rf"{{8}}.*\n)+)|(.*)\n)",
        ACTION.read_text(),
    )
    assert step is not None
    return textwrap.dedent(step[1] or step[2])


def record(directory: pathlib.Path, mib: int) -> None:
    write_records(directory, make_samples([0], [mib * MIB], device="GPU:0"))


def run(name: str, directory: pathlib.Path, **inputs: str) -> "subprocess.CompletedProcess[str]":
    command = directory / "bin" / "tb-memplugin"
    command.parent.mkdir()
    command.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -m tb_memplugin "$@"\n', encoding="utf-8"
    )
    command.chmod(0o755)
    environment = {
        **os.environ,
        **inputs,
        "GITHUB_STEP_SUMMARY": str(directory / "summary.md"),
        "PYTHONPATH": str(ROOT),
    }
    environment["PATH"] = f"{command.parent}:{environment['PATH']}"
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script(name)],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("baseline", "peak", "code", "annotations"),
    [
        (None, 1000, 0, ["::notice"]),
        (1000, 1049, 0, ["::notice", "::notice"]),
        (1000, 1051, 1, ["::notice", "::error"]),
        (None, 11_000, 1, ["::error"]),
    ],
)
def test_peaks_are_compared_with_the_budget_and_the_baseline(
    tmp_path: pathlib.Path, baseline: int | None, peak: int, code: int, annotations: list[str]
) -> None:
    if baseline is not None:
        record(tmp_path / "runs" / "main" / "small", baseline)
    record(tmp_path / "runs" / "pr" / "small", peak)
    done = run("Check the peaks", tmp_path, **DEFAULTS)
    assert (done.returncode, done.stderr) == (code, "")
    assert [
        line.split(" ")[0] for line in done.stdout.splitlines() if line.startswith("::")
    ] == annotations
    assert (
        (tmp_path / "summary.md")
        .read_text(encoding="utf-8")
        .startswith("| | run | device | comparison |")
    )


def test_the_bytes_live_at_once_are_compared_if_wanted(tmp_path: pathlib.Path) -> None:
    for name in ("pr", "main"):
        requests_cases.write_run(tmp_path / "runs" / name / "traced")
    done = run("Check the peaks", tmp_path, **{**DEFAULTS, "MAX_PEAK": "", "OF": "live"})
    assert done.returncode == 0 and "live at once" in done.stdout and "(baseline " in done.stdout


def test_without_a_budget_the_first_run_has_nothing_to_be_compared_with(
    tmp_path: pathlib.Path,
) -> None:
    record(tmp_path / "runs" / "pr" / "small", 1000)
    done = run("Check the peaks", tmp_path, **{**DEFAULTS, "MAX_PEAK": ""})
    assert (done.returncode, done.stdout) == (
        0,
        "::notice::No baseline yet, nothing to compare with.\n",
    )


def test_an_input_is_never_run(tmp_path: pathlib.Path) -> None:
    hostile = "runs; touch stolen; $(touch stolen)`touch stolen`"
    record(tmp_path / hostile / "small", 1000)
    done = run("Check the peaks", tmp_path, **{**DEFAULTS, "LOGDIR": hostile})
    assert done.returncode == 0 and "::notice" in done.stdout
    assert not list(tmp_path.rglob("stolen"))


def test_the_report_is_written(tmp_path: pathlib.Path) -> None:
    record(tmp_path / "runs" / "pr" / "small", 1000)
    done = run("Write the report", tmp_path, LOGDIR="runs/pr", REPORT="memory.html")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "memory.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_the_documented_workflow_gives_inputs_that_the_action_has() -> None:
    text = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    step = re.search(r"uses: OWNER/tb_memplugin@v(\S+) .*\n +with:\n((?: {10}\S.*\n)+)", text)
    assert step is not None
    declared = re.search(r"inputs:\n((?:  .*\n)+)", ACTION.read_text(encoding="utf-8"))
    assert declared is not None
    inputs = re.findall(r"^  ([a-z-]+):$", declared[1], re.MULTILINE)
    assert sorted(re.findall(r"^ +([a-z-]+):", step[2], re.MULTILINE)) == sorted(inputs)
    # AND the version is the package's
    assert f'"{step[1]}"' in (ROOT / "tb_memplugin" / "version.py").read_text(encoding="utf-8")
