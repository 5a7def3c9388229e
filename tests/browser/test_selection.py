"""One selected step for all views, runs that the filter hides, clicks and keys in charts."""

import json
import re
from typing import Any
from urllib.parse import parse_qs, urlencode

import harness
import pytest
import sample_runs
from first_screen import figures
from playwright.sync_api import FrameLocator, Page, expect

TABS = ("Overview", "Layers", "Frozen vs trainable", "Step", "Fragmentation", "Compare")
LAYER = "vgg/block5_conv1"


def traced_peak(inspected: dict[str, Any], run: str = "frozen") -> int:
    """The traced training step with the highest peak."""
    snapshots = [snapshot for snapshot in inspected[run]["snapshots"] if snapshot["phase"] == "train"]
    return int(max(snapshots, key=lambda snapshot: snapshot["in_use_bytes"])["step"])


def steps_shown(frame: FrameLocator, view: str) -> dict[str, str | None]:
    """The step of every part of a view that names one."""
    places = {
        "panel": "[data-testid='step']",
        "layers": "[data-testid='layers-step']",
        "timeline": "[data-testid='timeline']",
        "side A": "[data-testid='side-A']",
    }
    found = {name: frame.locator(place) for name, place in places.items()}
    shown = {name: place.get_attribute("data-step") for name, place in found.items() if place.count() == 1}
    if view == "Fragmentation":
        for name, place in (("map", ".map-head"), ("device", ".device-memory h2")):
            step = re.search(r"peak of step (\d+)", frame.locator(place).inner_text())
            shown[name] = step[1] if step else None
    return shown


def go_to(frame: FrameLocator, tab: str) -> None:
    frame.get_by_role("button", name=tab, exact=True).click()
    harness.idle(frame)


@pytest.mark.reads
def test_every_view_shows_the_traced_step_with_the_highest_peak(
    page: Page, address: str, inspected: dict[str, Any]
) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "all_trainable", "layer": LAYER}))
    peak = str(traced_peak(inspected, "all_trainable"))
    for tab in (*TABS, "layer"):
        if tab == "layer":
            frame = harness.open_tab(
                page, address, urlencode({"view": "layer", "run": "all_trainable", "layer": LAYER})
            )
        else:
            go_to(frame, tab)
        shown = steps_shown(frame, "" if tab == "Fragmentation" else tab)
        assert shown and set(shown.values()) == {peak}, tab
        expect(frame.get_by_test_id("step-selector")).to_have_attribute("data-step", peak)
        expect(frame.get_by_test_id("step-note")).to_have_text("")
        # AND a link to the step's timeline names the step, although none was chosen
        assert ("step=" in harness.place(page)) == (tab == "Step")


@pytest.mark.reads
def test_a_step_that_was_not_traced_goes_along_and_is_said_once(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "frozen", "layer": LAYER, "category": "weights"}))
    field = frame.get_by_label("Selected step")
    field.fill("117")
    field.press("Enter")
    for tab in TABS:
        go_to(frame, tab)
        said = "timeline" if tab == "Step" else "breakdown"
        expect(frame.get_by_test_id("step-note")).to_have_text(f"Step 117 was not traced; {said} from step 80.")
        expect(frame.get_by_test_id("step-selector")).to_have_attribute("data-breakdown", "80")
        expect(field).to_have_value("117")
        own = {"Overview": "panel", "Frozen vs trainable": "panel", "Fragmentation": "panel", "Compare": "side A"}
        for name, step in steps_shown(frame, tab).items():
            assert step == ("117" if own.get(tab) == name else "80"), (tab, name)
        assert frame.locator("body").inner_text().count("not traced") == 1, tab
        assert all(part in harness.place(page) for part in ("step=117", "layer=vgg", "category=weights")), tab
    frame = harness.open_tab(page, address, urlencode({"view": "layer", "run": "frozen", "layer": LAYER, "step": 117}))
    assert steps_shown(frame, "layer") == {"panel": "80"}


@pytest.mark.reads
def test_choosing_a_step_moves_nothing(page: Page, address: str) -> None:
    for width in (900, 1120, 1440, 2560):
        page.set_viewport_size({"width": width, "height": 900})
        frame = harness.open_tab(page, address, urlencode({"run": "frozen"}))
        boxes = """body => [...body.querySelectorAll(".toolbar > *, .chart, [data-testid='breakdown'] tr")].map(e => {
            const { x, y, width, height } = e.getBoundingClientRect();
            return [e.className || e.tagName, x, y, width, height].join(" ");
        })"""
        before = frame.locator("body").evaluate(boxes)
        chart = frame.locator(".u-over").bounding_box()
        assert chart
        page.mouse.click(chart["x"] + 0.4 * chart["width"], chart["y"] + 60)
        harness.idle(frame)
        assert "not traced" in frame.get_by_test_id("step-note").inner_text()
        assert frame.locator("body").evaluate(boxes) == before, width


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


@pytest.mark.reads
def test_the_answer_is_that_of_the_phase(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "frozen"}))
    tile = frame.locator("[data-answer='fits']")
    trained = json.loads(tile.get_attribute("data-figures") or "")["peak_bytes"]
    frame.get_by_role("button", name="validation", exact=True).click()
    harness.idle(frame)
    validated = json.loads(tile.get_attribute("data-figures") or "")["peak_bytes"]
    plan = sample_runs.FROZEN
    ends = range(plan.epoch_steps - 1, plan.steps, plan.epoch_steps)
    assert validated == max(sample_runs.peak_at(plan, step) * 7 // 10 + 3 * 1024 for step in ends) < trained
    assert figures(frame, "breakdown")["peak_bytes"] == validated
