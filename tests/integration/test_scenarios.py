"""Every scenario of demo/scenarios trains for real; its figures are held against the arithmetic
that it declares."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "demo" / "scenarios"))

from run_all import load_scenarios, pages, stored  # noqa: E402
from scenario import Scenario  # noqa: E402
from scenario.crashes import PROFILER_CRASHED, crashed_in_profiler  # noqa: E402
from scenario.declare import judged  # noqa: E402
from scenario.run import run  # noqa: E402

BEFORE = dict(os.environ)
SCENARIOS = load_scenarios()
AFTER = dict(os.environ)


def test_loading_the_scenarios_leaves_the_environment_alone() -> None:
    # A limit that one of them sets for itself would reach the trainings of all other tests.
    assert AFTER == BEFORE


# Up to nine trainings, each in a process of its own.
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_the_measured_effect_is_the_expected_one(
    scenario: Scenario, tmp_path: pathlib.Path
) -> None:
    try:
        result = run(scenario, tmp_path)
    except RuntimeError as error:
        if PROFILER_CRASHED in str(error):
            pytest.xfail(
                "TensorFlow's profiler crashes processes that train together now and then, see "
                "docs/limits.md"
            )
        raise
    on_cpu, figures = result["device"] == "CPU", result["runs"]
    deviations = []
    for advice in scenario.advice:
        verdict = judged(advice, figures, result["device"])
        assert verdict is not None or any(
            scenario.runs[name].gpus for name in scenario.runs.keys() - figures.keys()
        )
        if verdict is None:
            continue
        if on_cpu and verdict != advice.verdict:
            deviations.append(f"{advice.words[0]}: {verdict}, not {advice.verdict}")
        for one in advice.made_on(result["device"]):
            before, after = figures[one.before], figures[one.after]
            if on_cpu:
                deviations += [
                    text for item in one.expected for text in item.deviations(before, after)
                ]
    assert not deviations, "\n".join(deviations)


@pytest.mark.parametrize(("file", "is_the_profilers"), [("profiler_v2", True), ("another", False)])
def test_a_crash_of_tensorflows_profiler_is_told_from_others(
    tmp_path, file, is_the_profilers
) -> None:
    # GIVEN a process that dies in a function `stop`, while another thread is in that of the other
    # file
    for name in ("profiler_v2", "another"):
        (tmp_path / f"{name}.py").write_text("def stop(end):\n    end()\n", encoding="utf-8")
    code = (
        "import os, threading, time, profiler_v2, another\n"
        f"other = {'another' if is_the_profilers else 'profiler_v2'}\n"
        "threading.Thread(target=other.stop, args=[lambda: time.sleep(9)], daemon=True).start()\n"
        f"{file}.stop(os.abort)"
    )
    command = [sys.executable, "-X", "faulthandler", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGABRT
    assert crashed_in_profiler(done.stderr) == is_the_profilers


def test_the_pages_are_what_the_stored_figures_give() -> None:
    expected = pages(SCENARIOS, stored())
    assert len(expected) == 1 + len(SCENARIOS)
    assert {path: path.read_text(encoding="utf-8") for path in expected} == expected
    assert set((ROOT / "docs" / "advice").glob("*.md")) < expected.keys()


def test_the_stored_figures_of_the_cpu_are_the_expected_ones() -> None:
    figures = stored()["CPU"]
    for scenario in SCENARIOS:
        runs = figures[scenario.name]["runs"]
        for advice in scenario.advice:
            assert judged(advice, runs, "CPU") in (advice.verdict, None), (
                scenario.name,
                advice.words,
            )
            for one in advice.made_on("CPU"):
                if one.before in runs and one.after in runs:
                    assert not [
                        text
                        for item in one.expected
                        for text in item.deviations(runs[one.before], runs[one.after])
                    ]
