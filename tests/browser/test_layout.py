"""What keeps its place: tabs beside long names, the list of runs. The first screen is in test_in_tensorboard.py."""

from urllib.parse import urlencode

import harness
import pytest
from playwright.sync_api import Page, expect


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


@pytest.mark.reads
def test_selecting_a_run_moves_no_row_of_the_list(page: Page, address: str) -> None:
    for width in (900, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        frame = harness.open_tab(page, address, urlencode({"run": "frozen"}))
        rows = "rows => rows.map(row => row.getBoundingClientRect().top)"
        before = frame.locator(".run").evaluate_all(rows)
        frame.locator(".run").get_by_text("died_fragmentation", exact=True).click()
        harness.idle(frame)
        expect(frame.locator(".run.primary")).to_contain_text("died_fragmentation")
        assert frame.locator(".run").evaluate_all(rows) == before


LONG = "resnet50_frozen_backbone_batch_64_mixed_precision_second_attempt_of_three"


def test_a_long_name_beside_the_tabs_ends_in_an_ellipsis(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "died_fragmentation"}))
    name = frame.locator(".bar-run")
    name.evaluate("(name, text) => { name.textContent = text; }", LONG)
    style = name.evaluate(
        "e => [getComputedStyle(e).textOverflow, getComputedStyle(e).overflowX, e.scrollWidth > e.clientWidth]"
    )
    assert style == ["ellipsis", "hidden", True]
    # Some of it is seen, and nothing lies on it.
    box = name.bounding_box()
    assert box and box["width"] > 60
    for other in (*frame.locator(".tab").all(), frame.locator(".downloads"), frame.locator(".help-button")):
        beside = other.bounding_box()
        assert beside
        apart = beside["x"] >= box["x"] + box["width"] or beside["x"] + beside["width"] <= box["x"]
        assert apart or beside["y"] >= box["y"] + box["height"] or beside["y"] + beside["height"] <= box["y"]


@pytest.mark.reads
@pytest.mark.parametrize("view", ["overview", "frozen", "fragmentation", "host", "layers"])
def test_the_chart_begins_in_the_upper_third_of_a_small_window(page: Page, address: str, view: str) -> None:
    page.set_viewport_size({"width": 1024, "height": 768})
    frame = harness.open_tab(page, address, urlencode({"run": "frozen", "view": view}))
    box = frame.locator(".chart, .treemap").first.bounding_box()
    assert box and box["y"] <= 768 / 3
