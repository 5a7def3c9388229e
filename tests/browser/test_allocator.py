"""Memory maps, device memory and post-mortems in the page, against what was written and `inspect`."""

import re
from typing import Any
from urllib.parse import urlencode

import harness
import pytest
import sample_allocator
import sample_runs
from playwright.sync_api import FrameLocator, Page, expect
from test_values import figures

from tb_memplugin.model import FREE
from tb_memplugin.model.units import format_bytes


def listed(frame: FrameLocator, name: str) -> dict[str, int]:
    """The exact bytes of a list's or a table's entries, by their names."""
    pairs = frame.locator(f"[data-testid='{name}'] [data-bytes]").evaluate_all(
        "items => items.map(item => [item.dataset.figure, +item.dataset.bytes])"
    )
    return dict(pairs)


@pytest.mark.reads
def test_map_at_every_traced_step(page: Page, each_reader: str, inspected: dict[str, Any]) -> None:
    for snapshot in inspected["frozen"]["snapshots"]:
        place = urlencode({"view": "fragmentation", "run": "frozen", "step": snapshot["step"]})
        frame = harness.open_tab(page, each_reader, place)
        if snapshot["step"] == sample_allocator.NO_MAP_STEP:
            expect(frame.get_by_test_id("no-map")).to_contain_text("Unknown: the trace of step 200 has no memory map")
            continue
        taken = sample_allocator.map_of(sample_runs.FROZEN, snapshot["step"])
        expect(frame.get_by_test_id("map")).to_have_attribute("data-chunks", str(len(taken)))
        shown = listed(frame, "map-legend")
        free = shown.pop("free")
        assert sum(shown.values()) == snapshot["in_use_bytes"]
        assert free == snapshot["pool_bytes"] - snapshot["in_use_bytes"]
        by_category: dict[str, int] = {}
        for row in snapshot["ledger"]:
            split = {True: ":trainable", False: ":frozen", None: ""}[row["trainable"]]
            key = row["category"] + (split if row["category"] == "weights" else "")
            by_category[key] = by_category.get(key, 0) + row["bytes"]
        assert shown == by_category
        assert sum(listed(frame, "bins").values()) == free


def test_map_leads_to_a_single_chunk(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"view": "fragmentation", "run": "frozen", "step": 3}))
    taken = sample_allocator.map_of(sample_runs.FROZEN, 3)
    strip = frame.locator(".strip-plot").first
    strip.focus()
    page.keyboard.press("Home")
    chunk = frame.get_by_test_id("chunk")
    expect(chunk).to_contain_text(f"{int(taken.bytes[0]):,} B")
    expect(chunk).to_contain_text(f"at 0x{int(taken.address[0]):x}")
    expect(chunk).to_contain_text(f"{int(taken.requested_bytes[0]):,} B requested")
    expect(chunk).to_contain_text(taken.owners[int(taken.owner[0])].layer or "not tied to a layer")
    page.keyboard.press("ArrowRight")
    expect(chunk).to_contain_text(f"at 0x{int(taken.address[1]):x}")
    page.keyboard.press("ArrowLeft")
    expect(chunk).to_contain_text(f"at 0x{int(taken.address[0]):x}")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    label = frame.locator(".strip-label").first
    expect(label).to_contain_text(" shown")
    # A chunk out of sight comes into view, at the same scale.
    zoomed = label.inner_text()
    page.keyboard.press("End")
    expect(chunk).not_to_contain_text(f"at 0x{int(taken.address[1]):x}")
    assert label.inner_text() == zoomed
    page.keyboard.press("0")
    expect(frame.locator(".strip-label").first).not_to_contain_text(" shown")
    for colouring in ("layer", "age", "category"):
        frame.get_by_role("button", name=colouring, exact=True).click()
        assert sum(listed(frame, "map-legend").values()) == int(taken.bytes.sum())


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


def largest_free(memory_map: Any) -> int:
    """Bytes of the largest free chunk."""
    return int(memory_map.bytes[memory_map.state == FREE].max())


