"""``tb-memplugin view`` in Chromium: the page alone, with its own address and its own colours."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import harness
import pytest
from playwright.sync_api import Page, Route, expect


def place(page: Page) -> dict[str, str]:
    """The page's own part of the address."""
    return {name: values[-1] for name, values in parse_qs(urlsplit(page.url).fragment).items()}


def test_the_address_holds_the_choices_and_back_undoes_a_view(page: Page, address: str) -> None:
    page.goto(address)
    harness.idle(page)  # type: ignore[arg-type]
    page.locator(".run").get_by_text("frozen", exact=True).click()
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
    page: Page, address: str, scheme: Any, query: str, expected: str
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{address}/{query}#view=layers&run=frozen")
    harness.idle(page)  # type: ignore[arg-type]
    assert page.locator("html").get_attribute("data-scheme") == expected
    page.get_by_role("button", name="Overview", exact=True).click()
    assert urlsplit(page.url).query == query.removeprefix("?"), "the choice is lost with the next view"


@pytest.mark.parametrize(
    ("view", "shown"), [("overview", ".u-over"), ("layers", "[data-testid='layers']"), ("oom", ".oom section")]
)
def test_a_run_that_is_being_read_is_shown_as_soon_as_it_has_been_read(
    page: Page, address: str, view: str, shown: str
) -> None:
    # GIVEN a run that the server has not read at the first two requests for the list
    run = "died_fragmentation" if view == "oom" else "frozen"
    labels: list[str] = []

    def answer_late(route: Route) -> None:
        answer = route.fetch()
        runs = answer.json()
        if len(labels) < 2:
            labels.append(page.locator(".run.primary .run-status").inner_text() if labels else "")
            (read,) = (one for one in runs["runs"] if one["run"] == run)
            read |= {"status": "reading", "devices": [], "phases": [], "steps": 0, "ooms": 0}
        route.fulfill(response=answer, json=runs)

    page.route("**/tb_memplugin/runs", answer_late)
    # WHEN the page is opened
    frame = harness.open_tab(page, address, f"view={view}&run={run}")
    # THEN it waits, and says nothing about the run before: neither that it has no data, nor another run's
    assert labels == ["", "being read"]
    assert frame.locator(shown).count() > 0
    assert frame.locator(".tile.blank").count() == 0 and frame.locator(".tile").count() == 4
