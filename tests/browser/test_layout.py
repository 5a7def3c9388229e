"""What keeps its place; what clicks in charts choose, light and dark, and refused conditions."""

from urllib.parse import parse_qs, urlencode, urlsplit

import harness
import pytest
from playwright.sync_api import Browser, Page, expect


@pytest.mark.reads
def test_selecting_a_run_moves_no_row_of_the_list(page: Page, address: str) -> None:
    for width in (900, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        frame = harness.open_tab(page, address, urlencode({"run": "frozen"}))
        rows = "rows => rows.map(row => row.getBoundingClientRect().top)"
        before = frame.locator(".run").evaluate_all(rows)
        frame.locator(".run").get_by_text("died_fragmentation", exact=True).click()
        harness.idle(frame)
        expect(frame.locator(".run.primary")).to_contain_text("died_fragmentation")
        assert frame.locator(".run").evaluate_all(rows) == before


VIEWS = (
    "overview",
    "layers",
    "frozen",
    "step",
    "fragmentation",
    "host",
    "oom",
    "what-if",
    "compare",
)


@pytest.mark.reads
@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_no_view_scrolls_the_document(page: Page, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    scrolled = []
    for view in VIEWS:
        frame = harness.open_tab(
            page, address, urlencode({"run": "died_fragmentation", "view": view})
        )
        document = frame.locator("html").evaluate(
            "e => [e.scrollWidth - innerWidth, e.scrollHeight - innerHeight]"
        )
        assert frame.locator("main").bounding_box(), view
        scrolled += [(view, *document)] if max(document) > 0 else []
    assert scrolled == []


@pytest.mark.reads
@pytest.mark.parametrize("width", [1440, 1024, 820, 640])
def test_the_frame_is_as_high_in_every_view(page: Page, address: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    for run, absent in (("frozen", ()), ("died_fragmentation", ("frozen",))):
        tops = {}
        for view in (view for view in VIEWS if view not in absent):
            # A step that was not traced: the note says so.
            frame = harness.open_tab(
                page, address, urlencode({"run": run, "view": view, "step": 41})
            )
            box = frame.get_by_test_id("answers").bounding_box()
            assert box
            tops[view] = box["y"]
        assert len(set(tops.values())) == 1, (run, tops)


@pytest.mark.reads
def test_a_link_to_a_run_that_is_not_there_says_so(page: Page, address: str) -> None:
    for choices in ({"run": "deleted"}, {"run": "frozen", "view": "compare", "other": "deleted"}):
        frame = harness.open_tab(page, address, urlencode(choices))
        expect(frame.get_by_text("No run deleted in this log directory")).to_be_visible()
        expect(frame.locator("canvas")).to_have_count(0)


@pytest.mark.reads
@pytest.mark.parametrize("view", ["overview", "frozen", "fragmentation", "host", "layers"])
def test_the_chart_begins_in_the_upper_third_of_a_small_window(
    page: Page, address: str, view: str
) -> None:
    page.set_viewport_size({"width": 1024, "height": 768})
    frame = harness.open_tab(page, address, urlencode({"run": "frozen", "view": view}))
    box = frame.locator(".chart, .cells").first.bounding_box()
    assert box and box["y"] <= 768 / 3


LAYER = "vgg/block5_conv1"


SELECTED: dict[str, dict[str, object]] = {
    "overview": {"step": 41, "zoom": "20-200"},
    "frozen": {"step": 41, "zoom": "20-200"},
    "fragmentation": {"step": 41, "zoom": "20-200"},
    "layer": {"step": 41, "layer": LAYER, "zoom": "20-200"},
    "compare": {"step": 41, "other": "all_trainable", "zoom": "20-200"},
    "step": {"step": 41, "moment": 5, "span": "2-40"},
    "what-if": {"run": "requests"},
}
"""What is selected and zoomed before a click, by view."""


def chosen(page: Page) -> dict[str, list[str]]:
    """What the address says now. Every place names a view."""
    return {"view": ["overview"], **parse_qs(harness.place(page))}


@pytest.mark.reads
@pytest.mark.parametrize("view", SELECTED)
def test_a_click_acts_at_once_and_a_double_click_only_resets_the_zoom(
    page: Page, address: str, view: str
) -> None:
    place = {"run": "frozen", "view": view, **SELECTED[view]}
    frame = harness.open_tab(page, address, urlencode(place))
    over = frame.locator(".u-over").first
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert box
    before = chosen(page)
    # WHEN the chart is clicked once, THEN the click has acted before anything else happens
    page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 0.7 * box["height"])
    harness.idle(frame)
    page.mouse.down(click_count=1)
    page.mouse.up(click_count=1)
    assert chosen(page) != before
    # AND a second click of a double-click restores what was selected, and resets the zoom
    page.mouse.down(click_count=2)
    page.mouse.up(click_count=2)
    harness.idle(frame)
    unzoomed = {name: value for name, value in before.items() if name not in ("zoom", "span")}
    assert chosen(page) == unzoomed
    assert (view == "what-if") == (unzoomed == before)
    # AND a click after that still selects
    page.mouse.click(box["x"] + 0.8 * box["width"], box["y"] + 0.7 * box["height"])
    assert chosen(page) != unzoomed


@pytest.mark.parametrize(
    ("scheme", "query", "expected"),
    [
        ("light", "", "light"),
        ("dark", "", "dark"),
        ("light", "?darkMode=true", "dark"),
        ("dark", "?darkMode=false", "light"),
    ],
)
def test_the_system_chooses_light_or_dark_unless_the_address_does(
    page, address, scheme, query, expected
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{address}/{query}#view=layers&run=frozen")
    harness.idle(page)  # type: ignore[arg-type]
    assert page.locator("html").get_attribute("data-scheme") == expected
    page.get_by_role("button", name="Overview", exact=True).click()
    assert urlsplit(page.url).query == query.removeprefix("?"), (
        "the choice is lost with the next view"
    )


def test_a_refused_condition_shows_the_servers_sentence(browser: Browser, address: str) -> None:
    # A page of its own: Chromium logs every answer that is an error.
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "console", lambda message: errors.append(message.text) if message.type == "error" else None
    )
    frame = harness.open_tab(page, address, urlencode({"view": "what-if", "run": "requests"}))
    for label, text, sentence in (
        (
            "unfreeze",
            "conv9",
            "unfreeze: no layer with weights has a path like 'conv9'; the nearest is 'net/conv",
        ),
        ("freeze", "*conv*, x", "freeze: no layer with weights has a path like 'x'"),
        ("capacity", "300", "300: name a unit, for example 300MiB or 12GiB"),
        ("batch size", "0", "batch_size"),
        ("budget", "300", "300: name a unit, for example 300MiB or 12GiB"),
    ):
        field = frame.get_by_label(label, exact=True)
        field.fill(text)
        field.press("Enter")
        # Beside the field, while the last answer stays.
        fault = frame.get_by_role("alert")
        expect(fault).to_contain_text(sentence)
        expect(field).to_have_attribute("aria-invalid", "true")
        expect(field).to_have_accessible_description(fault.inner_text())
        verdict = frame.get_by_test_id("verdict")
        expect(verdict).to_be_visible()
        if label != "budget":
            expect(frame.locator(".last-answer")).to_have_text(
                "Last answer: batch size 4, capacity 256\u00a0MiB"
            )
        boxes = [one.bounding_box() for one in (field, fault, verdict)]
        at, told, below = (box for box in boxes if box is not None)
        assert 0 <= told["y"] - at["y"] - at["height"] < 12 and abs(told["x"] - at["x"]) < 2
        assert told["y"] + told["height"] <= below["y"] and told["x"] + told["width"] <= 1440
        field.fill("")
        field.press("Enter")
        expect(frame.get_by_test_id("verdict")).to_be_visible()
        expect(frame.get_by_role("alert")).to_have_count(0)
    page.close()
    assert errors and all("status of 400" in error or "/favicon.ico" in error for error in errors)
