"""The view Step: its figures against ``inspect`` and what was written; cursor, zoom, search, selection, address."""

import json
import pathlib
import re
from typing import Any
from urllib.parse import urlencode

import harness
import numpy as np
import pytest
import sample_runs
import sample_timelines
from playwright.sync_api import FrameLocator, Page, expect
from test_values import by_group, figures
from timeline_cases import split_columns

from tb_memplugin.model import Timeline

MIB = sample_runs.MIB


def opened(page: Page, address: str, **place: Any) -> FrameLocator:
    return harness.open_tab(page, address, urlencode({"view": "step", "run": "frozen", **place}))


def live_rows(timeline: Timeline, moment: int) -> list[int]:
    """Bytes of what is live, rounding in rows of its own, largest first."""
    rows = np.flatnonzero((timeline.start <= moment) & (timeline.end > moment))
    parts = split_columns(timeline.bytes[rows], timeline.rounding_bytes[rows])
    return sorted((size for part in parts for size in part.tolist() if size), reverse=True)


def listed(frame: FrameLocator) -> list[int]:
    """Bytes of the rows of the list that are in the document."""
    rows = frame.locator("[data-testid='live'] tr[data-row]")
    return [int(text) for text in rows.evaluate_all("rows => rows.map(row => row.dataset.bytes)")]


def moment_shown(frame: FrameLocator) -> int:
    return int(frame.get_by_test_id("moment").get_attribute("data-moment") or -1)


@pytest.mark.parametrize("run", ["frozen", "all_trainable", sample_runs.HOSTILE_RUN])
def test_the_peak_is_the_ledger_of_inspect(page: Page, each_reader: str, inspected: dict[str, Any], run: str) -> None:
    for snapshot in inspected[run]["snapshots"]:
        if run == "frozen" and snapshot["step"] == sample_timelines.NO_TIMELINE_STEP:
            continue
        frame = opened(page, each_reader, run=run, step=snapshot["step"])
        assert frame.get_by_test_id("moment").get_attribute("data-step") == str(snapshot["step"])
        expect(frame.get_by_test_id("moment")).to_contain_text("Peak")
        shown = figures(frame, "timeline-breakdown")
        expected = by_group(snapshot["ledger"])
        assert {name: shown.get(name, 0) for name in expected} == expected
        assert shown["in_use_bytes"] == shown["peak_bytes"] == snapshot["in_use_bytes"]
        frame.get_by_role("button", name="layer", exact=True).click()
        by_layer = figures(frame, "timeline-breakdown")
        layers = {row["layer"]: 0 for row in snapshot["ledger"]}
        for row in snapshot["ledger"]:
            layers[row["layer"]] += row["bytes"]
        named = {name.removeprefix("layer:"): size for name, size in by_layer.items() if name.startswith("layer:")}
        assert named == {layer: layers[layer] for layer in named} and len(named) == 8
        assert by_layer["no_layer"] == layers[None]
        parts = sum(named.values()) + by_layer["no_layer"] + by_layer.get("others", 0)
        assert parts == snapshot["in_use_bytes"]


def test_the_list_is_what_is_live_at_the_cursor(page: Page, address: str) -> None:
    timeline = sample_timelines.timeline_of(sample_runs.FROZEN, 3)
    frame = opened(page, address, step=3)
    expected = live_rows(timeline, timeline.peak)
    assert listed(frame) == expected[: len(listed(frame))] and len(listed(frame)) >= 10
    expect(frame.get_by_test_id("live-count")).to_contain_text(f"{len(expected)} of {len(expected)}")
    chart = frame.get_by_role("slider")
    chart.focus()
    page.keyboard.press("Home")
    assert moment_shown(frame) == 0
    assert listed(frame) == live_rows(timeline, 0)[: len(listed(frame))]
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    assert moment_shown(frame) == 11
    assert (chart.get_attribute("aria-valuetext") or "").startswith("at 5.5 ms, forward: ")
    page.keyboard.press("Enter")
    assert "moment%3D11" in page.url
    page.keyboard.press("End")
    assert moment_shown(frame) == len(timeline.time_ns) - 1
    page.keyboard.press("Escape")
    expect(frame.get_by_test_id("moment")).to_contain_text("Peak")


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
    assert moment_shown(frame) == chosen and f"moment%3D{chosen}" in page.url
    frame.get_by_role("button", name="Clear the chosen moment").click()
    assert moment_shown(frame) == timeline.peak


def test_zoom_is_in_the_address_and_comes_back(page: Page, address: str) -> None:
    frame = opened(page, address, step=3)
    box = frame.locator(".u-over").bounding_box()
    assert box
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.2 * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.4 * box["width"], middle, steps=5)
    page.mouse.up()
    harness.idle(frame)
    found = re.search(r"span%3D(\d+)-(\d+)", page.url)
    assert found and int(found[1]) < int(found[2])
    page.reload()
    harness.idle(frame)
    assert found[0] in page.url
    frame.get_by_role("button", name="Show whole step").click()
    assert "span" not in page.url
    chart = frame.get_by_role("slider")
    chart.focus()
    page.keyboard.press("w")
    page.keyboard.press("d")
    assert "span" in page.url
    page.keyboard.press("0")
    assert "span" not in page.url
    frame.get_by_role("button", name="event index", exact=True).click()
    harness.idle(frame)
    assert "timeline%3Devent" in page.url


