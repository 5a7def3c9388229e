"""How the page behaves: names from strangers, keyboard, widths, addresses, many runs."""

import pathlib
import re
from urllib.parse import urlencode

import harness
import pytest
import sample_runs
from page_views import VIEWS
from playwright.sync_api import FrameLocator, Page, expect

from tb_memplugin.events.run_writer import RunWriter
from tb_memplugin.model import take_samples


def step_shown(frame: FrameLocator) -> int:
    return int(frame.get_by_test_id("step").get_attribute("data-step") or -1)


@pytest.mark.reads
def test_hostile_names_are_text(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": sample_runs.HOSTILE_RUN}))
    expect(frame.locator(".run.primary .name")).to_have_text(sample_runs.HOSTILE_RUN)
    expect(frame.locator(".owners")).to_contain_text(sample_runs.HOSTILE_LAYER)
    assert frame.locator("img, body script:not([type='module'])").count() == 0


@pytest.mark.reads
@pytest.mark.parametrize(
    "width", [*(pytest.param(width, marks=pytest.mark.long) for width in (600, 820, 900, 2560)), 1440]
)
def test_nothing_is_clipped(page: Page, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    runs = {"activations": "activations_only", "oom": "died_fragmentation", "what-if": "requests"}
    places = [(view, runs.get(view, "frozen")) for view in VIEWS]
    hostile = [(view, sample_runs.HOSTILE_RUN) for view in ("overview", "frozen", "step", "compare")]
    for view, run in [*places, *hostile]:
        frame = harness.open_tab(page, address, urlencode({"view": view, "run": run, "layer": "vgg/block5_conv1"}))
        wider = frame.locator("body").evaluate(
            """body => [body, ...body.querySelectorAll("main, .runs, .body, .panel, .picture, .toolbar, .bar")]
                .filter(e => e.offsetParent !== null && e.scrollWidth > e.clientWidth + 1)
                .map(e => e.className || e.tagName)"""
        )
        assert wider == [], view
        right = frame.locator("body").evaluate(
            """body => Math.max(...[...body.querySelectorAll("button, h2, p, li, table, td, canvas, .layer-scroll")]
                .filter(e => !e.closest(".layer-scroll > *"))  // the table of layers scrolls sideways where it must
                .map(e => e.getBoundingClientRect().right))"""
        )
        assert right <= width + 1, view
        cut = frame.locator("body").evaluate(
            """body => [...body.querySelectorAll("button:not(.mark, .leads), h2, td:not(.shape)")]
                .filter(e => e.offsetParent !== null && e.scrollWidth > e.clientWidth + 1).map(e => e.textContent)"""
        )
        assert cut == [], view


def test_narrow_run_list_folds(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 800, "height": 900})
    frame = harness.open_tab(page, address)
    expect(frame.locator("nav.runs")).to_be_hidden()
    whole = frame.locator("main").bounding_box()
    assert whole and (whole["x"], whole["width"]) == (0, 800)
    button = frame.get_by_role("button", name=re.compile("^Runs"))
    button.click()
    expect(frame.locator("nav.runs")).to_be_visible()
    button.click()
    expect(frame.locator("nav.runs")).to_be_hidden()
    assert frame.locator("main").bounding_box() == whole


def test_keyboard(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "frozen"}))
    chart = frame.get_by_role("slider")
    peak = step_shown(frame)
    chart.focus()
    page.keyboard.press("Home")
    assert step_shown(frame) == 0
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    assert step_shown(frame) == 11
    assert (chart.get_attribute("aria-valuetext") or "").startswith("step 11: peak")
    page.keyboard.press("Enter")
    expect(frame.locator(".pin-line")).to_be_visible()
    page.keyboard.press("End")
    assert step_shown(frame) == 239
    page.keyboard.press("Escape")
    expect(frame.locator(".pin-line")).to_be_hidden()
    assert step_shown(frame) == peak


def test_pointer_pins_and_panel_stays(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "frozen"}))
    over = frame.locator(".u-over")
    box = over.bounding_box()
    assert box
    panel = frame.locator(".panel")
    before = panel.bounding_box()
    middle = box["y"] + box["height"] / 2
    for part in (0.1, 0.3, 0.67, 0.9):
        page.mouse.move(box["x"] + part * box["width"], middle)
        harness.settled(frame)
        assert panel.bounding_box() == before
        assert abs(step_shown(frame) - part * 240) <= 1
    page.mouse.click(box["x"] + 0.5 * box["width"], middle)
    page.mouse.move(5, 5)
    assert abs(step_shown(frame) - 120) <= 1
    assert f"step={step_shown(frame)}" in harness.place(page)


def test_drag_zooms_and_double_click_resets(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "frozen"}))
    box = frame.locator(".u-over").bounding_box()
    assert box
    middle = box["y"] + box["height"] / 2
    with page.expect_response(re.compile(r"overview\?.*first_step=\d+")) as answer:
        page.mouse.move(box["x"] + 0.25 * box["width"], middle)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.5 * box["width"], middle, steps=5)
        page.mouse.up()
    assert answer.value.ok
    harness.idle(frame)
    chart = frame.get_by_role("slider")
    expect(chart).to_have_attribute("aria-valuemax", re.compile(r"^(58|59|60)$"))
    page.mouse.dblclick(box["x"] + 0.5 * box["width"], middle)
    harness.idle(frame)
    expect(chart).to_have_attribute("aria-valuemax", "239")


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
    expect(frame.get_by_role("button", name="Fragmentation", exact=True)).to_have_attribute("aria-pressed", "true")
    expect(frame.get_by_role("button", name="relative")).to_have_attribute("aria-pressed", "true")
    expect(frame.get_by_label("Plot all_trainable")).not_to_be_checked()
    expect(frame.locator(".run.primary .name")).to_have_text("frozen")


