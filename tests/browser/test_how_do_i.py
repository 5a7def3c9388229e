"""Performs the clicks that docs/how_do_i.md writes down, and looks whether the answer stands there."""

import pathlib
import re
from urllib.parse import urlencode

import harness
import pytest
from playwright.sync_api import FrameLocator, Page, expect

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "how_do_i.md"
RUNS = {4: "died_fragmentation", 5: "growing", 7: "requests"}
TYPED = {"Run B": "all_trainable", "batch size": "128"}
"""What is chosen or typed where a click alone does not do."""
ANSWERS = {
    1: ("[data-testid='layers'] th[aria-sort='descending']", "activations"),
    2: ("[data-testid='changes']", "18.0 MiB of weights became trainable"),
    3: (".device-memory", "TensorFlow's pool holds 256 MiB"),
    4: (".verdict", "Free memory is fragmented"),
    5: (".legend", "in use at step end"),
    6: ("[data-testid='difference']", "than A"),
    7: (".what-if .verdict", "Does not fit: "),
    8: ("[data-answer='fits']", "headroom"),
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


def test_all_eight_are_answered() -> None:
    assert sorted(questions()) == sorted(ANSWERS) == list(range(1, 9))


@pytest.mark.reads
@pytest.mark.parametrize("number", sorted(ANSWERS))
def test_at_most_two_clicks(page: Page, address: str, number: int) -> None:
    clicks = questions()[number]
    assert len(clicks) <= 2
    frame = harness.open_tab(page, address, urlencode({"run": RUNS.get(number, "frozen")}))
    for name in clicks:
        click(frame, name)
        harness.idle(frame)
    place, text = ANSWERS[number]
    expect(frame.locator(place).first).to_contain_text(text)
