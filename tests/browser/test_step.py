"""The view Step: a tensor under the pointer is the one that was written; what fits into its columns."""

from typing import Any
from urllib.parse import urlencode

import harness
import pytest
import sample_runs
import sample_timelines
from playwright.sync_api import FloatRect, FrameLocator, Page, Route, expect

MIB = sample_runs.MIB


def opened(page: Page, address: str, **place: Any) -> FrameLocator:
    return harness.open_tab(page, address, urlencode({"view": "step", "run": "frozen", **place}))


def moment_shown(frame: FrameLocator) -> int:
    return int(frame.get_by_test_id("moment").get_attribute("data-moment") or -1)


def with_details(page: Page) -> None:
    """Lets the server know addresses, shapes and lines."""

    def handle(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=sample_timelines.detailed(answer.body()))

    page.route("**/timeline?*", handle)


def facts(frame: FrameLocator) -> dict[str, str]:
    """What the page says about a tensor, with what it keeps folded."""
    frame.locator("[data-testid='tensor'] details").evaluate_all("all => all.forEach(one => { one.open = true; })")
    found: list[list[str]] = frame.locator("[data-testid='tensor'] [data-fact]").evaluate_all(
        "all => all.map(fact => [fact.dataset.fact, fact.querySelector('dd').innerText])"
    )
    return dict(found)


def plot(frame: FrameLocator) -> FloatRect:
    box = frame.locator(".u-over").bounding_box()
    assert box
    return box


def test_a_tensor_is_selected_in_the_chart_with_all_that_is_known(page: Page, address: str) -> None:
    timeline = sample_timelines.timeline_of(sample_runs.FROZEN, 3)
    with_details(page)
    frame = opened(page, address, step=3)
    assert frame.get_by_test_id("tensor").get_attribute("data-why") == "largest"
    box = plot(frame)
    # GIVEN a point above what is there throughout, at the peak
    share = (timeline.time_ns[timeline.peak] + 250_000) / timeline.duration_ns
    x, y = box["x"] + share * box["width"], box["y"] + 0.5 * box["height"]
    page.mouse.move(x, y)
    expect(frame.get_by_test_id("tensor")).to_have_attribute("data-why", "pointed")
    row = int(frame.get_by_test_id("tensor").get_attribute("data-tensor") or -1)
    owner = timeline.owners[int(timeline.owner[row])]
    size, rounding = int(timeline.bytes[row]), int(timeline.rounding_bytes[row])
    requested = size - rounding
    tip = frame.get_by_test_id("tensor-tip")
    expect(tip).to_contain_text(f"(2, {requested // 2}) uint8")
    expect(tip).to_contain_text(sample_timelines.LINES[row % 2])
    # WHEN it is clicked and the pointer goes away
    page.mouse.click(x, y)
    page.mouse.move(5, 5)
    # THEN it stays, with its moment, in the panel, the list and the address
    expect(frame.get_by_test_id("tensor")).to_have_attribute("data-why", "selected")
    said = facts(frame)
    assert said["layer"] == owner.layer and said["operation"] == timeline.ops[int(timeline.op[row])]
    assert said["category"] == owner.category.replace("_", " ")
    assert said["shape"] == f"(2, {requested // 2}) uint8"
    assert said["size"] == f"2 × {requested // 2:,} × 1 B = {requested:,} B"
    assert f"{requested:,} B" in said["requested"] and said["rounding"] == f"{rounding:,} B"
    assert f"{size:,} B" in said["allocated"]
    since, until = (timeline.time_ns[int(at[row])] / 1e6 for at in (timeline.start, timeline.end))
    assert said["lifetime"] == f"{since:g} ms to {until:g} ms: {until - since:g} ms"
    assert said["Python line"] == sample_timelines.LINES[row % 2] and said["live at peak"] == "yes"
    addresses = sample_timelines.addresses_of(timeline.start, timeline.end, timeline.bytes)
    assert said["address"] == hex(int(addresses[row]))
    assert f"tensor={row}" in harness.place(page) and moment_shown(frame) == timeline.peak
    expect(frame.locator("[data-testid='live'] tr[aria-current='true']").first).to_have_attribute(
        "data-tensor", str(row)
    )
    # AND it comes back with the address, leads to its layer, and Escape clears it
    page.reload()
    harness.idle(frame)
    assert facts(frame) == said
    frame.get_by_role("slider").focus()
    page.keyboard.press("Escape")
    assert "tensor=" not in harness.place(page) and "moment=" in harness.place(page)
    frame = opened(page, address, step=3, tensor=row)
    frame.get_by_test_id("tensor").get_by_role("button", name=owner.layer or "", exact=True).click()
    assert "view=layer" in harness.place(page)


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
def test_of_a_line_at_least_file_and_number_are_seen(
    page: Page, address: str, width: int, line: str, whole: bool
) -> None:
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
        # Where the columns do not fit, the table scrolls sideways in its own region instead of cutting them.
        fits = table.evaluate("one => one.scrollWidth <= one.clientWidth")
        assert fits == (width >= 1440), width
        if not fits:
            table.evaluate("one => one.scrollTo(one.scrollWidth, 0)")
            last, region = heads.last.bounding_box(), table.bounding_box()
            assert last and region and last["x"] + last["width"] <= region["x"] + region["width"] + 1, width
        assert heads.evaluate_all("all => all.every(one => one.scrollWidth <= one.clientWidth)"), width
        assert frame.locator("html").evaluate("one => one.scrollWidth <= one.clientWidth"), width
