"""Performs the clicks that docs/how_do_i.md writes down, also by keys, and looks whether the answer
stands there."""

import pathlib
import re
from urllib.parse import urlencode

import harness
import pytest
from playwright.sync_api import FrameLocator, Page, expect
from test_keyboard import MOST

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "how_do_i.md"
RUNS = {4: "died_fragmentation", 5: "growing", 7: "requests", 9: "requests"}
TYPED = {"Run B": "all_trainable", "batch size": "128", "budget": "1GiB"}
"""What is chosen or typed where a click alone does not do."""
ANSWERS = {
    1: ("[data-testid='layers'] thead", "activations"),
    2: ("[data-testid='changes']", "18.0 MiB of weights became trainable"),
    3: (".device-memory", "TensorFlow's pool holds 256 MiB"),
    4: (".verdict", "Free memory is fragmented"),
    5: (".legend", "step end"),
    6: ("[data-testid='difference']", "than A"),
    7: (".what-if .verdict", "Does not fit: "),
    8: ("[data-answer='fits']", "headroom"),
    9: ("[data-testid='plan-verdict']", "1.0 GiB"),
}


def questions() -> dict[int, list[str]]:
    """Number of each question and the clicks that answer it."""
    sections = re.split(r"^## (\d)\. ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    found = {}
    for number, text in zip(sections[::2], sections[1::2], strict=True):
        (clicks,) = re.findall(r"^Clicks: (.+)$", text, re.MULTILINE)
        found[int(number)] = re.findall(r"\*\*(.+?)\*\*", clicks)
    return found


def click(frame: FrameLocator, name: str) -> None:
    if name in TYPED:
        field = frame.get_by_label(name, exact=True)
        is_list = field.evaluate("field => field.tagName === 'SELECT'")
        (field.select_option if is_list else field.fill)(TYPED[name])
        return
    whole = frame.get_by_role("button", name=name, exact=True)
    (whole if whole.count() else frame.get_by_role("button", name=name)).first.click()


def test_all_nine_are_answered() -> None:
    assert sorted(questions()) == sorted(ANSWERS) == list(range(1, 10))


def press(page: Page, frame: FrameLocator, name: str) -> None:
    """Presses Tab until what is called so has the focus, arrow keys within the list of tabs, and
    then its key."""
    for _ in range(MOST):
        key = frame.locator("body").evaluate(
            """(body, name) => {
                  const e = document.activeElement;
                  const called = (
                    e.getAttribute("aria-label") ?? (e.labels?.[0] ?? e).textContent
                  ).trim();
                  const inside = e.closest(".findings, [data-testid='answers']") !== null;
                  if (called.startsWith(name) || (inside && called.includes(name))) return null;
                  const tabs = [...(e.closest(".tabs")?.querySelectorAll("button") ?? [])];
                  return tabs.some((tab) => tab.textContent.startsWith(name))
                    ? "ArrowRight"
                    : "Tab";
                }""",
            name,
        )
        if key is None:
            return (
                page.keyboard.type(TYPED[name]) if name in TYPED else page.keyboard.press("Enter")
            )
        page.keyboard.press(key)
    pytest.fail(f"{name} is not reached by Tab")


@pytest.mark.reads
@pytest.mark.parametrize("keys", [False, True], ids=["clicks", "keys"])
@pytest.mark.parametrize("number", sorted(ANSWERS))
def test_at_most_two_clicks_or_keys_alone(
    page: Page, address: str, number: int, keys: bool
) -> None:
    clicks = questions()[number]
    assert len(clicks) <= 2
    frame = harness.open_tab(page, address, urlencode({"run": RUNS.get(number, "frozen")}))
    frame.locator("input").first.focus()
    for name in clicks:
        press(page, frame, name) if keys else click(frame, name)
        harness.idle(frame)
    place, text = ANSWERS[number]
    expect(frame.locator(place).first).to_contain_text(text)
    assert frame.locator(place).first.is_visible()
