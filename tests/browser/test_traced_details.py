"""The details of a traced step in the overview's panel: held tensors, and the check of the step by its replay."""

from typing import Any
from urllib.parse import urlencode

import harness
import pytest
import sample_runs
from playwright.sync_api import FrameLocator, Page, expect
from test_report_in_browser import Open, open_report, report

__all__ = ["open_report", "report"]
CELLS = "rows => rows.map(row => [...row.children].map(cell => cell.textContent))"
REPLAY = "replay: 3,079 of 3,080 addresses, 659 of 659 chunks"


def held_cells(frame: FrameLocator) -> list[list[str]]:
    """The texts of the table of held tensors, row by row."""
    rows: list[list[str]] = frame.locator("[data-testid='held-tensors'] tbody tr").evaluate_all(CELLS)
    return rows


def held_bytes(frame: FrameLocator) -> list[int]:
    sizes: list[int] = frame.locator("[data-testid='held-tensors'] tbody tr").evaluate_all(
        "rows => rows.map(row => +row.dataset.bytes)"
    )
    return sizes


def check_step(frame: FrameLocator, snapshot: dict[str, Any]) -> None:
    """The details on screen are those of `snapshot`, as ``inspect`` prints it."""
    groups = snapshot["held_tensors"]
    assert held_bytes(frame) == [group["bytes"] for group in groups[:8]]
    assert [row[:3] + row[4:] for row in held_cells(frame)] == [
        [
            str(group["count"]),
            f"({', '.join(map(str, group['shape']))})",
            group["dtype"],
            group["held_by"] or "unknown",
            *([group["line"]] if group["line"] else []),
        ]
        for group in groups[:8]
    ]
    expect(frame.locator(".traced-details h3")).to_have_text(f"Tensors by holder step {snapshot['step']}")
    expect(frame.get_by_test_id("replay")).to_contain_text(REPLAY)


@pytest.mark.reads
@pytest.mark.parametrize("step", [3, 163])
def test_held_tensors_and_the_replay_of_the_selected_step(
    page: Page, address: str, inspected: dict[str, Any], step: int
) -> None:
    snapshot = next(snapshot for snapshot in inspected["frozen"]["snapshots"] if snapshot["step"] == step)
    frame = harness.open_tab(page, address, urlencode({"run": "frozen", "step": step}))
    check_step(frame, snapshot)
    frame.locator(".held-fold > summary").click()  # held tensors below 1 % are folded
    heads = frame.locator("[data-testid='held-tensors'] thead th").all_inner_texts()
    assert heads == ["count", "shape", "dtype", "size, KiB", "held by, made at"]
    more = frame.get_by_test_id("held-more")
    if step == 3:
        assert len(snapshot["held_tensors"]) == 3
        expect(more).to_have_count(0)
    else:
        assert len(snapshot["held_tensors"]) == 11
        expect(more).to_have_text("and 3 more, 308 B")
    assert sum(group["bytes"] for group in snapshot["held_tensors"]) == sample_runs.HELD_BYTES
    # AND every row explains itself
    row = frame.locator("[data-testid='held-tensors'] tbody tr").nth(1)
    # A tooltip goes away when the page scrolls.
    row.scroll_into_view_if_needed()
    harness.settled(frame)
    row.hover()
    tip = frame.get_by_role("tooltip")
    expect(tip).to_contain_text("51,200 B")
    expect(tip).to_contain_text("40 × (32, 10) float32")
    expect(tip).to_contain_text("held by list `history` in module __main__")
    expect(tip).to_contain_text(f"retaining path: {sample_runs.HELD_PATH}")
    expect(tip).to_contain_text("made at train.py:42")


def test_the_pointer_leaves_the_details_of_the_selected_step(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 1440, "height": 1600})
    frame = harness.open_tab(page, address, urlencode({"run": "frozen", "step": 163}))
    before, box = held_cells(frame), frame.locator(".panel").bounding_box()
    assert len(before) == 8
    chart = frame.locator(".u-over")
    size = chart.bounding_box()
    assert size
    for part in (0.1, 0.5, 0.95):
        chart.hover(position={"x": part * size["width"], "y": size["height"] / 2})
        harness.idle(frame)
        assert frame.get_by_test_id("step").get_attribute("data-step") != "163"
        assert (held_cells(frame), frame.locator(".panel").bounding_box()) == (before, box)
    # WHEN another step is selected, its details are shown
    chart.click(position={"x": 0.1 * size["width"], "y": size["height"] / 2})
    harness.idle(frame)
    assert len(held_cells(frame)) == 3


@pytest.mark.reads
def test_a_step_without_them_has_no_details(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "roomy"}))
    expect(frame.locator(".owners")).to_be_visible()
    assert frame.locator(".traced-details").count() == 0


@pytest.mark.reads
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("width", [1440, 1120, 950])
def test_names_of_strangers_are_text_and_stay_in_their_rows(page: Page, address: str, width: int, exact: bool) -> None:
    page.set_viewport_size({"width": width, "height": 1600})
    frame = harness.open_tab(page, address, urlencode({"run": sample_runs.HOSTILE_RUN, "step": 4}))
    if exact:
        frame.locator(".panel button.unit").click()
        assert held_cells(frame)[1][3] == "51,200"
    assert held_cells(frame)[1][4] == sample_runs.HOSTILE_HOLDER
    assert frame.locator(".traced-details img").count() == 0
    panel = frame.locator(".panel").bounding_box()
    assert panel
    for row in frame.locator(".traced-details th, .traced-details td, .traced-details p").all():
        box = row.bounding_box()
        assert box and box["x"] + box["width"] <= panel["x"] + panel["width"] - 13
    assert frame.locator(".panel").evaluate("panel => panel.scrollWidth <= panel.clientWidth")
    # AND no row overlaps the next, whether it names a line or not
    rows = frame.locator("[data-testid='held-tensors'] tr")
    heights = rows.evaluate_all("rows => rows.map(row => [row.clientHeight, row.scrollHeight])")
    assert all(height == content for height, content in heights)
    assert heights[2][0] > heights[1][0] > 0 and len(held_cells(frame)[1]) == len(held_cells(frame)[0]) + 1


@pytest.mark.reads
def test_a_report_has_them_too(open_report: Open, inspected: dict[str, Any]) -> None:
    for snapshot in inspected["frozen"]["snapshots"][-2:]:
        frame: Any = open_report({"run": "frozen", "step": snapshot["step"]})
        assert frame.locator(".traced-details").count() == 1
        check_step(frame, snapshot)
