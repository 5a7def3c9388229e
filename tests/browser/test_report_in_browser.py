"""A report opened from disk: the tab's views with the same values, alone in the world."""

import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import harness
import pytest
import sample_allocator
import sample_runs
from conftest import VIOLATIONS
from page_views import OF_STEPS
from playwright.sync_api import Browser, Page, expect
from test_allocator import largest_free, listed
from test_answers import expected, shown
from test_values import by_group, by_side, figures

from tb_memplugin.model.units import format_bytes

RUNS = ("frozen", "died_fragmentation", "restarted", "activations_only", "roomy", sample_runs.HOSTILE_RUN)
Open = Callable[..., Page]


@pytest.fixture(scope="session")
def report(logdir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Address of a report on six runs, as the command line writes it."""
    file = tmp_path_factory.mktemp("report") / "memory of six runs.html"
    command = [sys.executable, "-m", "tb_memplugin", "report", str(logdir), "-o", str(file)]
    subprocess.run([*command, *(f"--run={run}" for run in RUNS)], check=True, capture_output=True, timeout=120)
    return file.as_uri()


@pytest.fixture
def open_report(browser: Browser, report: str) -> Iterator[Open]:
    """Opens it at a place; fails its test if anything was asked for, logged as an error or broke the policy."""
    contexts = []
    errors: list[str] = []
    requests: list[str] = []

    def open_at(place: dict[str, Any], scheme: str = "light") -> Page:
        context = browser.new_context(
            viewport={"width": 1440, "height": 900}, color_scheme=scheme, offline=True, accept_downloads=True
        )
        contexts.append(context)
        context.add_init_script(VIOLATIONS)
        page = context.new_page()
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("dialog", lambda dialog: errors.append(f"a name was run as a script: {dialog.message}"))
        page.on("request", lambda request: requests.append(request.url.partition("#")[0]))
        page.goto(f"{report}#{urlencode(place)}")
        harness.idle(page)  # type: ignore[arg-type]
        return page

    yield open_at
    violations = [text for one in contexts for page in one.pages for text in page.evaluate("() => window.__violations")]
    for context in contexts:
        context.close()
    assert errors == [] and violations == []
    assert {url for url in requests if not url.startswith(("data:", "blob:"))} == {report}


@pytest.mark.parametrize("run", ["frozen", "roomy", sample_runs.HOSTILE_RUN])
def test_values_are_those_of_inspect(open_report: Open, inspected: dict[str, Any], run: str) -> None:
    for snapshot in inspected[run]["snapshots"][-2:]:
        at = {"run": run, "device": snapshot["device"], "step": snapshot["step"]}
        page: Any = open_report(at)
        expected = by_group(snapshot["ledger"])
        shown = figures(page, "breakdown")
        assert {name: shown.get(name, 0) for name in expected} == expected
        assert shown["peak_bytes"] == snapshot["in_use_bytes"]
        shown = figures(open_report({"view": "frozen", **at}), "sides")  # type: ignore[arg-type]
        expected = by_side(snapshot["ledger"])
        assert {name: shown.get(name, 0) for name in expected} == expected
        page = open_report({"view": "layers", **at})
        assert page.get_by_test_id("layers-step").get_attribute("data-step") == str(snapshot["step"])
        rows = page.locator("[data-testid='layers'] tr[data-layer]")
        held = rows.evaluate_all("rows => rows.map(row => +row.querySelector('[data-figure=total]').dataset.bytes)")
        assert sum(held) == snapshot["in_use_bytes"]


def test_the_memory_map_and_what_would_fit_into_it(open_report: Open, inspected: dict[str, Any]) -> None:
    snapshot = inspected["frozen"]["snapshots"][-1]
    page: Any = open_report({"view": "fragmentation", "run": "frozen", "step": snapshot["step"]})
    assert figures(page, "pool")["pool_bytes"] == snapshot["pool_bytes"]
    taken = sample_allocator.map_of(sample_runs.FROZEN, snapshot["step"])
    expect(page.get_by_test_id("map")).to_have_attribute("data-chunks", str(len(taken)))
    shown = listed(page, "map-legend")
    assert sum(shown.values()) - shown["free"] == snapshot["in_use_bytes"]
    # AND the page computes what would fit, for any size: neither the pool nor a region grows beyond the capacity
    largest = largest_free(taken)
    unreserved = snapshot["capacity_bytes"] - snapshot["pool_bytes"]
    for mib in ("0.001", "3.5", "99999"):
        page.get_by_role("spinbutton", name="Would a tensor of").fill(mib)
        fits = float(mib) * sample_runs.MIB <= max(largest, unreserved)
        expect(page.get_by_test_id("fits")).to_have_attribute("data-fits", str(fits).lower())
        if not fits:
            said = page.get_by_test_id("fits").inner_text().replace("\u00a0", " ")
            assert f"the largest free chunk is {format_bytes(largest)}" in said


@pytest.mark.parametrize("run", RUNS)
def test_it_opens_with_the_four_answers(open_report: Open, inspected: dict[str, Any], run: str) -> None:
    page: Any = open_report({"run": run})
    tiles = shown(page)
    assert [(tile["sentence"], tile["status"]) for tile in tiles] == [
        (answer["sentence"], answer["status"]) for answer in expected(inspected, run)
    ]
    assert max(tile["bottom"] for tile in tiles) < 300


def test_post_mortems_and_recorded_activations(open_report: Open, inspected: dict[str, Any]) -> None:
    (death,) = inspected["died_fragmentation"]["oom"]
    page: Any = open_report({"view": "oom", "run": "died_fragmentation"})
    expect(page.get_by_test_id("oom")).to_contain_text("fragmentation")
    assert sum(figures(page, "oom-layers").values()) == sum(row["bytes"] for row in death["ledger"])
    page = open_report({"run": "activations_only"})
    recorded = inspected["activations_only"]["activations"]
    assert figures(page, "activations")["total"] == sum(layer["last_bytes"] for layer in recorded)


@pytest.mark.parametrize("view", OF_STEPS)
def test_every_view_draws_without_a_fault(open_report: Open, view: str) -> None:
    page = open_report({"view": view, "run": "frozen", "layer": "vgg/block5_conv1"})
    assert page.locator(".fault, .skeleton").count() == 0
    assert page.title().startswith("Memory of ") and "frozen" in page.title()


def test_it_says_what_is_not_in_it(
    page: Page, logdir: pathlib.Path, tmp_path: pathlib.Path, inspected: dict[str, Any]
) -> None:
    # GIVEN a report for which no run was named
    file = tmp_path / "two.html"
    command = [sys.executable, "-m", "tb_memplugin", "report", str(logdir), "-o", str(file)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    page.goto(file.as_uri())
    harness.idle(page)  # type: ignore[arg-type]
    notices = page.get_by_test_id("notices")
    expect(notices).to_contain_text("on data not in this report")
    notices.locator("summary").first.click()
    expect(notices).to_contain_text("are not in this report: without --run it contains the newest 8 runs")
    contained = set(page.locator(".run .name").all_inner_texts())
    others = set(inspected) - contained
    assert len(contained) == 8 and len(others) > 1
    said = notices.inner_text()
    assert all(name in said for name in others)


def test_its_state_is_in_the_address_and_a_zoom_shows_what_there_is(open_report: Open) -> None:
    page = open_report({"run": "frozen", "step": 41, "zoom": "30-60"})
    expect(page.get_by_test_id("step")).to_have_attribute("data-step", "41")
    assert page.locator(".fault").count() == 0
    page.get_by_role("button", name="Layers", exact=True).click()
    page.wait_for_function("() => location.hash.includes('view=layers') && location.hash.includes('step=41')")


def test_one_attempt_of_a_restarted_training(open_report: Open) -> None:
    page = open_report({"run": "restarted"})
    attempt = page.get_by_label("attempt")
    attempt.select_option(index=1)
    harness.idle(page)  # type: ignore[arg-type]
    assert page.locator(".fault").count() == 0
    expect(page.get_by_test_id("step")).to_be_visible()


def test_names_from_strangers_are_text(open_report: Open) -> None:
    page = open_report({"run": sample_runs.HOSTILE_RUN})
    expect(page.locator(".run.primary .name")).to_have_text(sample_runs.HOSTILE_RUN)
    expect(page.locator(".owners")).to_contain_text(sample_runs.HOSTILE_LAYER)
    assert page.locator("img, body script:not([type='module'])").count() == 0


def test_a_name_that_ends_a_script_is_text(browser: Browser, tmp_path: pathlib.Path) -> None:
    # GIVEN a run whose directories' names, with the slashes between them, are markup
    name = "x</script><script>document.title = 'taken'</script><!--<script>"
    sample_runs.write_run(tmp_path / "runs" / name, sample_runs.HOSTILE)
    command = [sys.executable, "-m", "tb_memplugin", "report", str(tmp_path / "runs"), "-o", str(tmp_path / "r.html")]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    context = browser.new_context(offline=True)
    page = context.new_page()
    page.goto((tmp_path / "r.html").as_uri())
    harness.idle(page)  # type: ignore[arg-type]
    expect(page.locator(".run.primary .name")).to_have_text(name)
    assert page.title() == f"Memory of {name}"
    context.close()


def test_dark_mode_is_the_systems(open_report: Open) -> None:
    page = open_report({"run": "frozen"}, scheme="dark")
    ground = "body => getComputedStyle(body).backgroundColor.match(/\\d+/g).map(Number)"
    expect(page.locator(":root")).to_have_attribute("data-scheme", "dark")
    assert max(page.locator("body").evaluate(ground)) < 80
    page.emulate_media(color_scheme="light")
    expect(page.locator(":root")).to_have_attribute("data-scheme", "light")
    assert min(page.locator("body").evaluate(ground)) > 200


def test_nothing_is_asked_for_again(open_report: Open) -> None:
    page = open_report({"run": "frozen"})
    asked = "() => performance.getEntriesByType('resource').length"
    before = page.evaluate(asked)
    page.clock.install()
    page.clock.run_for(20_000)
    harness.idle(page)  # type: ignore[arg-type]
    assert page.evaluate(asked) == before


def test_downloads_work_from_disk(open_report: Open) -> None:
    page = open_report({"run": "frozen"})
    for name in ("CSV", "PNG"):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=name).or_(page.get_by_role("link", name=name)).first.click()
        assert pathlib.Path(waiting.value.path()).stat().st_size > 100
