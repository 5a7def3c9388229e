"""``tb-memplugin view`` in Chromium: the page alone, with its own address and its own colours."""

from urllib.parse import urlsplit

import harness
import pytest


@pytest.mark.parametrize(
    ("scheme", "query", "expected"),
    [
        ("light", "", "light"),
        ("dark", "", "dark"),
        ("light", "?darkMode=true", "dark"),
        ("dark", "?darkMode=false", "light"),
    ],
)
def test_the_system_chooses_light_or_dark_unless_the_address_does(page, address, scheme, query, expected) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{address}/{query}#view=layers&run=frozen")
    harness.idle(page)  # type: ignore[arg-type]
    assert page.locator("html").get_attribute("data-scheme") == expected
    page.get_by_role("button", name="Overview", exact=True).click()
    assert urlsplit(page.url).query == query.removeprefix("?"), "the choice is lost with the next view"
