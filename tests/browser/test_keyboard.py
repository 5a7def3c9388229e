"""The whole tab without a pointer: everything is reached by Tab, and every question is answered by keys alone."""

from typing import Any
from urllib.parse import urlencode

import harness
import pytest
from playwright.sync_api import FrameLocator, Page, expect
from test_how_do_i import ANSWERS, RUNS, TYPED, questions

STOPS = """button, input, select, summary, a[href], [role='slider'], [tabindex='0']"""
VIEWS = {
    "overview": "frozen",
    "layers": "frozen",
    "layer": "frozen",
    "frozen": "frozen",
    "step": "frozen",
    "fragmentation": "frozen",
    "host": "frozen",
    "devices": "frozen",
    "oom": "died_fragmentation",
    "what-if": "requests",
    "compare": "frozen",
    "activations": "activations_only",
}
MOST = 200
"""Presses of Tab before the test gives up."""


def numbered(frame: FrameLocator) -> set[int]:
    """Numbers everything that can be operated and gives the numbers."""
    count = frame.locator("body").evaluate(
        """(body, stops) => {
            for (const e of body.querySelectorAll("[data-stop]")) delete e.dataset.stop;
            return [...body.querySelectorAll(stops)]
                .filter(e => e.checkVisibility({visibilityProperty: true}) && !e.disabled && e.tabIndex >= 0)
                .filter(e => !e.closest("dialog:not([open])"))
                .map((e, at) => { e.dataset.stop = at; return at; }).length;
        }""",
        STOPS,
    )
    return set(range(count))


def active(frame: FrameLocator) -> Any:
    """The number of what has the focus, None outside of the tab."""
    return frame.locator("body").evaluate(
        "() => document.hasFocus() && document.activeElement !== document.body"
        " ? Number(document.activeElement.dataset.stop ?? -1) : null"
    )


@pytest.mark.reads
@pytest.mark.parametrize(
    "view",
    [
        view if view in ("overview", "layers", "step", "oom") else pytest.param(view, marks=pytest.mark.long)
        for view in VIEWS
    ],
)
def test_everything_is_reached_by_tab_and_nothing_holds_it(page: Page, address: str, view: str) -> None:
    place = {"view": view, "run": VIEWS[view], "layer": "vgg/block5_conv1", "step": 3}
    frame = harness.open_tab(page, address, urlencode(place))
    wanted = numbered(frame)
    assert len(wanted) > 15
    frame.locator("[data-stop='0']").focus()
    reached = {0}
    for _ in range(MOST):
        page.keyboard.press("Tab")
        now = active(frame)
        if now is None:
            break
        reached.add(now)
    else:
        pytest.fail(f"Tab does not leave the tab after {MOST} presses")
    unnamed = frame.locator("body").evaluate(
        "(body, left) => left.map(at => body.querySelector(`[data-stop='${at}']`).outerHTML.slice(0, 120))",
        sorted(wanted - reached),
    )
    assert unnamed == []


def go_to(page: Page, frame: FrameLocator, name: str) -> None:
    """Presses Tab until what is called so has the focus, and arrow keys within the list of tabs."""
    for _ in range(MOST):
        key = frame.locator("body").evaluate(
            """(body, name) => { const e = document.activeElement;
                const called = (e.getAttribute("aria-label") ?? (e.labels?.[0] ?? e).textContent).trim();
                if (called.startsWith(name) || (e.closest(".findings") !== null && called.includes(name))) return null;
                const tabs = [...(e.closest(".tabs")?.querySelectorAll("button") ?? [])];
                return tabs.some(tab => tab.textContent.startsWith(name)) ? "ArrowRight" : "Tab"; }""",
            name,
        )
        if key is None:
            return
        page.keyboard.press(key)
    pytest.fail(f"{name} is not reached by Tab")


@pytest.mark.reads
@pytest.mark.parametrize("number", sorted(ANSWERS))
def test_every_question_is_answered_by_keys_alone(page: Page, address: str, number: int) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": RUNS.get(number, "frozen")}))
    frame.locator("input").first.focus()
    for name in questions()[number]:
        go_to(page, frame, name)
        if name in TYPED:
            page.keyboard.type(TYPED[name])
        else:
            page.keyboard.press("Enter")
        harness.idle(frame)
    place, text = ANSWERS[number]
    expect(frame.locator(place).first).to_contain_text(text)
    assert frame.locator(place).first.is_visible()


def test_a_button_for_the_keyboard_skips_the_list_of_runs(page: Page, address: str) -> None:
    frame = harness.open_tab(page, address, urlencode({"run": "frozen"}))
    skip = frame.get_by_role("button", name="Skip to the view")
    assert not skip.evaluate("e => document.elementFromPoint(20, 15) === e")
    page.keyboard.press("Tab")
    expect(skip).to_be_focused()
    assert skip.evaluate("e => document.elementFromPoint(20, 15) === e")
    page.keyboard.press("Enter")
    expect(frame.locator("main")).to_be_focused()
    page.keyboard.press("Tab")
    assert frame.locator(":focus").evaluate("e => e.closest('.tabs') !== null && e.textContent") == "Overview"
