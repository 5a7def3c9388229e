"""The page on runs written with the package's own writer, watched from Chromium: alone, and in the
real TensorBoard."""

import json
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("playwright", reason="the browser tests need playwright: make test installs it")

from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Dialog,
    Frame,
    Page,
    Request,
    expect,
    sync_playwright,
)

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import harness
import logdirs
import sample_runs

LOG_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) => {
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI}`);
});
"""
expect.set_options(timeout=harness.GIVE_UP_MILLISECONDS)
VIEWPORT: Any = {"width": 1440, "height": 900}
AWAY = (5, 5)
"""Where the pointer is in no picture."""


def is_ours(frame: Frame) -> bool:
    """False of TensorBoard's own document around the page, which stands at a path that ends with a
    slash."""
    address = urlsplit(frame.url)
    return harness.in_viewer(frame.url) or not (
        address.scheme == "http" and address.path.endswith("/")
    )


class Watch:
    """What went wrong in a page since the last check.

    Requests of TensorBoard's own document do not count: without Roboto installed it requests the
    font from the server's root, and under a path prefix gets a 404.
    """

    def __init__(self, page: Page) -> None:
        self._errors: list[tuple[str, str]] = []
        self._ours: set[str] = set()
        self._theirs: set[str] = set()
        page.add_init_script(LOG_VIOLATIONS)
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self._errors.append((str(error), "")))
        page.on("dialog", self._on_dialog)
        page.on("request", self._on_request)

    def _on_console(self, message: ConsoleMessage) -> None:
        # A document of its own, without a host, has no icon to offer.
        if message.type == "error" and not message.location.get("url", "").endswith("/favicon.ico"):
            self._errors.append((message.text, message.location.get("url", "")))

    def _on_dialog(self, dialog: Dialog) -> None:
        self._errors.append((f"a name was run as a script: {dialog.message}", ""))
        dialog.dismiss()

    def _on_request(self, request: Request) -> None:
        ours = request.is_navigation_request() or is_ours(request.frame)
        (self._ours if ours else self._theirs).add(request.url)

    def check(self) -> None:
        """Fails if ours logged an error, broke the policy, opened a dialog, or left the machine;
        then forgets all."""
        theirs = self._theirs - self._ours
        failed = "Failed to load resource"
        errors = [
            one for one in self._errors if not (one[0].startswith(failed) and one[1] in theirs)
        ]
        left = [
            url
            for url in self._ours | self._theirs
            if urlsplit(url).hostname not in (None, "127.0.0.1")
        ]
        for seen in (self._errors, self._ours, self._theirs):
            seen.clear()  # type: ignore[attr-defined]
        assert errors == []
        assert left == []


@pytest.fixture(scope="session")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return logdirs.made_once(tmp_path_factory, "sample-runs", sample_runs.write_all)


@pytest.fixture(scope="session")
def inspected(logdir: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What ``inspect --format json`` says of every run."""
    command = [sys.executable, "-m", "tb_memplugin", "inspect", str(logdir), "--format", "json"]

    def write(file: pathlib.Path) -> None:
        file.write_bytes(subprocess.run(command, check=True, capture_output=True).stdout)

    answer = logdirs.made_once(tmp_path_factory, "sample-runs.json", write)
    result: dict[str, Any] = json.loads(answer.read_text("utf-8"))["runs"]
    return result


@pytest.fixture(scope="session")
def tensorboard(logdir: pathlib.Path) -> Iterator[str]:
    """Address of a TensorBoard as it starts by default, on the fixture ``logdir``: its tab takes
    seconds to load."""
    with harness.tensorboard(str(logdir)) as address:
        yield address


address = logdirs.address_of_logdir("session")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = harness.launch(playwright)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def watched(browser: Browser) -> tuple[Page, Watch]:
    """The page that the tests of a process share: a context of its own costs a second of processor
    time."""
    page = browser.new_context(viewport=VIEWPORT).new_page()
    page.set_default_timeout(harness.GIVE_UP_MILLISECONDS)
    return page, Watch(page)


@pytest.fixture
def page(watched: tuple[Page, Watch], request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page without a document, at 1440 x 900 pixels, that fails its test by `Watch.check`.

    Tests with the mark `reads` change nothing but the address: they leave their document to the
    next one of them.
    """
    page, watch = watched
    reads = request.node.get_closest_marker("reads") is not None
    if not reads and page.url != "about:blank":
        page.goto("about:blank")
    yield page
    page.unroute_all(behavior="ignoreErrors")
    page.mouse.move(*AWAY)
    if not reads:
        page.goto("about:blank")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(VIEWPORT)
    watch.check()


@pytest.fixture
def fresh_page(browser: Browser) -> Iterator[Page]:
    """As `page`, in a context of its own: for a test after which the page could not be used
    again."""
    page = browser.new_page(viewport=VIEWPORT)
    page.set_default_timeout(harness.GIVE_UP_MILLISECONDS)
    watch = Watch(page)
    yield page
    page.goto("about:blank")
    watch.check()
    page.close()
