"""The view Step: its figures against ``inspect`` and what was written; cursor, zoom, search, selection, address."""

import re
from typing import Any
from urllib.parse import urlencode

import harness
import numpy as np
import pytest
import sample_runs
import sample_timelines
from first_screen import figures
from playwright.sync_api import FloatRect, FrameLocator, Page, Route, expect
from timeline_cases import split_columns

from tb_memplugin.schema import Timeline

MIB = sample_runs.MIB


def opened(page: Page, address: str, **place: Any) -> FrameLocator:
    return harness.open_tab(page, address, urlencode({"view": "step", "run": "frozen", **place}))


def live_rows(timeline: Timeline, moment: int) -> list[int]:
    """Bytes of what is live, rounding in rows of its own, largest first."""
    rows = np.flatnonzero((timeline.start <= moment) & (timeline.end > moment))
    parts = split_columns(timeline.bytes[rows], timeline.rounding_bytes[rows])
    return sorted((size for part in parts for size in part.tolist() if size), reverse=True)


def moment_shown(frame: FrameLocator) -> int:
    return int(frame.get_by_test_id("moment").get_attribute("data-moment") or -1)


@pytest.mark.reads
def test_the_pointer_shows_the_moment_under_it_and_chooses_it(page: Page, address: str) -> None:
    timeline = sample_timelines.timeline_of(sample_runs.FROZEN, 3)
    frame = opened(page, address, step=3)
    box = frame.locator(".u-over").bounding_box()
    assert box
    middle = box["y"] + box["height"] / 2
    end = timeline.duration_ns
    for part in (0.13, 0.5, 0.87):
        page.mouse.move(box["x"] + part * box["width"], middle)
        expected = int(np.searchsorted(timeline.time_ns, part * end, side="right")) - 1
        assert abs(moment_shown(frame) - expected) <= 1
        assert figures(frame, "timeline-breakdown")["in_use_bytes"] == sum(live_rows(timeline, moment_shown(frame)))
    page.mouse.click(box["x"] + 0.87 * box["width"], middle)
    chosen = moment_shown(frame)
    page.mouse.move(5, 5)
    assert moment_shown(frame) == chosen and f"moment={chosen}" in harness.place(page)
    frame.get_by_role("button", name="Clear the selected moment").click()
    assert moment_shown(frame) == timeline.peak


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


def span_of(page: Page) -> tuple[int, int]:
    found = re.search(r"span=(\d+)-(\d+)", harness.place(page))
    assert found
    return int(found[1]), int(found[2])


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


def test_tensors_lie_at_their_addresses(page: Page, address: str) -> None:
    timeline = sample_timelines.timeline_of(sample_runs.FROZEN, 3)
    with_details(page)
    frame = opened(page, address, step=3)
    frame.get_by_role("button", name="by address", exact=True).click()
    harness.idle(frame)
    assert "place=by" in harness.place(page)
    unknown = int((timeline.count != 1).sum())
    expect(frame.get_by_test_id("unplaced")).to_contain_text(f"{unknown} tensor")
    places = sample_timelines.addresses_of(timeline.start, timeline.end, timeline.bytes)
    known = np.flatnonzero(timeline.count == 1)
    top = int((places + timeline.bytes)[known].max()) * 1.14
    box = plot(frame)
    for row in sorted(known.tolist(), key=lambda row: -int(timeline.bytes[row]))[:8]:
        at = (timeline.time_ns[int(timeline.start[row])] + 250_000) / timeline.duration_ns
        middle = (int(places[row]) + int(timeline.bytes[row]) / 2) / top
        page.mouse.move(box["x"] + at * box["width"], box["y"] + (1 - middle) * box["height"])
        expect(frame.get_by_test_id("tensor")).to_have_attribute("data-tensor", str(row))


