"""The whole tab without a pointer: everything is reached by Tab; `test_how_do_i.py` answers
questions by keys."""

from typing import Any
from urllib.parse import urlencode

import harness
import pytest
from page_views import VIEWS, mostly_long, run_of
from playwright.sync_api import FrameLocator, Page, expect

STOPS = """button, input, select, summary, a[href], [role='slider'], [tabindex='0']"""
MOST = 200
"""Presses of Tab before the test gives up."""


def numbered(frame: FrameLocator) -> set[int]:
    """Numbers everything that can be operated and gives the numbers."""
    count = frame.locator("body").evaluate(
        """(body, stops) => {
              for (const e of body.querySelectorAll("[data-stop]")) delete e.dataset.stop;
              return [...body.querySelectorAll(stops)]
                .filter(
                  (e) =>
                    e.checkVisibility({ visibilityProperty: true }) &&
                    !e.disabled &&
                    e.tabIndex >= 0,
                )
                .filter((e) => !e.closest("dialog:not([open])"))
                .map((e, at) => {
                  e.dataset.stop = at;
                  return at;
                }).length;
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
@pytest.mark.parametrize("view", mostly_long(VIEWS, ("overview", "layers", "step", "oom")))
def test_everything_is_reached_by_tab_and_nothing_holds_it(
    page: Page, address: str, view: str
) -> None:
    place = {"view": view, "run": run_of(view), "layer": "vgg/block5_conv1", "step": 3}
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
        "(body, left) => left.map(at => "
        "body.querySelector(`[data-stop='${at}']`).outerHTML.slice(0, 120))",
        sorted(wanted - reached),
    )
    assert unnamed == []


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
    assert (
        frame.locator(":focus").evaluate("e => e.closest('.tabs') !== null && e.textContent")
        == "Overview"
    )
