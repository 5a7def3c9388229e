"""Memory maps, device memory and post-mortems in the page, against what was written and `inspect`."""

import re
from urllib.parse import urlencode

import harness
import pytest
import sample_allocator
import sample_runs
from first_screen import figures
from playwright.sync_api import FrameLocator, Page, expect


def listed(frame: FrameLocator, name: str) -> dict[str, int]:
    """The exact bytes of a list's or a table's entries, by their names."""
    pairs = frame.locator(f"[data-testid='{name}'] [data-bytes]").evaluate_all(
        "items => items.map(item => [item.dataset.figure, +item.dataset.bytes])"
    )
    return dict(pairs)


@pytest.mark.reads
def test_parts_of_the_device_memory_are_drawn_in_proportion(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"view": "fragmentation", "run": "frozen", "step": 3}))
    drawn = dict(
        frame.locator(".device-memory .memory-bar i").evaluate_all(
            "parts => parts.map(part => [part.dataset.figure, part.getBoundingClientRect().width])"
        )
    )
    stated = listed(frame, "device-memory")
    width = frame.locator(".device-memory .memory-bar").first.bounding_box()
    assert width is not None and set(drawn) == set(stated) and len(stated) > 2
    for name, size in stated.items():
        # A border of one pixel, and at least a visible line.
        assert drawn[name] == pytest.approx(width["width"] * size / sum(stated.values()), abs=3), name


PER_PIXEL = """strips => strips.map(strip =>
    (strip.dataset.end - strip.dataset.begin) / strip.getBoundingClientRect().width)"""


@pytest.mark.parametrize("width", [1000, 1440, 2200])
def test_regions_have_one_scale(page: Page, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 1000})
    frame = harness.open_tab(page, address, urlencode({"view": "fragmentation", "run": "frozen", "step": 3}))
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
        "all => all.map(one => [+one.dataset.tick, one.offsetParent.getBoundingClientRect().left + one.offsetLeft])"
    )
    assert len(places) >= 3
    assert [place for _, place in places] == pytest.approx([left + size * widest / most for size, _ in places], abs=1)
    assert all(text.endswith(" MiB") for text in ticks.all_inner_texts()[1:])
    # WHEN a region is shown at full width THEN it has a scale of its own, and the others keep theirs
    label = frame.get_by_role("button", name=re.compile("^region 2, "))
    label.click()
    harness.idle(frame)
    assert strips.evaluate_all(PER_PIXEL) == pytest.approx([most / widest, regions[1] / widest], rel=0.01)
    expect(frame.locator(".strip-label").nth(1)).to_contain_text(" shown")
    label.click()
    harness.idle(frame)
    assert strips.evaluate_all(PER_PIXEL) == pytest.approx([most / widest] * 2, rel=0.01)


def test_map_of_fifty_thousand_chunks(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"view": "fragmentation", "run": "many_chunks"}))
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


def test_attempts_of_a_restarted_training(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "restarted", "step": 80}))
    first = sample_runs.peak_at(sample_runs.FROZEN, 80)
    assert figures(frame, "breakdown")["peak_bytes"] == first - sample_runs.MIB
    frame.get_by_label("attempt").select_option(index=1)
    harness.idle(frame)
    expect(frame.get_by_role("slider")).to_have_attribute("aria-valuemax", "99")
    frame.get_by_role("slider").focus()
    for key in ("Home", *["Shift+ArrowRight"] * 8):
        page.keyboard.press(key)
    assert figures(frame, "breakdown")["peak_bytes"] == first


def test_the_failed_request_is_dragged_over_the_map(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "died_fragmentation", "view": "oom"}))
    requested = figures(frame, "oom-figures")["requested_bytes"]
    chip = frame.get_by_role("slider", name=re.compile("^Request of"))
    said, ghost = frame.get_by_test_id("request-place"), frame.locator(".strip-request")
    # The pointer drags it over any chunk; it lies there at the scale of the strip.
    chip.scroll_into_view_if_needed()
    start, strip = chip.bounding_box(), frame.locator("[data-region='0']").bounding_box()
    assert start is not None and strip is not None
    page.mouse.move(start["x"] + 10, start["y"] + 10)
    page.mouse.down()
    page.mouse.move(strip["x"] + 2, strip["y"] + strip["height"] / 2, steps=4)
    expect(said).to_contain_text("In use: ")
    region = frame.locator("[data-region='0']").evaluate("strip => strip.dataset.end - strip.dataset.begin")
    box = ghost.bounding_box()
    assert box is not None and abs(box["width"] - strip["width"] * requested / region) < 4
    page.mouse.up()
    expect(ghost).to_have_count(1)
