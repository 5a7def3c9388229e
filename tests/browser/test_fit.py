"""The view Fit on a recorded training: figures are those of the terminal, and the code is what to paste."""

import json
import pathlib
import urllib.request
from typing import Any
from urllib.parse import urlencode

import harness
import pytest
from child import run_child
from logdirs import address_of_logdir
from playwright.sync_api import Browser, FrameLocator, Page, expect

from tb_memplugin.model.units import format_bytes

RUNS = pathlib.Path(__file__).parents[1] / "fixtures" / "plans"
RUN = "wide"
INTEGRATION = pathlib.Path(__file__).parents[1] / "integration"
FOLLOWING = """
sys.path.insert(0, sys.argv[3])
import tb_memplugin
from plan_child import batch, compiled, wide
model = wide()
x, y = batch(model, "wide", 4)
model = compiled(tb_memplugin.remat(model, [(names[0], names[-1]) for names in json.loads(sys.argv[2])]))
with tb_memplugin.MemoryRecorder(sys.argv[1], model=model) as recorder:
    for step in range(6):
        with recorder.step(step):
            model.train_on_batch(x, y)
answer(0)
"""


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


def tagged(frame: FrameLocator, tag: str) -> set[str]:
    """Paths of the layers in the layer table that have a tag."""
    expect(frame.locator("tr[data-layer] .tag", has_text=tag).first).to_be_visible()
    rows = frame.locator("tr[data-layer]").evaluate_all(
        "rows => rows.map(row => [row.dataset.layer, row.querySelector('.tag')?.textContent.trim() ?? ''])"
    )
    assert rows
    return {path for path, given in rows if given == tag}


def test_the_layer_table_marks_the_layers_of_the_plan(page: Page, address: str) -> None:
    plan = asked("84MiB")
    frame = open_view(page, address, budget="84MiB")
    frame.get_by_role("button", name="Show in the layer table").click()
    harness.idle(frame)
    planned = {f"{plan['model']}/{name}" for segment in plan["segments"] for name in segment}
    assert tagged(frame, "recomputed by plan") == planned
    # A budget within which nothing fits has no plan, and neither has a table without a budget.
    for choices in ({"budget": "1MiB"}, {}):
        frame = harness.open_tab(page, address, urlencode({"view": "layers", "run": RUN, **choices}))
        expect(frame.locator("tr[data-layer]").first).to_be_visible()
        expect(frame.locator("tr[data-layer] .tag")).to_have_count(0)


@pytest.mark.long
def test_the_layer_table_marks_what_a_training_recomputes(page: Page, tmp_path: pathlib.Path) -> None:
    segments = asked("84MiB")["segments"]
    run_child(FOLLOWING, str(tmp_path / "followed"), json.dumps(segments), str(INTEGRATION))
    with harness.viewer(str(tmp_path)) as address:
        frame = harness.open_tab(page, address, urlencode({"view": "layers", "run": "followed"}))
        assert tagged(frame, "recomputed") == {f"net/{name}" for segment in segments for name in segment}
        page.goto("about:blank")


@pytest.mark.reads
def test_nothing_fits_says_what_is_the_smallest_and_what_it_holds(page: Page, address: str) -> None:
    plan = asked("1MiB")
    frame = open_view(page, address, budget="1MiB")
    check(frame, plan)
    expect(frame.get_by_test_id("plan-verdict")).to_have_text("None of the simulated changes fits into 1.0 MiB")
    assert plan["sentences"][0].startswith("The smallest peak that was found is ")
    expect(frame.get_by_test_id("plan-sentences").locator("li").first).to_have_text(plan["sentences"][0])
    expect(frame.locator(".fit .code")).to_have_count(0)


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


def test_a_point_of_the_curve_sets_the_budget(page: Page, address: str) -> None:
    frame = open_view(page, address)
    curve = frame.get_by_test_id("plan-curve")
    point = curve.locator("[data-figure='point'][data-segments='4']").last
    before = asked("1TiB")
    (chosen,) = {
        one["high_bytes"] for one in before["curve"] if str(one["peak_bytes"]) == point.get_attribute("data-bytes")
    } & {one["high_bytes"] for one in before["curve"] if one["segments"] == 4}
    point.focus()
    page.keyboard.press("Enter")
    field = frame.get_by_label("budget", exact=True)
    expect(field).to_have_value(f"{chosen}B")
    harness.idle(frame)
    check(frame, asked(field.input_value()))
    expect(curve.locator("[data-figure='plan']")).to_have_count(1)


def test_the_code_is_copied_and_a_layer_opens_its_page(page: Page, address: str) -> None:
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    frame = open_view(page, address, budget="84MiB")
    frame.get_by_role("button", name="Copy").click()
    expect(frame.get_by_role("button", name="Copied")).to_be_visible()
    plan = asked("84MiB")
    assert page.evaluate("() => navigator.clipboard.readText()") == plan["code"]
    page.context.clear_permissions()
    name = plan["segments"][0][0]
    frame.get_by_test_id("segments").get_by_role("button", name=name, exact=True).click()
    harness.idle(frame)
    expect(frame.get_by_text(f"{plan['model']}/{name} · ")).to_be_visible()


def test_the_view_is_busy_until_the_plan_is_there_and_a_wrong_budget_is_refused(browser: Browser, address: str) -> None:
    # A page of its own: Chromium logs every answer that is an error.
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    held = harness.Held(page, "**/plan?*")
    frame = open_view(page, address)
    held.hold()
    field = frame.get_by_label("budget", exact=True)
    field.fill("84MiB")
    field.press("Enter")
    expect(frame.get_by_test_id("fit")).to_have_attribute("aria-busy", "true")
    expect(frame.get_by_test_id("plan-verdict")).to_contain_text("Fits as recorded")
    held.let_through()
    expect(frame.get_by_test_id("fit")).to_have_attribute("aria-busy", "false")
    set_budget(frame, "much")
    expect(frame.get_by_role("alert")).to_contain_text("a budget is a size with its unit, such as 24GiB")
    expect(frame.get_by_test_id("plan-verdict")).to_have_count(0)
    page.close()


@pytest.mark.long
def test_a_report_has_the_plan_for_the_capacity(page: Page, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "report.html"
    harness.printed("report", str(RUNS), "-o", str(file), "--run", RUN)
    frame = harness.open_alone(page, f"{file.as_uri()}#{urlencode({'view': 'fit', 'run': RUN, 'budget': '84MiB'})}")
    expect(frame.get_by_test_id("plan-verdict")).to_contain_text("Fits as recorded")
    expect(frame.get_by_label("budget", exact=True)).to_be_disabled()
    expect(frame.get_by_text("A report contains the plan for the capacity only.")).to_be_visible()
