"""Memory maps in the page: their scale, and how many chunks they show."""

import re
from urllib.parse import urlencode

import harness
import pytest
import sample_allocator
import sample_runs
from playwright.sync_api import Page, expect

PER_PIXEL = """strips => strips.map(strip =>
    (strip.dataset.end - strip.dataset.begin) / strip.getBoundingClientRect().width)"""


@pytest.mark.parametrize("width", [1000, 1440, 2200])
def test_regions_have_one_scale(page: Page, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 1000})
    frame = harness.open_tab(
        page, address, urlencode({"view": "fragmentation", "run": "frozen", "step": 3})
    )
    regions = sample_allocator.map_of(sample_runs.FROZEN, 3).region_bytes.tolist()
    assert len(set(regions)) == len(regions) == 2
    strips = frame.locator(".strip-plot")
    most = max(regions)
    widest = max(strips.evaluate_all("all => all.map(one => one.getBoundingClientRect().width)"))
    assert strips.evaluate_all(PER_PIXEL) == pytest.approx([most / widest] * len(regions), rel=0.01)
    # The axis has that scale, with a unit at every tick.
    ticks = frame.get_by_test_id("strip-axis").locator("span")
    left = strips.first.evaluate("strip => strip.getBoundingClientRect().left")
    places = ticks.evaluate_all(
        "all => all.map(one => [+one.dataset.tick, "
        "one.offsetParent.getBoundingClientRect().left "
        "+ one.offsetLeft])"
    )
    assert len(places) >= 3
    assert [place for _, place in places] == pytest.approx(
        [left + size * widest / most for size, _ in places], abs=1
    )
    assert all(text.endswith(" MiB") for text in ticks.all_inner_texts()[1:])
    # WHEN a region is shown at full width THEN it has a scale of its own, and the others keep
    # theirs
    label = frame.get_by_role("button", name=re.compile("^region 2, "))
    label.click()
    harness.idle(frame)
    assert strips.evaluate_all(PER_PIXEL) == pytest.approx(
        [most / widest, regions[1] / widest], rel=0.01
    )
    expect(frame.locator(".strip-label").nth(1)).to_contain_text(" shown")
    label.click()
    harness.idle(frame)
    assert strips.evaluate_all(PER_PIXEL) == pytest.approx([most / widest] * 2, rel=0.01)


def test_map_of_fifty_thousand_chunks(page: Page, address: str) -> None:
    frame = harness.open_tab(
        page, address, urlencode({"view": "fragmentation", "run": "many_chunks"})
    )
    chunks = int(frame.get_by_test_id("map").get_attribute("data-chunks") or 0)
    assert chunks > 45_000
    strip = frame.locator(".strip-plot").first
    strip.scroll_into_view_if_needed()
    box = strip.bounding_box()
    assert box
    for part in (0.2, 0.4, 0.6):
        page.mouse.move(box["x"] + part * box["width"], box["y"] + 10)
        expect(frame.get_by_test_id("chunk")).to_contain_text("at 0x")
    page.mouse.down()
    page.mouse.move(box["x"] + 0.61 * box["width"] + 12, box["y"] + 10, steps=3)
    page.mouse.up()
    expect(frame.locator(".strip-label").first).to_contain_text(" shown")
