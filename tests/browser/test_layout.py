"""Where things lie: what the first screen shows, and what keeps its place, from 900 to 2560 pixels."""

from typing import Any
from urllib.parse import urlencode

import harness
import pytest
from page_views import OF_STEPS
from playwright.sync_api import Browser, FrameLocator, Page, expect

WIDTHS = {900: 800, 1080: 800, 1180: 800, 1400: 900, 1440: 900, 1920: 1080, 2560: 1440}
SHARED_EDGES = """frame => {
    const box = (element) => element.getBoundingClientRect();
    const toolbar = frame.querySelector(".toolbar");
    const parts = [...toolbar.children].map(box).filter(({ width, height }) => width > 0 && height > 0);
    const before = (a, b) => a.right <= b.left + 0.5 || a.bottom <= b.top + 0.5;
    const apart = (a, b) => before(a, b) || before(b, a);
    return {
        answers: box(frame.querySelector(".answers")).top,
        below: Math.max(...parts.map(({ bottom }) => bottom)),
        right: Math.max(...parts.map(({ right }) => right)) - box(frame.querySelector("main")).right,
        collisions: parts.flatMap((a, i) => parts.slice(i + 1).map((b) => apart(a, b))).filter((fine) => !fine).length,
        sideways: frame.querySelector("main").scrollWidth - frame.querySelector("main").clientWidth,
    };
}"""


def edges(frame: FrameLocator) -> dict[str, Any]:
    result: dict[str, Any] = frame.locator("body").evaluate(SHARED_EDGES)
    return result


@pytest.mark.parametrize("run", ["frozen", "growing", "died_fragmentation"])
def test_the_first_screen_shows_answers_picture_and_legend(page: Page, address: str, run: str) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    frame = harness.open_tab(page, address, urlencode({"run": run}))
    for place in ("[data-answer]", ".chart .plot", ".legend"):
        boxes = [each.bounding_box() for each in frame.locator(place).all()]
        assert boxes
        for box in boxes:
            assert box and box["y"] > 0 and box["y"] + box["height"] <= 900, place


def test_the_toolbar_fits_and_the_answers_keep_their_place_in_every_view(page: Page, address: str) -> None:
    tops: dict[int, set[float]] = {width: set() for width in WIDTHS}
    place = {"run": "frozen", "layer": "vgg/block5_conv1", "step": 50}
    for view in OF_STEPS:
        # A step that was not traced has a note in the toolbar.
        frame = harness.open_tab(page, address, urlencode({**place, "view": view}))
        for width, height in WIDTHS.items():
            harness.resize(page, frame, width, height)
            found = edges(frame)
            assert found["below"] <= found["answers"], (view, width)
            assert found["right"] <= 0 and found["sideways"] <= 0, (view, width)
            assert found["collisions"] == 0, (view, width)
            tops[width].add(round(found["answers"], 1))
        page.goto("about:blank")
    assert {width: len(each) for width, each in tops.items()} == dict.fromkeys(WIDTHS, 1)


def test_the_name_of_the_run_does_not_wrap_the_tabs(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "frozen"}))
    name, bar = frame.locator(".bar-run"), frame.locator(".bar")
    for width in range(1200, 1500, 20):
        page.set_viewport_size({"width": width, "height": 900})
        heights = set()
        for text in ("a", "resnet50_frozen_backbone_batch_64"):
            name.evaluate("(name, text) => { name.textContent = text; }", text)
            heights.add(bar.evaluate("bar => bar.getBoundingClientRect().height"))
        assert len(heights) == 1, width


@pytest.mark.parametrize("width", [900, 1440])
def test_a_step_shows_its_chart_and_legend_without_scrolling(browser: Browser, address: str, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": WIDTHS[width]}, device_scale_factor=2)
    page = context.new_page()
    frame = harness.open_tab(page, address, urlencode({"run": "frozen", "view": "step"}))
    legend = frame.locator(".picture .legend, .legend").first.bounding_box()
    assert legend and legend["y"] + legend["height"] <= WIDTHS[width]
    # AND the canvas has a pixel for every pixel of the device
    canvas = frame.locator(".chart.timeline canvas").first
    size = canvas.evaluate("canvas => [canvas.width, canvas.getBoundingClientRect().width]")
    assert size[0] == pytest.approx(2 * size[1], abs=2)
    context.close()


def test_selecting_a_run_moves_no_row_of_the_list(page: Page, address: str) -> None:
    for width in (900, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        frame = harness.open_tab(page, address, urlencode({"run": "frozen"}))
        rows = "rows => rows.map(row => row.getBoundingClientRect().top)"
        before = frame.locator(".run").evaluate_all(rows)
        frame.get_by_role("button", name="died_fragmentation", exact=True).click()
        harness.idle(frame)
        expect(frame.locator(".run.primary")).to_contain_text("died_fragmentation")
        assert frame.locator(".run").evaluate_all(rows) == before
        page.goto("about:blank")