def test_search_and_selection_narrow_the_list_and_go_with_the_user(page: Page, address: str) -> None:
    timeline = sample_timelines.timeline_of(sample_runs.FROZEN, 3)
    frame = opened(page, address, step=3)
    count = frame.get_by_test_id("live-count")
    frame.get_by_label("Search live allocations by regular expression").fill("workspace$")
    live = [
        row
        for row in np.flatnonzero((timeline.start <= timeline.peak) & (timeline.end > timeline.peak)).tolist()
        if timeline.owners[int(timeline.owner[row])].category == "workspace"
    ]
    expect(count).to_contain_text(f"{len(live)} of ")
    frame.get_by_label("Search live allocations by regular expression").fill("(")
    expect(count).to_contain_text("regular expression")
    frame.get_by_label("Search live allocations by regular expression").fill("")
    composition = frame.locator("[data-testid='timeline-breakdown'] tr[data-figure='weights:frozen']")
    composition.click()
    expect(composition).to_have_attribute("aria-current", "true")
    assert "category%3Dweights" in page.url
    weights = [row for row in sample_runs.ledger_at(sample_runs.FROZEN, 3) if row.category == "weights"]
    expect(count).to_contain_text(f"{len(weights)} of ")
    frame.locator("[data-testid='live'] .layer-name").first.click()
    expect(count).to_contain_text("1 of ")
    assert "layer%3Dvgg%252Fblock" in page.url
    # THEN the other views know it
    frame.get_by_role("button", name="Overview", exact=True).click()
    harness.idle(frame)
    weights_row = frame.locator("[data-testid='breakdown'] tr[data-figure='weights:frozen']")
    expect(weights_row).to_have_attribute("aria-current", "true")
    frame.get_by_role("button", name="Layers", exact=True).click()
    harness.idle(frame)
    expect(frame.locator("tr.selected")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(frame.locator("tr.selected")).to_have_count(0)
    page.keyboard.press("Escape")
    assert "category" not in page.url


def test_another_step_than_the_selected_one_is_said(page: Page, address: str) -> None:
    frame = opened(page, address, step=60)
    expect(frame.get_by_test_id("step-note")).to_have_text("Step 60 was not traced; timeline from step 41.")
    frame = opened(page, address, step=sample_timelines.NO_TIMELINE_STEP)
    expect(frame.get_by_test_id("step-note")).to_have_text(
        f"Step {sample_timelines.NO_TIMELINE_STEP} has no timeline; timeline from step 200."
    )
    assert frame.get_by_test_id("timeline").get_attribute("data-step") == "200"
    frame.get_by_label("Selected step").fill("80")
    frame.get_by_label("Selected step").press("Enter")
    harness.idle(frame)
    expect(frame.get_by_test_id("step-note")).to_have_text("")
    assert frame.get_by_test_id("timeline").get_attribute("data-step") == "80"
    frame.get_by_role("button", name="Next traced step").click()
    harness.idle(frame)
    assert "step%3D120" in page.url


def test_the_overview_links_to_the_traced_step(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "frozen", "step": 50}))
    frame.get_by_role("button", name="Open step 41").click()
    harness.idle(frame)
    assert frame.get_by_test_id("timeline").get_attribute("data-step") == "41"
    assert "step%3D41" in page.url


def test_a_moment_goes_with_its_step(page: Page, address: str) -> None:
    frame = opened(page, address, step=3, moment=5, span="2-9")
    assert moment_shown(frame) == 5
    frame.get_by_role("button", name="Next traced step").click()
    harness.idle(frame)
    expect(frame.get_by_test_id("moment")).to_contain_text("Peak")
    assert "moment" not in page.url and "span" not in page.url


def test_compiled_modules_are_marked_and_their_limits_are_said(page: Page, address: str) -> None:
    frame = opened(page, address, run="all_trainable", step=3)
    expect(frame.get_by_test_id("not-available")).to_contain_text("Measured times inside compiled modules")
    expect(frame.locator(".panel-head")).to_contain_text("XLA buffer assignment")
    # AND a step that was not compiled has no such mark
    frame = opened(page, address, step=3)
    assert "XLA" not in frame.locator(".panel-head").inner_text()


def test_what_is_not_there_is_said(page: Page, address: str) -> None:
    frame = opened(page, address, run="roomy")
    nothing = frame.get_by_test_id("nothing")
    expect(nothing).to_contain_text("roomy has no step timeline")
    expect(nothing).to_contain_text("it was not kept")
    assert frame.get_by_test_id("timeline").count() == frame.locator(".fault").count() == 0
    frame = opened(page, address, phase="validation")
    expect(frame.get_by_test_id("nothing")).to_contain_text("No validation step of this run was traced on this device")
    assert frame.get_by_test_id("timeline").count() == frame.locator(".fault").count() == 0


def test_downloads_are_what_is_shown(page: Page, address: str) -> None:
    timeline = sample_timelines.timeline_of(sample_runs.FROZEN, 3)
    frame = opened(page, address, step=3)
    files = {}
    for name in ("CSV", "JSON", "PNG", "SVG"):
        with page.expect_download() as waiting:
            frame.get_by_role("button", name=name, exact=True).click()
        files[name] = pathlib.Path(waiting.value.path())
        assert waiting.value.suggested_filename == f"memory_frozen_step.{name.lower()}"
    rows = json.loads(files["JSON"].read_text(encoding="utf-8"))
    parts = split_columns(timeline.bytes, timeline.rounding_bytes)
    assert len(rows) == sum(np.count_nonzero(part) for part in parts) > len(timeline)
    assert sum(row["count"] for row in rows) == int(timeline.count.sum())
    assert sum(row["bytes"] for row in rows if row["category"] == "rounding") == int(parts[1].sum())
    assert sum(row["bytes"] for row in rows if row["live_at_peak"]) == timeline.in_use_bytes
    assert files["CSV"].read_bytes().count(b"\r\n") == len(rows) + 1
    svg = files["SVG"].read_text(encoding="utf-8")
    assert svg.startswith("<svg") and "timeline of step 3" in svg and "weights, frozen" in svg
    assert files["PNG"].read_bytes().startswith(b"\x89PNG")
