"""The real TensorBoard on runs written with the package's own writer, watched from Chromium."""

import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Literal
from urllib.parse import urlsplit

import pytest

pytest.importorskip("playwright", reason="the browser tests need playwright: make test installs it")

from playwright.sync_api import Browser, ConsoleMessage, Frame, Page, Request, sync_playwright

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import harness
import sample_runs

VIOLATIONS = """
window.__violations = [];
document.addEventListener("securitypolicyviolation", (event) => {
  window.__violations.push(event.violatedDirective + " " + event.blockedURI);
});
"""


@pytest.fixture(scope="session")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    directory = tmp_path_factory.mktemp("runs")
    sample_runs.write_all(directory)
    return directory


@pytest.fixture(scope="session")
def inspected(logdir: pathlib.Path) -> dict[str, Any]:
    """What ``inspect --format json`` says of every run."""
    command = [sys.executable, "-m", "tb_memplugin", "inspect", str(logdir), "--format", "json"]
    result: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)[
        "runs"
    ]
    return result


@pytest.fixture(scope="session", params=["--load_fast=true", "--load_fast=false"])
def each_reader(request: pytest.FixtureRequest, logdir: pathlib.Path) -> Iterator[str]:
    """Address of a TensorBoard, once with each of its readers."""
    with harness.tensorboard(str(logdir), [request.param]) as address:
        yield address


def address_of_logdir(scope: Literal["session", "module"]) -> Any:
    """The fixture ``address``: address of a TensorBoard as it starts by default, on the fixture ``logdir``."""

    @pytest.fixture(scope=scope)
    def address(logdir: pathlib.Path) -> Iterator[str]:
        with harness.tensorboard(str(logdir)) as address:
            yield address

    return address


address = address_of_logdir("session")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = harness.launch(playwright)
        yield browser
        browser.close()


def is_ours(frame: Frame) -> bool:
    """False of TensorBoard's own document around the page, which stands at a path that ends with a slash."""
    address = urlsplit(frame.url)
    return not (address.scheme == "http" and address.path.endswith("/"))


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that fails its test if ours logs an error, breaks the security policy, or leaves the machine.

    Requests of TensorBoard's own document do not count: without Roboto installed it requests the font from the server's
    root, and under a path prefix gets a 404.
    """
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.add_init_script(VIOLATIONS)
    page = context.new_page()
    errors: list[tuple[str, str]] = []
    ours: set[str] = set()
    theirs: set[str] = set()

    def on_console(message: ConsoleMessage) -> None:
        # A document of its own, without a host, has no icon to offer.
        if message.type == "error" and not message.location.get("url", "").endswith("/favicon.ico"):
            errors.append((message.text, message.location.get("url", "")))

    def on_request(request: Request) -> None:
        (ours if request.is_navigation_request() or is_ours(request.frame) else theirs).add(request.url)

    page.on("console", on_console)
    page.on("pageerror", lambda error: errors.append((str(error), "")))
    page.on("request", on_request)
    yield page
    violations = [text for frame in page.frames for text in frame.evaluate("() => window.__violations ?? []")]
    context.close()
    assert [
        (text, url) for text, url in errors if not (text.startswith("Failed to load resource") and url in theirs - ours)
    ] == []
    assert violations == []
    assert [url for url in ours | theirs if urlsplit(url).hostname not in (None, "127.0.0.1")] == []
