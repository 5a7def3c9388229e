"""How the page behaves: names from strangers, keyboard, widths, addresses, many runs."""

import pathlib
from urllib.parse import urlencode

import harness
import pytest
import sample_runs
from first_screen import cut_off
from page_views import ALL_COLUMNS, VIEWS, run_of
from playwright.sync_api import FrameLocator, Page, expect


@pytest.mark.reads
def test_hostile_names_are_text(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": sample_runs.HOSTILE_RUN}))
    expect(frame.locator(".run.primary .name")).to_have_text(sample_runs.HOSTILE_RUN)
    expect(frame.locator(".owners")).to_contain_text(sample_runs.HOSTILE_LAYER)
    assert frame.locator("img, body script:not([type='module'])").count() == 0


@pytest.mark.reads
@pytest.mark.parametrize(
    "width",
    [*(pytest.param(width, marks=pytest.mark.long) for width in (600, 820, 900, 2560)), 1440],
)
def test_nothing_is_clipped(page: Page, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    places = [(view, run_of(view)) for view in VIEWS]
    hostile = [
        (view, sample_runs.HOSTILE_RUN) for view in ("overview", "frozen", "step", "compare")
    ]
    for view, run in [*places, *hostile]:
        place = {"view": view, "run": run, "layer": "vgg/block5_conv1", "batch_size": 32}
        assert cut_off(harness.open_tab(page, address, urlencode(place)), width) == [], view


@pytest.mark.reads
@pytest.mark.parametrize(
    ("width", "columns"),
    [(390, {}), (1024, {}), (1440, {}), *((width, ALL_COLUMNS) for width in (1440, 1920, 2560))],
)
def test_the_columns_of_layers_fit(
    page: Page, address: str, width: int, columns: dict[str, int]
) -> None:
    page.set_viewport_size({"width": width, "height": 1000})
    frame = harness.open_tab(
        page, address, urlencode({"view": "layers", "run": "frozen", "step": 163, **columns})
    )
    fits = "host => host.scrollWidth <= host.clientWidth + 1"
    assert frame.get_by_role("region", name="Layers").evaluate(fits)
    cut = frame.locator(
        "[data-testid='layers'] :is(td, th, .layer-name > *), .cell-name"
    ).evaluate_all(
        "cells => cells.filter(cell => cell.scrollWidth > cell.clientWidth + 1).map(cell => "
        "cell.textContent)"
    )
    assert cut == []


def held_cells(frame: FrameLocator) -> list[list[str]]:
    """The texts of the table of held tensors, row by row."""
    rows: list[list[str]] = frame.locator("[data-testid='held-tensors'] tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.children].map(cell => cell.textContent))"
    )
    return rows


@pytest.mark.reads
@pytest.mark.parametrize(("width", "exact"), [(1440, False), (950, True)])
def test_names_of_strangers_are_text_and_stay_in_their_rows(
    page: Page, address: str, width: int, exact: bool
) -> None:
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
    assert (
        heights[2][0] > heights[1][0] > 0
        and len(held_cells(frame)[1]) == len(held_cells(frame)[0]) + 1
    )


def test_address_brings_back_the_picture(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "frozen"}))
    frame.get_by_role("button", name="Fragmentation", exact=True).click()
    frame.get_by_role("button", name="relative").click()
    frame.get_by_label("Filter runs by regular expression").fill("fro|all")
    expect(frame.locator(".run")).to_have_count(2)
    frame.get_by_label("Plot all_trainable").uncheck()
    harness.idle(frame)
    page.mouse.move(5, 5)
    painted = "canvases => canvases.map(canvas => canvas.toDataURL())"
    before = frame.locator("canvas").evaluate_all(painted)
    assert before
    page.reload()
    harness.idle(frame)
    assert frame.locator("canvas").evaluate_all(painted) == before
    expect(frame.get_by_role("button", name="Fragmentation", exact=True)).to_have_attribute(
        "aria-pressed", "true"
    )
    expect(frame.get_by_role("button", name="relative")).to_have_attribute("aria-pressed", "true")
    expect(frame.get_by_label("Plot all_trainable")).not_to_be_checked()
    expect(frame.locator(".run.primary .name")).to_have_text("frozen")


def test_empty(page: Page, tmp_path: pathlib.Path) -> None:
    with harness.viewer(str(tmp_path)) as address:
        page.goto(f"{address}/data/plugin_entry.html?name=tb_memplugin")
        empty = page.get_by_test_id("empty")
        expect(empty).to_contain_text('callbacks=[tb_memplugin.MemoryCallback("runs/exp1")]')
        expect(empty).to_contain_text("tb_memplugin.MemoryRecorder(")
        expect(empty).to_contain_text("tb_memplugin.summary.layer_activations(")
        expect(empty).to_contain_text("tb-memplugin import training.log --logdir runs")
        page.goto("about:blank")


@pytest.mark.reads
@pytest.mark.parametrize("view", VIEWS)
def test_no_view_scrolls_the_document_of_a_phone(page: Page, address: str, view: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    frame = harness.open_tab(
        page, address, urlencode({"view": view, "run": "frozen", "layer": "vgg/block5_conv1"})
    )
    harness.settled(frame)
    size = frame.locator(":root").evaluate("root => [root.scrollWidth, root.scrollHeight]")
    assert size == frame.locator(":root").evaluate("() => [innerWidth, innerHeight]")
