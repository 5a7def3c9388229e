"""``tb-memplugin view`` in Chromium: the page alone, with its own address and its own colours."""

from typing import Any
from urllib.parse import urlsplit

import harness
import pytest
from playwright.sync_api import Page


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
    page: Page, address: str, scheme: Any, query: str, expected: str
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{address}/{query}#view=layers&run=frozen")
    harness.idle(page)  # type: ignore[arg-type]
    assert page.locator("html").get_attribute("data-scheme") == expected
    page.get_by_role("button", name="Overview", exact=True).click()
    assert urlsplit(page.url).query == query.removeprefix("?"), "the choice is lost with the next view"