def test_the_wheel_zooms_at_the_pointer_and_shift_drag_pans(page: Page, address: str) -> None:
    frame = opened(page, address, step=3, timeline="event index")
    box = plot(frame)
    x, y = box["x"] + 0.25 * box["width"], box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    under = moment_shown(frame)
    for _ in range(5):
        page.mouse.wheel(0, -120)
    harness.idle(frame)
    first, last = span_of(page)
    assert first <= under <= last and moment_shown(frame) == under
    assert abs((under + 0.5 - first) / (last + 1 - first) - 0.25) < 0.12
    # WHEN the plot is dragged to the left with Shift
    page.keyboard.down("Shift")
    page.mouse.down()
    page.mouse.move(x - 0.2 * box["width"], y, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    harness.idle(frame)
    # THEN it shows later moments, as many, and nothing is chosen
    later = span_of(page)
    assert later[0] > first and abs((later[1] - later[0]) - (last - first)) <= 1
    assert "moment=" not in harness.place(page) and "tensor=" not in harness.place(page)
    # AND back at the whole step the wheel is the page's again
    for _ in range(12):
        page.mouse.wheel(0, 120)
        harness.settled(frame)
    assert "span=" not in harness.place(page)
    page.mouse.wheel(0, 400)
    page.wait_for_function("y => document.querySelector('.u-over').getBoundingClientRect().y < y", arg=box["y"])


def test_rows_are_selected_by_the_keyboard_and_by_a_click(page: Page, address: str) -> None:
    frame = opened(page, address, step=3)
    frame.get_by_role("region", name="Table of live allocations").focus()
    rows = frame.locator("[data-testid='live'] tr[data-row]")
    order = [int(text) for text in rows.evaluate_all("rows => rows.map(row => row.dataset.tensor)")]
    page.keyboard.press("ArrowDown")
    panel = frame.get_by_test_id("tensor")
    expect(panel).to_have_attribute("data-tensor", str(order[0]))
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    expect(panel).to_have_attribute("data-tensor", str(order[2]))
    page.keyboard.press("ArrowUp")
    expect(panel).to_have_attribute("data-tensor", str(order[1]))
    page.keyboard.press("End")
    selected = frame.locator("[data-testid='live'] tr[aria-current='true']")
    expect(selected.first).to_be_in_viewport()
    assert int(selected.first.get_attribute("data-tensor") or -1) not in order
    page.keyboard.press("Home")
    expect(panel).to_have_attribute("data-tensor", str(order[0]))
    # The list shows its first rows once it has scrolled.
    expect(rows.first).to_have_attribute("data-tensor", str(order[0]))
    # WHEN a row in sight is clicked, THEN it does not move under the pointer
    row = rows.nth(4).element_handle()
    place = "row => [row.isConnected, row.dataset.tensor, row.getBoundingClientRect().toJSON()]"
    before = row.evaluate(place)
    row.query_selector("td:nth-child(6)").click()  # type: ignore[union-attr]
    expect(panel).to_have_attribute("data-tensor", str(order[4]))
    expect(panel).to_have_attribute("data-why", "selected")
    assert row.evaluate(place) == before
    frame.get_by_role("button", name="Zoom to lifetime").click()
    frame.get_by_role("button", name="Clear tensor").click()
    expect(panel).to_have_attribute("data-why", "largest")


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


def shown_part(frame: FrameLocator) -> tuple[float, float]:
    """Left edge and width of the minimap's box, as shares of its strip."""
    strip, box = (frame.locator(name).bounding_box() for name in (".minimap", ".minimap-box"))
    assert strip and box
    return (box["x"] - strip["x"]) / strip["width"], box["width"] / strip["width"]


def test_the_minimap_shows_and_moves_the_zoom(page: Page, address: str) -> None:
    timeline = sample_timelines.timeline_of(sample_runs.FROZEN, 3)
    last = len(timeline.time_ns) - 1
    frame = opened(page, address, step=3, timeline="event index")
    assert shown_part(frame) == pytest.approx((0, 1), abs=0.01)
    strip = frame.locator(".minimap").bounding_box()
    assert strip
    middle = strip["y"] + strip["height"] / 2

    def drag(start: float, end: float) -> None:
        page.mouse.move(strip["x"] + start * strip["width"], middle)
        page.mouse.down()
        page.mouse.move(strip["x"] + end * strip["width"], middle, steps=4)
        page.mouse.up()
        harness.idle(frame)

    # WHEN an edge of the box is dragged THEN the range is as long as the box
    drag(0.998, 0.5)
    assert shown_part(frame) == pytest.approx((0, 0.5), abs=0.02)
    first, end = span_of(page)
    assert first == 0 and end == pytest.approx(last / 2, abs=0.03 * last)
    # AND the box itself moves the range
    drag(0.25, 0.5)
    assert shown_part(frame) == pytest.approx((0.25, 0.5), abs=0.02)
    # AND a press beside the box brings it there
    drag(0.9, 0.9)
    assert shown_part(frame) == pytest.approx((0.5, 0.5), abs=0.02)
    # AND so do keys
    box = frame.get_by_role("scrollbar", name="Shown part of the step")
    box.focus()
    page.keyboard.press("w")
    page.keyboard.press("ArrowLeft")
    harness.idle(frame)
    assert shown_part(frame) == pytest.approx((0.5625, 0.25), abs=0.02)
    assert (box.get_attribute("aria-valuetext") or "").count(" to ") == 1
    page.keyboard.press("0")
    harness.idle(frame)
    assert shown_part(frame) == pytest.approx((0, 1), abs=0.01) and "span" not in harness.place(page)


def flows(frame: FrameLocator) -> dict[str, tuple[int, int, int]]:
    """Bytes allocated, freed and net of each category of the selected span, and of all."""
    rows: list[tuple[str, list[str]]] = frame.locator("[data-testid='span-flows'] tr[data-group]").evaluate_all(
        "rows => rows.map(row => [row.dataset.group, [...row.querySelectorAll('td')].map(cell => cell.dataset.bytes)])"
    )
    return {group: (int(cells[0]), int(cells[1]), int(cells[2])) for group, cells in rows}


def test_a_selected_span_has_its_statistics(page: Page, address: str) -> None:
    timeline = sample_timelines.timeline_of(sample_runs.FROZEN, 3)
    frame = opened(page, address, step=3, timeline="event index")
    box = plot(frame)
    middle = box["y"] + box["height"] / 2
    expect(frame.get_by_test_id("span")).to_have_count(0)
    # WHEN a span is dragged with Ctrl
    page.mouse.move(box["x"] + 0.3 * box["width"], middle)
    page.keyboard.down("Control")
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], middle, steps=5)
    page.mouse.up()
    page.keyboard.up("Control")
    harness.idle(frame)
    # THEN it is in the address, the zoom is not, and its numbers are those of what was written
    found = re.search(r"selected=(\d+)-(\d+)", harness.place(page))
    assert found and "span=" not in harness.place(page)
    first, last = int(found[1]), int(found[2])
    moments = len(timeline.time_ns)
    assert first == pytest.approx(0.3 * moments, abs=1) and last == pytest.approx(0.6 * moments, abs=1)
    born = (timeline.start >= first) & (timeline.start <= last)
    gone = (timeline.end >= first) & (timeline.end <= last)
    total = flows(frame)["total"]
    assert total[:2] == (int(timeline.bytes[born].sum()), int(timeline.bytes[gone].sum())) and min(total[:2]) > 0
    in_use = [sum(live_rows(timeline, moment)) for moment in (first - 1, last)]
    assert total[2] == in_use[1] - in_use[0]
    assert sum(net for group, (*_, net) in flows(frame).items() if group != "total") == total[2]
    panel = frame.get_by_test_id("span")
    peak = max(sum(live_rows(timeline, moment)) for moment in range(first, last + 1))
    assert panel.locator("[data-figure='peak']").get_attribute("data-bytes") == str(peak)
    counts = [int(timeline.count[rows].sum()) for rows in (born, gone)]
    expect(panel).to_contain_text(f"{counts[0]:,} tensors allocated, {counts[1]:,} freed")
    largest = frame.locator("[data-testid='span-largest'] li").evaluate_all("all => all.map(one => one.dataset.bytes)")
    assert [int(size) for size in largest] == sorted(timeline.bytes[born].tolist(), reverse=True)[:5]
    # AND a tensor of the list can be selected, and the address shows the same again
    frame.locator("[data-testid='span-largest'] button").first.click()
    assert "tensor=" in harness.place(page)
    before = flows(frame)
    page.reload()
    harness.idle(frame)
    assert flows(frame) == before
    frame.get_by_role("button", name="Zoom to span").click()
    harness.idle(frame)
    assert span_of(page) == (first, last)
    frame.get_by_role("button", name="Clear span").click()
    expect(panel).to_have_count(0)
    assert "selected=" not in harness.place(page)
    # AND Back restores and removes it
    page.go_back()
    harness.idle(frame)
    expect(panel).to_have_count(1)
