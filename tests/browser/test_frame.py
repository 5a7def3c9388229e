"""The frame: nothing moves by itself, the runs are a sorted table, tooltips are for people."""

import re
import time
from typing import Any
from urllib.parse import urlencode

import harness
import pytest
from page_views import VIEWS, mostly_long, run_of
from playwright.sync_api import Browser, Page, Route, expect

SHIFTS = """
window.shifts = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    // A text that another one replaces in the same box is no movement.
    const place = ({ x, y, width, height }) => [x, y, width, height].map(Math.round).join(" ");
    const moved = entry.sources
      .filter(({ node }) => node === null || node.nodeType === Node.ELEMENT_NODE)
      .map(
        ({ node, previousRect, currentRect }) =>
          `${node?.nodeName}.${node?.className}: ${place(previousRect)} -> ${place(currentRect)}`,
      );
    if (moved.length > 0) shifts.push([entry.value, moved]);
  }
}).observe({ type: "layout-shift", buffered: true });
"""
MOST = 0.002
"""Most layout shift, as Chromium measures it: the share of the window that moved times how far it
moved. A line of text that appears above a chart at 1440 x 900 gives 0.02."""
RANKED = ("layers", "compare")
"""Their rows are ranked by the bytes of the selected step."""


def shifted(page: Page) -> float:
    """What moved since the last call, by itself or after a click."""
    harness.settled(page)  # type: ignore[arg-type]
    entries: list[Any] = page.evaluate("() => shifts.splice(0)")
    for value, moved in entries:
        print(f"{value:.4f}", *moved, sep="\n    ")
    return sum(value for value, _ in entries)


def one_by_one(route: Route) -> None:
    """Lets each answer arrive in a frame of its own."""
    time.sleep(0.04)
    route.continue_()


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("view", mostly_long(VIEWS, ("overview", "oom", "host")))
def test_nothing_moves_when_data_arrives_when_pointed_at_and_when_a_step_is_selected(
    browser: Browser, address: str, view: str, width: int
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.add_init_script(SHIFTS)
    page.route("**/data/plugin/tb_memplugin/**", one_by_one)
    place = {"view": view, "run": run_of(view), "layer": "vgg/block5_conv1"}
    frame = harness.open_tab(page, address, urlencode(place))
    # Two lines of text that the server words arrive below the conditions.
    assert shifted(page) <= (0.01 if (view, width) == ("what-if", 390) else MOST), (
        "while data arrived"
    )
    for picture in page.locator(".u-over, .strip-plot, [data-tip]").all()[:6]:
        box = picture.bounding_box()
        for part in (0.1, 0.5, 0.9) if box and box["y"] + box["height"] < 900 else ():
            assert box
            page.mouse.move(box["x"] + part * box["width"], box["y"] + box["height"] / 2)
            harness.settled(frame)
    assert shifted(page) <= MOST, "under the pointer"
    page.mouse.move(5, 895)
    steps = frame.get_by_label("Previous traced step"), frame.get_by_label("Next traced step")
    for step in steps if view not in RANKED else ():
        if step.count() > 0 and step.is_enabled():
            step.click()
            assert shifted(page) <= MOST, "when a step was selected"
    page.close()


def test_another_view_leaves_the_frame_where_it_is(browser: Browser, address: str) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.add_init_script(SHIFTS)
    frame = harness.open_tab(page, address, urlencode({"run": "frozen"}))
    shifted(page)
    for tab in ("Layers", "Fragmentation", "Overview"):
        frame.get_by_role("button", name=tab, exact=True).click()
        harness.idle(frame)
        assert shifted(page) <= MOST, tab
    page.close()


DIGITS = re.compile(r"\d(?:,?\d){6}(?! parameters)(?!,?\d)")
"""Seven digits: more than people read. The number of parameters is that of Keras's summary."""
TIPPED = {
    **{view: {"view": view, "run": run_of(view)} for view in VIEWS},
    "layer": {"view": "layer", "run": "frozen", "layer": "vgg/block5_conv1"},
    "tensor": {"view": "step", "run": "frozen", "step": 3, "tensor": 7},
    "recommended": {"view": "oom", "run": "requests"},
}


@pytest.mark.reads
@pytest.mark.parametrize("name", TIPPED)
def test_tooltips_have_few_digits_and_no_back_ticks(page: Page, address: str, name: str) -> None:
    frame = harness.open_tab(page, address, urlencode(TIPPED[name]))
    titles, tips = (
        frame.locator(f"[{attribute}]").evaluate_all(
            "(all, name) => all.map(one => one.getAttribute(name))", attribute
        )
        for attribute in ("title", "data-tip")
    )
    assert len(titles) > 10
    assert [one for one in titles if "`" in one] == []
    assert [one for one in (*titles, *tips) if DIGITS.search(one)] == []


def test_code_in_a_tooltip_is_set_as_code(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "frozen"}))
    row = frame.locator("tr[data-tip]").first
    row.evaluate("row => { row.dataset.tip = 'Call `fit` again.'; }")
    row.hover()
    tip = frame.get_by_role("tooltip")
    expect(tip).to_have_text("Call fit again.")
    expect(tip.locator("code")).to_have_text("fit")


def names(page: Page) -> list[str]:
    return page.locator(".run .name").all_inner_texts()


