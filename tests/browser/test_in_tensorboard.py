"""The tab in the real TensorBoard: its frame, its Reload and Back, dark mode, path prefix, nesting,
first screen."""

import itertools
import json
import pathlib
from typing import Any
from urllib.parse import urlencode

import harness
import pytest
from page_views import OF_STEPS, run_of
from playwright.sync_api import Browser, FrameLocator, Page, Response, expect
from test_staying import boxes

WIDTHS = {900: 800, 1080: 800, 1180: 800, 1400: 900, 1440: 900, 1920: 1080, 2560: 1440}
SHARED_EDGES = """frame => {
    const box = (element) => element.getBoundingClientRect();
    const toolbar = frame.querySelector(".toolbar");
    const parts = [...toolbar.children].map(box).filter(({ width, height }) => width > 0 && height > 0);
    const before = (a, b) => a.right <= b.left + 0.5 || a.bottom <= b.top + 0.5;
    const apart = (a, b) => before(a, b) || before(b, a);
    return {
        answers: box(frame.querySelector(".answers")).top,
        below: Math.max(...parts.map(({ bottom }) => bottom)),
        right: Math.max(...parts.map(({ right }) => right)) - box(frame.querySelector("main")).right,
        collisions: parts.flatMap((a, i) => parts.slice(i + 1).map((b) => apart(a, b))).filter((fine) => !fine).length,
        sideways: frame.querySelector("main").scrollWidth - frame.querySelector("main").clientWidth,
    };
}"""
COUNT_SHIFTS = """body => {
    window.__shifts = 0;
    window.__observer?.disconnect();
    const add = list => list.getEntries().forEach(e => { window.__shifts += e.value; });
    window.__observer = new PerformanceObserver(add);
    window.__observer.observe({ type: "layout-shift" });
}"""
CHOSEN = {"run": "frozen", "step": "117"}


def edges(frame: FrameLocator) -> dict[str, Any]:
    result: dict[str, Any] = frame.locator("body").evaluate(SHARED_EDGES)
    return result


@pytest.mark.reads
@pytest.mark.parametrize("run", ["frozen", "growing", "died_fragmentation"])
def test_the_first_screen_shows_answers_picture_and_legend(
    page: Page, tensorboard: str, run: str
) -> None:
    page.set_viewport_size({"width": 1440, "height": 900})
    frame = harness.open_tab(page, tensorboard, urlencode({"run": run}))
    for place in ("[data-answer]", ".chart .plot", ".legend"):
        found = [each.bounding_box() for each in frame.locator(place).all()]
        assert found
        for box in found:
            assert box and box["y"] > 0 and box["y"] + box["height"] <= 900, place


@pytest.mark.reads
@pytest.mark.long
def test_the_toolbar_fits_and_the_answers_keep_their_place_in_every_view(
    page: Page, tensorboard: str
) -> None:
    # A view that is shown though the run has nothing for it has one tab more.
    tops: dict[tuple[int, str], set[float]] = {}
    place = {"run": "frozen", "layer": "vgg/block5_conv1", "step": 50}
    for view in OF_STEPS:
        # A step that was not traced has a note in the toolbar.
        frame = harness.open_tab(page, tensorboard, urlencode({**place, "view": view}))
        for width, height in WIDTHS.items():
            harness.resize(page, frame, width, height)
            found = edges(frame)
            assert found["below"] <= found["answers"], (view, width)
            assert found["right"] <= 0 and found["sideways"] <= 0, (view, width)
            assert found["collisions"] == 0, (view, width)
            tops.setdefault((width, frame.locator(".tabs").inner_text()), set()).add(
                round(found["answers"], 1)
            )
    assert {place: len(each) for place, each in tops.items()} == dict.fromkeys(tops, 1)


@pytest.mark.reads
@pytest.mark.long
def test_reload_moves_nothing_in_any_view(page: Page, tensorboard: str) -> None:
    reload = page.get_by_role("button", name="Reload").or_(
        page.locator("[mattooltip*=eload], app-header-reload")
    )
    for view in OF_STEPS:
        place = {"view": view, "run": run_of(view, "died_capacity"), "layer": "vgg/block5_conv1"}
        frame = harness.open_tab(page, tensorboard, urlencode(place))
        expect(frame.locator("body")).to_be_visible()
        harness.settled(frame)
        before = boxes(frame)
        assert len(before) > 5
        frame.locator("body").evaluate(COUNT_SHIFTS)
        with page.expect_response(lambda answer: answer.url.endswith("/tb_memplugin/runs")):
            reload.first.click()
        harness.settled(frame)
        assert boxes(frame) == before, view
        assert frame.locator("body").evaluate("() => window.__shifts") == 0, view


def view_of(frame: FrameLocator | Page) -> str:
    return frame.locator(".tab[aria-pressed='true']").inner_text()


