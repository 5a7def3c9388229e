"""The view Fit on a recorded training: figures are those of the terminal, and the code is what to paste."""

import json
import pathlib
import urllib.request
from typing import Any
from urllib.parse import urlencode

import harness
import pytest
from logdirs import address_of_logdir
from playwright.sync_api import FrameLocator, Page, expect

from tb_memplugin.schema.units import format_bytes

RUNS = pathlib.Path(__file__).parents[1] / "fixtures" / "plans"
RUN = "wide"


@pytest.fixture(scope="module")
def logdir() -> pathlib.Path:
    """Runs that `tests/fixtures/make_plans.py` recorded."""
    return RUNS


address = address_of_logdir("module")


def asked(budget: str) -> dict[str, Any]:
    """What ``plan --format json`` says."""
    result: dict[str, Any] = json.loads(
        harness.printed("plan", str(RUNS), "--run", RUN, "--budget", budget, "--format", "json")
    )
    return result


def open_view(page: Page, address: str, **choices: Any) -> FrameLocator:
    return harness.open_tab(page, address, urlencode({"view": "fit", "run": RUN, **choices}))


def check(frame: FrameLocator, plan: dict[str, Any]) -> None:
    """The figures of the view are those of the terminal's plan."""
    verdict = {True: "fits", False: "fails", None: "unknown"}[plan["fits"]]
    expect(frame.get_by_test_id("plan-verdict")).to_have_attribute("data-verdict", verdict)
    facts = frame.locator(".fit .prediction")
    expect(facts.locator("[data-figure='peak_bytes']")).to_contain_text(
        f"{format_bytes(plan['peak_bytes'])} {format_bytes(plan['low_bytes'])} to {format_bytes(plan['high_bytes'])}"
    )
    expect(facts.locator("[data-figure='recorded_peak_bytes']")).to_contain_text(
        format_bytes(plan["recorded_peak_bytes"])
    )
    rows = frame.get_by_test_id("plan-options").locator("[data-option]")
    shown = rows.evaluate_all("rows => rows.map(row => [row.dataset.option, Number(row.dataset.bytes)])")
    assert shown == [[option["kind"], option["peak_bytes"]] for option in plan["options"]]
    points = frame.get_by_test_id("plan-curve").locator("g[data-segments]")
    drawn = points.evaluate_all("all => all.map(one => [Number(one.dataset.bytes), Number(one.dataset.segments)])")
    assert sorted(drawn) == sorted([point["peak_bytes"], point["segments"]] for point in plan["curve"])
    listed = (
        frame.get_by_test_id("segments")
        .locator("li")
        .evaluate_all("all => all.map(one => [...one.querySelectorAll('button')].map(button => button.textContent))")
    )
    assert listed == plan["segments"]
    ledger = frame.get_by_test_id("plan-ledger").locator("tr[data-figure]")
    sides = ledger.evaluate_all("rows => rows.map(row => [row.dataset.figure, Number(row.dataset.to)])")
    (total,) = [size for name, size in sides if name == "total"]
    assert total == plan["peak_bytes"] == sum(size for name, size in sides if name != "total")
    if plan["fits"]:
        text = frame.locator(".fit .code code").inner_text() if plan["code"] else ""
        assert text == plan["code"]


def set_budget(frame: FrameLocator, text: str) -> None:
    field = frame.get_by_label("budget", exact=True)
    field.fill(text)
    field.press("Enter")
    harness.idle(frame)


@pytest.mark.reads
def test_figures_are_those_of_the_terminal(page: Page, address: str) -> None:
    plan = asked("84MiB")
    assert plan["segments"] and len(plan["curve"]) > 3
    frame = open_view(page, address, budget="84MiB")
    check(frame, plan)
    layers = sum(len(segment) for segment in plan["segments"])
    expect(frame.get_by_test_id("plan-verdict")).to_have_text(
        f"Fits into 84.0 MiB: recompute {len(plan['segments'])} segments with {layers} layers"
    )
    expect(frame.locator("[data-figure='extra_time']")).to_contain_text(f"+{100 * plan['extra_time']:.0f} % measured")
    # The plan is on the curve.
    marked = frame.get_by_test_id("plan-curve").locator("[data-figure='plan']")
    expect(marked).to_have_attribute("data-bytes", str(plan["peak_bytes"]))
    # Before is what the recorded steps measured.
    with urllib.request.urlopen(f"{address}/data/plugin/tb_memplugin/plan?run={RUN}&budget=84MiB") as response:
        measured = json.load(response)["measured"]
    expect(frame.locator("[data-testid='plan-ledger'] [data-figure='total']")).to_have_attribute(
        "data-from", str(measured["in_use_bytes"])
    )


def test_a_budget_changes_the_address_and_back_undoes_it(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"view": "what-if", "run": RUN}))
    frame.get_by_role("group", name="question").get_by_role("button", name="fit").click()
    harness.idle(frame)
    # The capacity is the default budget.
    expect(frame.get_by_test_id("plan-verdict")).to_contain_text("Fits as recorded")
    expect(frame.get_by_role("button", name="What if / Fit", exact=True)).to_have_attribute("aria-pressed", "true")
    set_budget(frame, "84MiB")
    check(frame, asked("84MiB"))
    assert "budget=84MiB" in harness.place(page)
    page.go_back()
    harness.idle(frame)
    expect(frame.get_by_test_id("plan-verdict")).to_contain_text("Fits as recorded")
    page.go_back()
    harness.idle(frame)
    expect(frame.get_by_test_id("verdict")).to_be_visible()


@pytest.mark.long
def test_a_report_has_the_plan_for_the_capacity(page: Page, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "report.html"
    harness.printed("report", str(RUNS), "-o", str(file), "--run", RUN)
    frame = harness.open_alone(page, f"{file.as_uri()}#{urlencode({'view': 'fit', 'run': RUN, 'budget': '84MiB'})}")
    expect(frame.get_by_test_id("plan-verdict")).to_contain_text("Fits as recorded")
    expect(frame.get_by_label("budget", exact=True)).to_be_disabled()
    expect(frame.get_by_text("A report contains the plan for the capacity only.")).to_be_visible()
