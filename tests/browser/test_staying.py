"""Nothing moves when data arrives: neither what is in sight, nor what was chosen, nor where the
keyboard is."""

import pathlib
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import harness
import numpy as np
import pytest
import sample_runs
from page_views import run_of
from playwright.sync_api import FrameLocator, Page, expect

from tb_memplugin.schema import take_rows
from tb_memplugin.storage.write import RunWriter

PLAN = sample_runs.FROZEN
SAMPLES = sample_runs.samples_of(PLAN)
BOXES = """(body) =>
      Object.fromEntries(
        [
          ...body.querySelectorAll(
            "nav.runs, .bar, .toolbar, .tile, .body, .picture, .panel, .chart, .plot, " +
            ".figures, .legend, .cells," +
              ".layer-scroll, h2",
          ),
        ].map((e, i) => {
          const { x, y, width } = e.getBoundingClientRect();
          return [`${i} ${e.className || e.tagName}`, [x, y, width].map(Math.round).join(" ")];
        }),
      )"""


EVERY_BOX = """(body) =>
      [
        ...body.querySelectorAll(
          "nav.runs, .bar, .toolbar, .tile, .body, .body > *, .picture > *, .panel > *, " +
          ".panel tr, " +
          ".regions > *, .live > *," +
            ".map, .map > *, .map-answers > *, .oom section, .findings > *, .devices > *, " +
          ".devices tr, .devices section > *",
        ),
      ].map((e, i) => {
        const { x, y, width, height } = e.getBoundingClientRect();
        return [i, e.tagName, ...[x, y, width, height].map((size) => Math.round(size * 10) / 10)];
      })"""
WIDE_LETTERS = """body => {
    const style = document.createElement("style");
    style.textContent = "* { letter-spacing: 0.1em !important }";
    body.append(style);
}"""


class Live:
    """A run that is being written: 100 steps, then more."""

    def __init__(self, directory: pathlib.Path) -> None:
        self.name = directory.name
        self._writer = RunWriter(directory, producer="recorder", versions={})
        self._writer.layer_table(sample_runs.table_at(PLAN, 0))
        self._writer.samples(take_rows(SAMPLES, np.flatnonzero(SAMPLES.step < 100).tolist()))
        self._writer.traced(sample_runs.snapshot_at(PLAN, 3))
        self._writer.flush()

    def goes_on(self, steps: int = 150) -> None:
        """To this number of steps; to 150 its peak stays the same."""
        further = np.flatnonzero((SAMPLES.step >= 100) & (SAMPLES.step < steps))
        self._writer.samples(take_rows(SAMPLES, further.tolist()))
        self._writer.traced(sample_runs.snapshot_at(PLAN, 120))
        self._writer.flush()


LIVE = ("zoomed", "pointed")


@pytest.fixture(scope="module")
def live_logdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return tmp_path_factory.mktemp("live")


@pytest.fixture(scope="module")
def lives(live_logdir: pathlib.Path) -> dict[str, Live]:
    """A run for each test that lets one go on."""
    return {name: Live(live_logdir / name) for name in LIVE}


@pytest.fixture(scope="module")
def live_address(lives: dict[str, Live], live_logdir: pathlib.Path) -> Iterator[str]:
    """Address of a TensorBoard on these runs that reads them anew every second."""
    with harness.tensorboard(str(live_logdir), ["--reload_interval", "1"]) as address:
        yield address


def boxes(frame: FrameLocator) -> Any:
    return frame.locator("body").evaluate(BOXES)


POINTED = ("overview", "frozen", "layer", "step", "fragmentation", "devices", "oom", "what-if")


