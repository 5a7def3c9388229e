"""Every scenario of demo/scenarios trains for real; its figures are held against the arithmetic that it declares."""

import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "demo" / "scenarios"))

from run_all import load_scenarios, stored  # noqa: E402
from scenario import Scenario  # noqa: E402
from scenario.declare import judged  # noqa: E402
from scenario.page import page  # noqa: E402
from scenario.run import run  # noqa: E402

BEFORE = dict(os.environ)
SCENARIOS = load_scenarios()
AFTER = dict(os.environ)


def test_loading_the_scenarios_leaves_the_environment_alone() -> None:
    # A limit that one of them sets for itself would reach the trainings of all other tests.
    assert AFTER == BEFORE


# Up to nine trainings, each in a process of its own.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.name)
def test_the_measured_effect_is_the_expected_one(scenario: Scenario, tmp_path: pathlib.Path) -> None:
    result = run(scenario, tmp_path)
    on_cpu, figures = result["device"] == "CPU", result["runs"]
    deviations = []
    for advice in scenario.advice:
        verdict = judged(advice, figures, result["device"])
        assert verdict is not None or any(scenario.runs[name].gpus for name in scenario.runs.keys() - figures.keys())
        if verdict is None:
            continue
        if on_cpu and verdict != advice.verdict:
            deviations.append(f"{advice.words[0]}: {verdict}, not {advice.verdict}")
        for one in advice.made_on(result["device"]):
            before, after = figures[one.before], figures[one.after]
            if on_cpu:
                deviations += [text for item in one.expected for text in item.deviations(before, after)]
    assert not deviations, "\n".join(deviations)


def test_the_page_is_what_the_stored_figures_give() -> None:
    written = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
    assert written == page(SCENARIOS, stored())


def test_the_stored_figures_of_the_cpu_are_the_expected_ones() -> None:
    figures = stored()["CPU"]
    for scenario in SCENARIOS:
        runs = figures[scenario.name]["runs"]
        for advice in scenario.advice:
            assert judged(advice, runs, "CPU") in (advice.verdict, None), (scenario.name, advice.words)
            for one in advice.made_on("CPU"):
                if one.before in runs and one.after in runs:
                    assert not [
                        text for item in one.expected for text in item.deviations(runs[one.before], runs[one.after])
                    ]