def test_address_brings_back_the_layers(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"view": "layers", "run": "frozen"}))
    frame.get_by_label("Search layers by regular expression").fill("conv[12]")
    frame.get_by_role("button", name="trainable", exact=True).click()
    frame.get_by_role("button", name="weights", exact=True).click()
    frame.get_by_role("button", name="MiB", exact=True).click()
    rows = frame.locator("[data-testid='layers'] tbody tr")
    before = rows.all_inner_texts()
    assert any(re.search(r"\d,\d{3},\d{3}", text) for text in before)
    page.reload()
    harness.idle(frame)
    assert rows.all_inner_texts() == before
    expect(frame.get_by_label("Search layers by regular expression")).to_have_value("conv[12]")
    expect(frame.locator("th[aria-sort='descending']")).to_have_text(re.compile("^weights"))


def test_address_brings_back_the_map(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"view": "fragmentation", "run": "frozen", "step": 3}))
    frame.get_by_role("button", name="age", exact=True).click()
    labels = frame.locator(".strip-label")
    for strip, times in ((0, 2), (1, 3)):
        frame.locator(".strip-plot").nth(strip).focus()
        for _ in range(times):
            page.keyboard.press("w")
    before = labels.all_inner_texts()
    assert all(" shown" in text for text in before) and len(set(before)) == 2
    page.reload()
    harness.idle(frame)
    assert labels.all_inner_texts() == before
    expect(frame.get_by_role("button", name="age", exact=True)).to_have_attribute("aria-pressed", "true")
    frame.get_by_role("button", name="roomy", exact=False).first.click()
    assert "map=" not in harness.place(page)


@pytest.mark.reads
def test_several_runs_are_compared(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "frozen", "with": "all_trainable", "step": 100}))
    other = frame.locator("tr[data-figure='run:all_trainable']")
    assert other.get_attribute("data-bytes") == str(sample_runs.peak_at(sample_runs.ALL_TRAINABLE, 100))
    frame.get_by_role("button", name="all_trainable").click()
    harness.idle(frame)
    expect(frame.locator(".run.primary .name")).to_have_text("all_trainable")


@pytest.mark.reads
def test_layers_are_searched_grouped_and_selected(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"view": "layers", "run": "frozen"}))
    rows = frame.locator("tr[data-layer]")
    frame.get_by_label("Search layers by regular expression").fill("block[45]_conv1")
    expect(rows).to_have_count(2)
    frame.get_by_role("button", name="trainable", exact=True).click()
    expect(frame.locator("tr.subtotal")).to_have_count(2)
    frame.get_by_role("button", name="block4_conv1", exact=True).click()
    expect(frame.locator("tr.selected")).to_have_attribute("data-layer", "vgg/block4_conv1")
    assert "layer=vgg%2Fblock4_conv1" in harness.place(page)
    page.keyboard.press("Escape")
    expect(frame.locator("tr.selected")).to_have_count(0)


def test_outside_of_tensorboard(page: Page, address: str) -> None:
    """The page alone, without a host around it: own address, own dark mode, reload by itself."""
    page.emulate_media(color_scheme="dark")
    page.goto(f"{address}/data/plugin_entry.html?name=tb_memplugin#{urlencode({'run': 'frozen', 'step': 41})}")
    page.locator(":root[data-idle='true']").wait_for(state="attached")
    assert page.get_by_test_id("step").get_attribute("data-step") == "41"
    expect(page.locator(":root")).to_have_attribute("data-scheme", "dark")
    page.get_by_role("button", name="Frozen vs trainable").click()
    assert "view=frozen" in harness.place(page)


@pytest.mark.long
def test_three_hundred_runs(page: Page, tmp_path: pathlib.Path) -> None:
    samples = take_samples(sample_runs.samples_of(sample_runs.FROZEN), list(range(20)))
    for index in range(300):
        writer = RunWriter(tmp_path / f"sweep/rate_{index:03d}", producer="recorder", versions={})
        writer.samples(samples)
        writer.close()
    with harness.viewer(str(tmp_path)) as address:
        frame = harness.open_tab(page, address)
        expect(frame.locator(".run")).to_have_count(300)
        harness.idle(frame)
        expect(frame.locator(".run input:checked")).to_have_count(1)
        frame.get_by_label("Filter runs by regular expression").fill("rate_2[0-4]7")
        expect(frame.locator(".run")).to_have_count(5)
        frame.get_by_role("button", name="sweep/rate_237").click()
        harness.idle(frame)
        expect(frame.locator(".run.primary .name")).to_have_text("sweep/rate_237")
        expect(frame.get_by_test_id("answers")).to_contain_text("Fits:")
        page.goto("about:blank")


def test_empty(page: Page, tmp_path: pathlib.Path) -> None:
    with harness.viewer(str(tmp_path)) as address:
        page.goto(f"{address}/data/plugin_entry.html?name=tb_memplugin")
        empty = page.get_by_test_id("empty")
        expect(empty).to_contain_text('callbacks=[tb_memplugin.MemoryCallback("runs/exp1")]')
        expect(empty).to_contain_text("tb_memplugin.MemoryRecorder(")
        expect(empty).to_contain_text("tb_memplugin.summary.layer_activations(")
        page.goto("about:blank")
