"""The view Step: what fits into the columns of its list."""

from typing import Any
from urllib.parse import urlencode

import harness
import pytest
import sample_timelines
from playwright.sync_api import FrameLocator, Page, Route


def opened(page: Page, address: str, **place: Any) -> FrameLocator:
    return harness.open_tab(page, address, urlencode({"view": "step", "run": "frozen", **place}))


def with_details(page: Page) -> None:
    """Lets the server know addresses, shapes and lines."""

    def handle(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=sample_timelines.detailed(answer.body()))

    page.route("**/timeline?*", handle)


PUT_LINE = """(cell, line) => {
    const bdi = cell.querySelector("bdi");
    bdi.textContent = line;
    const text = bdi.firstChild;
    const number = document.createRange();
    number.setStart(text, line.lastIndexOf("/") + 1);
    number.setEnd(text, line.length);
    const [outer, inner] = [cell, number].map(one => one.getBoundingClientRect());
    const whole = cell.scrollWidth <= cell.clientWidth;
    return { whole, left: inner.left - outer.left, right: outer.right - inner.right };
}"""


@pytest.mark.parametrize(
    ("width", "line", "whole"),
    [
        (1440, "demo/train.py:103", False),
        (1440, "t.py:103", True),
        (2560, "experiments/segmentation/train_backbone.py:1203", True),
    ],
)
def test_of_a_line_at_least_file_and_number_are_seen(page, address, width, line, whole) -> None:
    page.set_viewport_size({"width": width, "height": 1000})
    row = opened(page, address).locator("[data-testid='live'] tr[data-row]").first
    seen = row.locator("td").last.evaluate(PUT_LINE, line)
    assert seen["whole"] == whole
    assert seen["left"] >= 0 and seen["right"] >= 0


def test_the_columns_of_the_list_fit(page: Page, address: str) -> None:
    with_details(page)
    frame = opened(page, address, step=3)
    table = frame.locator(".live .layer-scroll")
    heads = frame.locator("[data-testid='live'] thead th")
    for width in (900, 1080, 1440, 2560):
        harness.resize(page, frame, width, 900)
        # Where the columns do not fit, the table scrolls sideways in its own region instead of
        # cutting them.
        fits = table.evaluate("one => one.scrollWidth <= one.clientWidth")
        assert fits == (width >= 1440), width
        if not fits:
            table.evaluate("one => one.scrollTo(one.scrollWidth, 0)")
            last, region = heads.last.bounding_box(), table.bounding_box()
            assert (
                last and region and last["x"] + last["width"] <= region["x"] + region["width"] + 1
            ), width
        assert heads.evaluate_all("all => all.every(one => one.scrollWidth <= one.clientWidth)"), (
            width
        )
        assert frame.locator("html").evaluate("one => one.scrollWidth <= one.clientWidth"), width