@pytest.mark.parametrize(
    ("view", "width"),
    [
        pytest.param(view, width, marks=[pytest.mark.long] * ((at + width // 320) % 4 != 0))
        for at, view in enumerate(POINTED)
        for width in (1440, 1120)
    ],
)
def test_the_pointer_moves_nothing_in_any_font(
    page: Page, address: str, view: str, width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 2400})
    place = {"view": view, "run": run_of(view), "layer": "vgg/block5_conv1"}
    frame = harness.open_tab(page, address, urlencode(place))
    frame.locator("body").evaluate(WIDE_LETTERS)
    harness.idle(frame)
    before = frame.locator("body").evaluate(EVERY_BOX)
    assert len(before) > 15
    pictures = frame.locator(".u-over, .strip-plot")
    assert pictures.count() > 0
    for picture in pictures.all():
        box = picture.bounding_box()
        assert box
        for part in (0.01, 0.1, 0.3, 0.67, 0.9, 0.99):
            picture.hover(position={"x": part * box["width"], "y": box["height"] / 2})
            harness.idle(frame)
            assert frame.locator("body").evaluate(EVERY_BOX) == before


@pytest.mark.parametrize("view", ["overview", "frozen", "layer", "fragmentation"])
def test_a_click_moves_no_chart_while_answers_arrive(page: Page, address: str, view: str) -> None:
    # Each place selects another traced step than the one before it.
    place = {
        "view": view,
        "run": "frozen",
        "layer": "vgg/block5_conv1",
        "step": 41,
        "zoom": "20-200",
    }
    # A server that is far away or busy: requests wait until they are let through.
    held = harness.Held(page, "**/data/plugin/tb_memplugin/**")
    frame = harness.open_tab(page, address, urlencode(place))
    charts = frame.locator(".u-over")
    charts.first.scroll_into_view_if_needed()
    before = [chart.bounding_box() for chart in charts.all()]
    for part in (0.2, 0.5, 0.8):
        box = before[0]
        assert box
        page.mouse.move(box["x"] + part * box["width"], box["y"] + 0.7 * box["height"])
        harness.idle(frame)
        for _ in range(2):
            held.hold()
            page.mouse.down()
            page.mouse.up()
            assert [chart.bounding_box() for chart in charts.all()] == before
            held.let_through()
            harness.idle(frame)
            assert [chart.bounding_box() for chart in charts.all()] == before


def test_new_steps_leave_step_zoom_category_and_scrolling_alone(page, lives, live_address) -> None:
    live = lives["zoomed"]
    page.set_viewport_size({"width": 1440, "height": 700})
    place = {
        "run": live.name,
        "runs": live.name,
        "step": 50,
        "zoom": "40-80",
        "category": "workspace",
    }
    frame = harness.open_tab(page, live_address, urlencode(place))
    slider = frame.locator(".plot")
    expect(slider).to_have_attribute("aria-valuemax", "40")
    frame.locator("main").evaluate(
        "main => { document.scrollingElement.scrollTop = main.scrollTop = 120; }"
    )
    row = frame.locator("tr[data-figure='workspace']")
    row.focus()
    before = boxes(frame), harness.place(page)
    with page.expect_response(re.compile(rf"overview\?run={live.name}\b")):
        live.goes_on()
    harness.idle(frame)
    assert (boxes(frame), harness.place(page)) == before
    expect(row).to_be_focused()
    expect(row).to_have_attribute("aria-current", "true")
    expect(frame.get_by_test_id("step")).to_have_attribute("data-step", "50")
    expect(slider).to_have_attribute("aria-valuemax", "40")


@pytest.mark.long
def test_new_steps_wait_while_the_pointer_is_in_the_chart(page, lives, live_address) -> None:
    live = lives["pointed"]
    frame = harness.open_tab(page, live_address, urlencode({"run": live.name, "runs": live.name}))
    slider = frame.locator(".plot")
    box = slider.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    step = frame.get_by_test_id("step").get_attribute("data-step")
    with page.expect_response(re.compile(rf"overview\?run={live.name}\b")):
        live.goes_on()
    harness.settled(frame)
    assert slider.get_attribute("aria-valuemax") == "99"
    assert frame.get_by_test_id("step").get_attribute("data-step") == step
    page.mouse.move(5, 5)
    expect(slider).to_have_attribute("aria-valuemax", "149")


def test_largest_layers_are_those_of_the_step_under_the_pointer(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "frozen", "step": 41}))
    block = frame.locator(".owners")
    before = block.bounding_box()
    chart = frame.locator(".plot").bounding_box()
    assert chart is not None
    shown = []
    for share in (0.3, 0.7, 0.9):
        page.mouse.move(chart["x"] + share * chart["width"], chart["y"] + chart["height"] / 2)
        harness.settled(frame)
        expect(block).to_be_visible()
        assert block.bounding_box() == before
        shown.append(
            frame.locator(".owners tr[data-tip]").evaluate_all(
                "all => all.map(one => one.dataset.tip)"
            )
        )
    # THEN the figures are those of the step under the pointer, which the tip names
    assert shown[-1] != shown[0]
