"""``tb-memplugin view`` in Chromium: the page alone, with its own address, its own colours and the same values."""

import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import harness
import pytest
from playwright.sync_api import Browser, FrameLocator, Page, expect


@pytest.fixture(scope="module")
def viewer(logdir: pathlib.Path) -> Iterator[str]:
    """Address of the viewer as the command line prints it."""
    command = [sys.executable, "-m", "tb_memplugin", "view", str(logdir), "--port", "0", "--host", "127.0.0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0


def place(page: Page) -> dict[str, str]:
    """The page's own part of the address."""
    return {name: values[-1] for name, values in parse_qs(urlsplit(page.url).fragment).items()}


def test_it_shows_what_the_tab_shows(page: Page, address: str, viewer: str) -> None:
    # GIVEN the tab in TensorBoard's frame: its text, and the colours of the runs
    tab = harness.open_tab(page, address, "run=frozen")
    text, colours = tab.locator("body").inner_text(), run_colours(tab)
    assert "MiB" in text and len(set(colours)) > 1
    failed: list[str] = []
    page.on("response", lambda answer: failed.append(answer.url) if answer.status >= 400 else None)
    # WHEN the page is opened alone
    page.goto(f"{viewer}#run=frozen")
    harness.idle(page)  # type: ignore[arg-type]
    # THEN it shows the same, and every request is answered
    assert page.locator("body").inner_text() == text
    assert run_colours(page) == colours
    assert page.title() == "Memory"
    assert failed == []


def run_colours(frame: Page | FrameLocator) -> list[str]:
    """Colours of the runs' boxes."""
    boxes = frame.locator("input[type='checkbox']").all()
    return [box.evaluate("input => getComputedStyle(input).accentColor") for box in boxes]


def test_the_address_holds_the_choices_and_back_undoes_a_view(page: Page, viewer: str) -> None:
    page.goto(viewer)
    harness.idle(page)  # type: ignore[arg-type]
    page.get_by_role("button", name="frozen", exact=True).click()
    page.get_by_role("button", name="Layers", exact=True).click()
    expect(page.get_by_test_id("layers")).to_be_visible()
    assert place(page) == {"view": "layers", "run": "frozen"}
    # WHEN it is loaded again, it shows the same
    page.reload()
    expect(page.get_by_test_id("layers")).to_be_visible()
    # AND Back undoes the change of the view, but not the choice of the run
    page.go_back()
    expect(page.get_by_test_id("layers")).to_have_count(0)
    assert place(page) == {"run": "frozen"}


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
    browser: Browser, viewer: str, scheme: Any, query: str, expected: str
) -> None:
    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    page.goto(f"{viewer}{query}#view=layers&run=frozen")
    harness.idle(page)  # type: ignore[arg-type]
    assert page.locator("html").get_attribute("data-scheme") == expected
    page.get_by_role("button", name="Overview", exact=True).click()
    assert urlsplit(page.url).query == query.removeprefix("?"), "the choice is lost with the next view"
    context.close()