def test_runs_are_sorted_by_each_column_by_mouse_and_keyboard(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "frozen"}))
    status, name, peak = (
        frame.locator(".run-table th[aria-sort]").filter(has_text=text)
        for text in ("status", "run", "peak")
    )
    expect(status).to_have_attribute("aria-sort", "ascending")
    worst = names(page)
    name.get_by_role("button").click()
    expect(name).to_have_attribute("aria-sort", "ascending")
    expect(status).to_have_attribute("aria-sort", "none")
    by_name = names(page)
    assert by_name != worst and sorted(by_name) == sorted(worst)
    # By keyboard; the same column again is the other direction.
    name.get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(name).to_have_attribute("aria-sort", "descending")
    assert names(page) == by_name[::-1]
    peak.get_by_role("button").focus()
    page.keyboard.press("Space")
    expect(peak).to_have_attribute("aria-sort", "descending")
    sizes = [one for one in page.locator(".run-peak").all_inner_texts() if "MiB" in one]
    shown = [float(one.split()[0]) for one in sizes]
    assert len(shown) > 5 and shown == sorted(shown, reverse=True)


def test_a_failed_run_names_its_largest_layer(
    page: Page, address: str, inspected: dict[str, Any]
) -> None:
    harness.open_tab(page, address, urlencode({"run": "frozen"}))
    failed = page.locator(".run").filter(has_text=re.compile("^died_fragmentation"))
    (largest,) = inspected["died_fragmentation"]["largest_layer"].values()
    expect(failed.locator(".culprit")).to_have_text(
        f"{largest['name']} {largest['share']:.0%}".replace("%", "\u00a0%")
    )
    expect(page.locator(".run").filter(has_text="frozen").locator(".culprit")).to_have_count(0)
    # The row is usable where it is narrow.
    for width in (1440, 1024, 390):
        page.set_viewport_size({"width": width, "height": 900})
        if width == 390:
            page.get_by_role("button", name=re.compile("^Runs")).click()
        box = failed.locator(".name").bounding_box()
        assert box and box["width"] > 50 and box["height"] < 60, width
        clipped = (
            "e => [e.scrollWidth - e.clientWidth, document.querySelector('.runs').scrollWidth]"
        )
        over, whole = failed.locator(".culprit").evaluate(clipped)
        assert over <= 0 and whole <= page.locator(".runs").evaluate("e => e.clientWidth"), width


def test_the_step_is_moved_on_the_axis_by_keyboard_and_mouse(
    browser: Browser, address: str
) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.add_init_script(SHIFTS)
    frame = harness.open_tab(page, address, urlencode({"run": "frozen", "step": 41}))
    handle = frame.get_by_role("slider", name="Selected step on the axis")
    traced = [
        int(one.get_attribute("value") or "") for one in frame.locator("#traced-steps option").all()
    ]
    at = traced.index(41)
    shifted(page)
    handle.focus()
    expect(handle).to_have_css("outline-style", "solid")
    for key, step in (
        ("ArrowLeft", traced[at - 1]),
        ("ArrowRight", 41),
        ("ArrowRight", traced[at + 1]),
        ("Home", traced[0]),
        ("End", traced[-1]),
    ):
        page.keyboard.press(key)
        harness.settled(frame)
        expect(handle).to_have_attribute("aria-valuenow", str(step))
        expect(handle).to_have_attribute("aria-valuetext", re.compile(rf"^step {step}\b"))
        expect(handle).to_be_focused()
        expect(frame.get_by_test_id("step")).to_have_attribute("data-step", str(step))
    assert shifted(page) <= MOST
    # The mouse goes to every recorded step: it is shown while the handle moves and selected when it
    # is let go.
    box, plot = handle.bounding_box(), frame.locator(".u-over").bounding_box()
    assert box and plot
    first, last = (int(handle.get_attribute(f"aria-value{end}") or "") for end in ("min", "max"))
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 2, middle)
    page.mouse.down()
    for wanted in (100, 60):
        x = plot["x"] + plot["width"] * (wanted - first + 0.5) / (last - first + 1)
        page.mouse.move(x, middle + 40, steps=4)
        harness.settled(frame)
        assert frame.get_by_test_id("step").get_attribute("data-step") == str(wanted)
        assert f"step={traced[-1]}" in harness.place(page)
        now = handle.bounding_box()
        assert now and abs(now["x"] + now["width"] / 2 - x) < 1
    page.mouse.up()
    harness.idle(frame)
    assert "step=60" in harness.place(page) and 60 not in traced
    expect(handle).to_have_attribute("aria-valuenow", "60")
    assert shifted(page) <= MOST
    page.close()


@pytest.mark.reads
@pytest.mark.parametrize(
    "view", ["overview", "frozen", "fragmentation", "host", "layer", "compare"]
)
def test_every_view_over_steps_has_the_handle(page: Page, address: str, view: str) -> None:
    place = {
        "view": view,
        "run": "frozen",
        "layer": "vgg/block5_conv1",
        "other": "all_trainable",
        "step": 41,
    }
    frame = harness.open_tab(page, address, urlencode(place))
    expect(frame.get_by_role("slider", name="Selected step on the axis")).to_have_attribute(
        "aria-valuenow", "41"
    )