@pytest.mark.reads
@pytest.mark.parametrize(("mib", "answer"), [("0.001", "true"), ("3.7", "true"), ("99999", "false")])
def test_would_a_tensor_fit(page: Page, address: str, mib: str, answer: str) -> None:
    place = {"run": "frozen", "device": "CPU:0", "step": 3}
    frame = harness.open_tab(page, address, urlencode({"view": "fragmentation", **place}))
    frame.get_by_label("Would a tensor of").fill(mib)
    said = frame.get_by_test_id("fits")
    expect(said).to_have_attribute("data-fits", answer)
    # THEN the reason names the chunks of the map, and the answer is the same when the address is opened anew
    reason = said.inner_text().replace("\u00a0", " ")
    largest = format_bytes(largest_free(sample_allocator.map_of(sample_runs.FROZEN, 3)))
    assert f"the largest free chunk is {largest}" in reason if answer == "false" else "A free chunk of" in reason
    page.reload()
    expect(frame.get_by_label("Would a tensor of")).to_have_value(mib)
    expect(said).to_have_attribute("data-fits", answer)


@pytest.mark.reads
@pytest.mark.parametrize("verdict", ["fragmentation", "capacity"])
def test_post_mortem(page: Page, each_reader: str, inspected: dict[str, Any], verdict: str) -> None:
    run = f"died_{verdict}"
    (oom,) = inspected[run]["oom"]
    frame = harness.open_tab(page, each_reader, urlencode({"view": "oom", "run": run}))
    expect(frame.get_by_test_id("oom")).to_have_attribute("data-verdict", oom["verdict"])
    assert oom["verdict"] == verdict
    shown = figures(frame, "oom-figures")
    names = ("requested_bytes", "free_bytes", "largest_free_bytes")
    assert {name: shown[name] for name in names} == {name: oom[name] for name in names}
    categories = figures(frame, "oom-categories")
    assert categories.pop("in_use_bytes") == oom["in_use_bytes"]
    assert categories.pop("capacity_bytes") == oom["capacity_bytes"]
    assert sum(categories.values()) == oom["in_use_bytes"]
    body = frame.get_by_test_id("oom")
    expect(body).to_contain_text(oom["op"])
    expect(body).to_contain_text(sample_allocator.death_of(sample_runs.ALL_TRAINABLE, verdict).reason)
    assert frame.get_by_test_id("fixes").locator("li").count() == len(oom["fixes"])
    taken = sample_allocator.death_of(sample_runs.ALL_TRAINABLE, verdict).map
    assert taken is not None
    assert listed(frame, "map-legend")["free"] == int(taken.bytes[taken.state == FREE].sum())


@pytest.mark.reads
def test_no_failure_is_an_empty_state(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "frozen"}))
    expect(frame.locator(".badge")).to_have_count(0)
    expect(frame.locator("button.tab", has_text="Out of memory")).to_have_count(0)
    # BUT an address may lead there
    frame = harness.open_tab(page, address, urlencode({"run": "frozen", "view": "oom"}))
    expect(frame.get_by_test_id("nothing")).to_contain_text("No step of frozen ran out of memory")
    assert frame.locator(".badge, .fault, .skeleton, [data-testid='oom']").count() == 0


@pytest.mark.reads
def test_findings_lead_to_their_views(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "died_capacity"}))
    frame.locator("[data-answer='fits']").click()
    expect(frame.get_by_test_id("oom")).to_be_visible()
    frame = harness.open_tab(page, address, urlencode({"run": "growing"}))
    frame.get_by_test_id("diagnosis").get_by_role("button").click()
    harness.idle(frame)
    assert "zoom=" in harness.place(page)
    assert "step=239" in harness.place(page)


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
    failure = figures(frame, "oom-figures")
    requested, largest = failure["requested_bytes"], failure["largest_free_bytes"]
    chip = frame.get_by_role("slider", name=re.compile("^Request of"))
    said, ghost = frame.get_by_test_id("request-place"), frame.locator(".strip-request")
    # At rest the post-mortem above says why no free chunk holds it, and a screen reader here.
    expect(said).to_have_text("Drag over the map.")
    expect(chip).to_have_attribute("aria-valuetext", re.compile("^No free chunk is large enough"))
    expect(ghost).to_have_count(0)
    # The keys move it through the free chunks, the largest first.
    chip.focus()
    page.keyboard.press("ArrowRight")
    short = f"Too small: {format_bytes(largest)} free, {format_bytes(requested)} needed"
    expect(said).to_contain_text(short)
    expect(chip).to_have_attribute("aria-valuetext", re.compile("^Too small"))
    expect(ghost).to_have_class(re.compile("fails"))
    page.keyboard.press("Escape")
    expect(ghost).to_have_count(0)
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
