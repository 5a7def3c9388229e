"""A report opened from disk: the tab's views with the same values, alone in the world."""

import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import harness
import pytest
import sample_runs
from page_views import OF_STEPS
from playwright.sync_api import Page, Request, expect
from test_answers import expected, shown

RUNS = (
    "frozen",
    "died_fragmentation",
    "restarted",
    "activations_only",
    "roomy",
    "requests",
    sample_runs.HOSTILE_RUN,
)
Open = Callable[..., Page]


@pytest.fixture(scope="session")
def report(logdir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Address of a report on seven runs, as the command line writes it."""
    file = tmp_path_factory.mktemp("report") / "memory of seven runs.html"
    harness.printed("report", str(logdir), "-o", str(file), *(f"--run={run}" for run in RUNS))
    return file.as_uri()


@pytest.fixture
def open_report(page: Page, report: str) -> Iterator[Open]:
    """Opens it at a place, offline; fails its test if anything was asked for."""
    asked: set[str] = set()

    def on_request(request: Request) -> None:
        asked.add(request.url.partition("#")[0])

    def open_at(place: dict[str, Any]) -> Page:
        harness.open_alone(page, f"{report}#{urlencode(place)}")
        return page

    page.context.set_offline(True)
    page.on("request", on_request)
    yield open_at
    page.remove_listener("request", on_request)
    page.context.set_offline(False)
    assert {url for url in asked if not url.startswith(("data:", "blob:"))} <= {report}


@pytest.mark.reads
@pytest.mark.parametrize("run", RUNS)
def test_it_opens_with_the_four_answers(
    open_report: Open, inspected: dict[str, Any], run: str
) -> None:
    page: Any = open_report({"run": run})
    tiles = shown(page)
    assert [(tile["sentence"], tile["status"]) for tile in tiles] == [
        (answer["sentence"], answer["status"]) for answer in expected(inspected, run)
    ]
    assert max(tile["bottom"] for tile in tiles) < 300


@pytest.mark.reads
@pytest.mark.parametrize("view", ["overview", "layers", "compare", "what-if"])
def test_a_printed_view_is_whole_and_without_the_list_of_runs(open_report: Open, view: str) -> None:
    page: Any = open_report({"run": "frozen", "view": view, "other": "roomy"})
    page.emulate_media(media="print")
    try:
        tall = page.locator("main").evaluate(
            "main => [main.clientHeight >= main.scrollHeight, main.clientHeight]"
        )
        assert tall[0] and tall[1] > 250, view
        assert not page.locator(".runs").is_visible() and not page.locator(".bar").is_visible()
        for shown in (
            page.get_by_test_id("answers"),
            page.locator("main :is(h2, canvas, table):visible").first,
        ):
            assert shown.is_visible()
        for table in page.locator(".layer-scroll").all():
            assert table.evaluate("table => table.scrollHeight <= table.clientHeight")
        assert len(page.pdf()) > 20_000
    finally:
        page.emulate_media(media="screen")


PAGES = """(main) =>
      [...document.querySelectorAll(".pages > section")].map((page) => ({
        title: page.querySelector("h1").textContent,
        about: page.querySelector("p").textContent,
        text: page.innerText,
        breaks: getComputedStyle(page).breakBefore,
        wider: [page, ...page.querySelectorAll("main, .body, .picture, .panel, .unrolled, table")]
          .filter((one) => one.scrollWidth > one.clientWidth + 1)
          .map((one) => one.className || one.tagName),
        cut: [...page.querySelectorAll(".unrolled")].filter(
          (one) => one.scrollHeight > one.clientHeight + 1,
        ).length,
        figures: page.querySelectorAll("canvas, svg[role], table").length,
        blank: [...page.querySelectorAll("canvas")]
          .filter(({ width, height }) => width * height > 0)
          .filter(
            (canvas) =>
              !canvas
                .getContext("2d")
                .getImageData(0, 0, canvas.width, canvas.height)
                .data.some(Boolean),
          ).length,
        rows: Object.fromEntries(
          [...page.querySelectorAll("table[aria-rowcount]")].map((table) => [
            table.dataset.testid,
            [table.ariaRowCount - 1, table.tBodies[0].rows.length, table.tBodies[0].innerText],
          ]),
        ),
      }))"""
OWN_WORDS = {
    "Overview": "measured peak",
    "Layers": "layer\ttotal",
    "Frozen": "Frozen layers",
    "Step": "Live allocations",
    "Fragmentation": "Memory map",
    "OOM": "capacity",
    "What if": "largest batch size",
    "Compare": "main category",
}
MOST_PRINTED = 100


def check_pages(page: Any, run: str, scheme: str = "light") -> list[str]:
    """The titles of what is printed, once every page is whole."""
    page.wait_for_function("() => window.printed")
    page.emulate_media(media="print")
    try:
        pages = page.locator("main").first.evaluate(PAGES)
        assert not page.locator("body > .frame").is_visible()
    finally:
        page.emulate_media(media="null")
    for one in pages:
        assert run in one["about"] and OWN_WORDS.get(one["title"], "") in one["text"], one["title"]
        assert one["figures"] and not one["blank"] and not one["cut"] and not one["wider"], one
        assert one["breaks"] == "page" and "Loading" not in one["text"]
        for known, rows, text in one["rows"].values():
            more = known - MOST_PRINTED
            assert rows == (MOST_PRINTED + 1 if more > 0 else known) and (
                more <= 0 or f"{more:,} more" in text
            )
    assert page.locator(":root").get_attribute("data-scheme") == "light"
    pdf = page.pdf()
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) >= len(pages)
    # What was made for the paper is gone, and the page is as it was.
    page.wait_for_function("() => !document.querySelector('.pages')")
    assert page.locator(":root").get_attribute("data-scheme") == scheme
    harness.settled(page)
    assert page.locator("main canvas, main table").first.is_visible()
    return [one["title"] for one in pages]


NOTED = "() => { window.printed = false; window.print = () => { window.printed = true; }; }"


@pytest.mark.reads
@pytest.mark.parametrize(
    ("run", "more"), [("frozen", {"Frozen", "Step", "Host"}), ("died_fragmentation", {"OOM"})]
)
def test_a_report_prints_every_view(open_report: Open, run: str, more: set[str]) -> None:
    page: Any = open_report({"run": run, "view": "compare"})
    page.evaluate(NOTED)
    page.keyboard.press("Control+p")
    titles = check_pages(page, run)
    shared = {"Overview", "Layers", "Fragmentation", "Compare"}
    assert shared | more <= set(titles) and len(titles) == len(set(titles))
    assert (
        page.get_by_role("button", name="Compare", exact=True).get_attribute("aria-pressed")
        == "true"
    )


def test_the_tab_prints_every_view(page: Page, address: str) -> None:
    frame: Any = harness.open_tab(page, address, "run=frozen", dark=True)
    page.evaluate(NOTED)
    frame.locator(".downloads summary").click()
    frame.get_by_role("button", name="Print all views").click()
    assert {"Overview", "Layers", "Step", "Compare"} <= set(check_pages(page, "frozen", "dark"))


@pytest.mark.reads
@pytest.mark.parametrize("view", OF_STEPS)
def test_every_view_draws_without_a_fault(open_report: Open, view: str) -> None:
    page = open_report({"view": view, "run": "frozen", "layer": "vgg/block5_conv1"})
    assert page.locator(".fault, .skeleton").count() == 0
    assert page.title().startswith("Memory of ") and "frozen" in page.title()


def test_it_says_what_is_not_in_it(page, logdir, tmp_path, inspected) -> None:
    # GIVEN a report for which no run was named
    file = tmp_path / "two.html"
    harness.printed("report", str(logdir), "-o", str(file))
    page.goto(file.as_uri())
    harness.idle(page)  # type: ignore[arg-type]
    notices = page.get_by_test_id("notices")
    expect(notices).to_contain_text("on data not in this report")
    notices.locator("summary").first.click()
    expect(notices).to_contain_text(
        "are not in this report: without --run it contains the newest 8 runs"
    )
    contained = set(page.locator(".run .name").all_inner_texts())
    others = set(inspected) - contained
    assert len(contained) == 8 and len(others) > 1
    said = notices.inner_text()
    assert all(name in said for name in others)


@pytest.mark.reads
def test_its_state_is_in_the_address_and_a_zoom_shows_what_there_is(open_report: Open) -> None:
    page = open_report({"run": "frozen", "step": 41, "zoom": "30-60"})
    expect(page.get_by_test_id("step")).to_have_attribute("data-step", "41")
    assert page.locator(".fault").count() == 0
    page.get_by_role("button", name="Layers", exact=True).click()
    page.wait_for_function(
        "() => location.hash.includes('view=layers') && location.hash.includes('step=41')"
    )


def test_a_name_that_ends_a_script_is_text(page: Page, tmp_path: pathlib.Path) -> None:
    # GIVEN a run whose directories' names, with the slashes between them, are markup
    name = "x</script><script>document.title = 'taken'</script><!--<script>"
    sample_runs.write_run(tmp_path / "runs" / name, sample_runs.HOSTILE)
    harness.printed("report", str(tmp_path / "runs"), "-o", str(tmp_path / "r.html"))
    page.goto((tmp_path / "r.html").as_uri())
    harness.idle(page)  # type: ignore[arg-type]
    expect(page.locator(".run.primary .name")).to_have_text(name)
    assert page.title() == f"Memory of {name}"


@pytest.mark.reads
def test_what_needs_the_server_is_disabled_and_said(open_report: Open) -> None:
    page = open_report({"run": "requests", "view": "what-if", "batch_size": 64, "budget": "84MiB"})
    expect(page.get_by_text("A report contains the recorded conditions only.")).to_be_visible()
    asked = page.locator("form").locator("input, select")
    assert asked.count() == 7
    for field in asked.all():
        expect(field).to_be_disabled()


def test_nothing_is_asked_for_again(fresh_page: Page, report: str) -> None:
    page = fresh_page
    page.context.set_offline(True)
    harness.open_alone(page, f"{report}#run=frozen")
    asked = "() => performance.getEntriesByType('resource').length"
    before = page.evaluate(asked)
    page.clock.install()
    page.clock.run_for(20_000)
    harness.idle(page)  # type: ignore[arg-type]
    assert page.evaluate(asked) == before


def test_downloads_work_from_disk(open_report: Open) -> None:
    page = open_report({"run": "frozen"})
    for name in ("CSV", "PNG"):
        page.locator(".downloads summary").click()
        with page.expect_download() as waiting:
            page.get_by_role("button", name=name).or_(
                page.get_by_role("link", name=name)
            ).first.click()
        assert pathlib.Path(waiting.value.path()).stat().st_size > 100