@pytest.mark.reads
@pytest.mark.parametrize(
    ("server", "place"),
    [
        ("tensorboard", CHOSEN),
        pytest.param("address", {}, marks=pytest.mark.long),
        pytest.param("tensorboard", {}, marks=pytest.mark.long),
        pytest.param("address", CHOSEN, marks=pytest.mark.long),
    ],
)
def test_back_undoes_every_change_of_the_view(page, request, server, place) -> None:
    frame: Any = harness.open_tab(page, request.getfixturevalue(server), urlencode(place))

    ways = (
        "Layers|3|Step|1|Frozen weights take|Overview|(a layer)|← All layers|Overview|Largest "
        "layers|Fragmentation|1"
    )

    def go(way: str) -> None:
        """Press a key, or click on a layer or on the button that is called so."""
        if way.isdigit():
            page.keyboard.press(way)
        elif way == "(a layer)":
            frame.locator(".owners .leads").first.click()
        else:
            frame.get_by_role("button", name=way, exact=not way.endswith("take")).click()

    if not place:
        frame.get_by_role("button", name="frozen", exact=False).first.click()
        harness.idle(frame)

    def seen() -> tuple[str, bool]:
        return view_of(frame), frame.locator(".layer-head").is_visible()

    views = [seen()]
    for way in ways.split("|"):
        go(way)
        harness.idle(frame)
        views.append(seen())
    assert all(one != other for one, other in itertools.pairwise(views))

    def shows(view: str, layer: bool) -> None:
        expect(frame.locator(".tab[aria-pressed='true']")).to_have_text(view)
        expect(frame.locator(".layer-head")).to_be_visible(visible=layer)
        harness.idle(frame)
        assert seen() == (view, layer)

    for view, layer in reversed(views[:-1]):
        page.go_back()
        shows(view, layer)
    for view, layer in views[1:]:
        page.go_forward()
        shows(view, layer)
    page.go_back()
    shows(*views[-2])


def test_a_step_shows_its_chart_and_legend_without_scrolling(
    browser: Browser, tensorboard: str
) -> None:
    context = browser.new_context(
        viewport={"width": 900, "height": WIDTHS[900]}, device_scale_factor=2
    )
    page = context.new_page()
    frame = harness.open_tab(page, tensorboard, urlencode({"run": "frozen", "view": "step"}))
    for width in (900, 1440):
        harness.resize(page, frame, width, WIDTHS[width])
        legend = frame.locator(".picture .legend, .legend").first.bounding_box()
        assert legend and legend["y"] + legend["height"] <= WIDTHS[width]
        # AND the canvas has a pixel for every pixel of the device
        canvas = frame.locator(".chart.timeline canvas").first
        size = canvas.evaluate("canvas => [canvas.width, canvas.getBoundingClientRect().width]")
        assert size[0] == pytest.approx(2 * size[1], abs=2), width
    context.close()


def test_dark_mode_follows_tensorboard(page: Page, tensorboard: str) -> None:
    def surface(frame: FrameLocator) -> str:
        return str(frame.locator("body").evaluate("body => getComputedStyle(body).backgroundColor"))

    frame = harness.open_tab(page, tensorboard, dark=True)
    assert surface(frame) == "rgb(48, 48, 48)"
    page.evaluate("document.body.classList.remove('dark-mode')")
    expect(frame.locator(":root")).to_have_attribute("data-scheme", "light")
    assert surface(frame) == "rgb(255, 255, 255)"


@pytest.mark.long
def test_under_a_prefix(page: Page, logdir: pathlib.Path) -> None:
    with harness.tensorboard(str(logdir), prefix="/deep/er") as address:
        frame = harness.open_tab(page, address, urlencode({"run": "frozen"}))
        expect(frame.get_by_test_id("answers")).to_contain_text("headroom")
        page.goto("about:blank")


def test_in_nested_frames(page: Page, tensorboard: str, inspected: dict[str, Any]) -> None:
    """As in a notebook: TensorBoard inside a frame of another page."""
    page.goto(f"{tensorboard}/data/environment")
    page.evaluate(
        "url => { document.body.innerHTML = ''; const f = document.createElement('iframe'); "
        "f.src = url;f.width = 1200; f.height = 800; document.body.append(f); }",
        harness.tab_url(tensorboard),
    )
    frame = page.frame_locator("iframe").frame_locator("iframe[src*='tb_memplugin']")
    harness.idle(frame)
    expect(frame.get_by_test_id("answers")).to_contain_text("Fits?")
    (answers,) = inspected[frame.locator(".run.primary .name").inner_text()]["answers"].values()
    shown = json.loads(frame.locator("[data-answer='fits']").get_attribute("data-figures") or "")
    assert shown == answers[0]["figures"]


def test_it_shows_what_the_tab_shows(page: Page, tensorboard: str, address: str) -> None:
    # GIVEN the tab in TensorBoard's frame: its text, and the colours of the runs
    tab = harness.open_tab(page, tensorboard, "run=frozen")
    text, colours = tab.locator("body").inner_text(), run_colours(tab)
    assert "MiB" in text and len(set(colours)) > 1
    answers: list[Response] = []

    def noted(answer: Response) -> None:
        answers.append(answer)

    page.on("response", noted)
    # WHEN the page is opened alone
    page.goto(f"{address}/#run=frozen")
    harness.idle(page)  # type: ignore[arg-type]
    # THEN it shows the same, and every request is answered
    assert page.locator("body").inner_text() == text
    assert run_colours(page) == colours
    assert page.title() == "Memory"
    page.remove_listener("response", noted)
    assert [answer.url for answer in answers if answer.status >= 400] == []


def run_colours(frame: Page | FrameLocator) -> list[str]:
    """Colours of the runs' boxes."""
    boxes = frame.locator("input[type='checkbox']").all()
    return [box.evaluate("input => getComputedStyle(input).accentColor") for box in boxes]
