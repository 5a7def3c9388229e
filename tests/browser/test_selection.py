"""What a click and a double-click in a chart choose."""

from urllib.parse import parse_qs, urlencode

import harness
import pytest
from playwright.sync_api import Page

LAYER = "vgg/block5_conv1"


SELECTED: dict[str, dict[str, object]] = {
    "overview": {"step": 41, "zoom": "20-200"},
    "frozen": {"step": 41, "zoom": "20-200"},
    "fragmentation": {"step": 41, "zoom": "20-200"},
    "layer": {"step": 41, "layer": LAYER, "zoom": "20-200"},
    "compare": {"step": 41, "other": "all_trainable", "zoom": "20-200"},
    "step": {"step": 41, "moment": 5, "span": "2-40"},
    "what-if": {"run": "requests"},
}
"""What is selected and zoomed before a click, by view."""


def chosen(page: Page) -> dict[str, list[str]]:
    """What the address says now. Every place names a view."""
    return {"view": ["overview"], **parse_qs(harness.place(page))}


@pytest.mark.reads
@pytest.mark.parametrize("view", SELECTED)
def test_a_click_acts_at_once_and_a_double_click_only_resets_the_zoom(page: Page, address: str, view: str) -> None:
    place = {"run": "frozen", "view": view, **SELECTED[view]}
    frame = harness.open_tab(page, address, urlencode(place))
    over = frame.locator(".u-over").first
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert box
    before = chosen(page)
    # WHEN the chart is clicked once, THEN the click has acted before anything else happens
    page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 0.7 * box["height"])
    harness.idle(frame)
    page.mouse.down(click_count=1)
    page.mouse.up(click_count=1)
    assert chosen(page) != before
    # AND a second click of a double-click restores what was selected, and resets the zoom
    page.mouse.down(click_count=2)
    page.mouse.up(click_count=2)
    harness.idle(frame)
    unzoomed = {name: value for name, value in before.items() if name not in ("zoom", "span")}
    assert chosen(page) == unzoomed
    assert (view == "what-if") == (unzoomed == before)
    # AND a click after that still selects
    page.mouse.click(box["x"] + 0.8 * box["width"], box["y"] + 0.7 * box["height"])
    assert chosen(page) != unzoomed
