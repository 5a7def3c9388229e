"""Starts a server on runs, the real TensorBoard or `tb-memplugin view`, and opens the page in
Chromium."""

import contextlib
import io
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from typing import cast
from urllib.parse import unquote, urlsplit

from playwright.sync_api import Browser, FrameLocator, Page, Playwright, Route

from tb_memplugin.cli import main

# When to give up: how long a start or a page takes is no claim of a test, and on a busy machine it
# is long.
START_SECONDS = 200
GIVE_UP_MILLISECONDS = 120_000
CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def printed(*arguments: str) -> str:
    """What the command line prints, run in this process: a new one would spend a second on
    imports."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(list(arguments)) == 0
    return out.getvalue()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def chromium_path() -> str | None:
    """The system's Chromium or Chrome, None if Playwright's own must do."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


def launch(playwright: Playwright) -> Browser:
    return playwright.chromium.launch(executable_path=chromium_path(), args=list(CHROMIUM_FLAGS))


@contextlib.contextmanager
def tensorboard(logdir: str, options: Sequence[str] = (), prefix: str = "") -> Iterator[str]:
    """A running TensorBoard; gives its address."""
    port = free_port()
    address = f"http://127.0.0.1:{port}{prefix}"
    command = [
        sys.executable,
        "-m",
        "tensorboard.main",
        "--logdir",
        logdir,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    if prefix:
        command += ["--path_prefix", prefix]
    with subprocess.Popen(
        [*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            _wait_for(f"{address}/data/plugin/tb_memplugin/runs", server)
            yield address
        finally:
            server.terminate()
            server.wait(20)


def _wait_for(url: str, server: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        # An answer that takes long is waited for: another request would only add to the server's
        # work.
        with (
            contextlib.suppress(urllib.error.URLError, OSError),
            urllib.request.urlopen(url, timeout=60) as answer,
        ):
            if answer.status == 200:
                return
        time.sleep(0.2)
    raise RuntimeError(f"TensorBoard did not answer {url} within {START_SECONDS} s")


_VIEWERS: set[str] = set()
"""Addresses of the viewers that this process started."""


@contextlib.contextmanager
def viewer(logdir: str) -> Iterator[str]:
    """A running `tb-memplugin view`; gives the address that it prints. The page loads ten times as
    fast as in a tab."""
    command = [
        sys.executable,
        "-m",
        "tb_memplugin",
        "view",
        logdir,
        "--port",
        "0",
        "--host",
        "127.0.0.1",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        server.stdout.readline()
        address = server.stdout.readline().strip().rstrip("/")
        _VIEWERS.add(address)
        try:
            yield address
        finally:
            server.terminate()
            server.wait(20)


def in_viewer(url: str) -> bool:
    """Whether a document's address is that of the page alone, without TensorBoard's frame."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" in _VIEWERS


def tab_url(address: str, at: str = "", dark: bool | None = False) -> str:
    """The address of the page at `address`; `at` is the page's own part, as it writes it. The
    system may choose."""
    query = "" if dark is None else "?darkMode=true" if dark else "?darkMode=false"
    if address in _VIEWERS:
        return f"{address}/{query}#{at}"
    place = f"&p.tb_memplugin.at={_quote(at)}" if at else ""
    return f"{address}/{query}#tb_memplugin{place}"


def _quote(text: str) -> str:
    return urllib.request.quote(text, safe="")  # type: ignore[attr-defined,no-any-return]


def open_tab(page: Page, address: str, at: str = "", dark: bool | None = False) -> FrameLocator:
    """The page, in TensorBoard's frame or alone, once it has painted what it loaded.

    A page that is open already keeps its document and follows the address, as it does with the Back
    button.
    """
    url = tab_url(address, at, dark)
    if address in _VIEWERS:
        return open_alone(page, url)
    page.goto(url)
    frame = page.frame_locator("iframe[src*='tb_memplugin']")
    idle(frame)
    return frame


def open_alone(page: Page, url: str) -> FrameLocator:
    """As `open_tab`, for the whole address of a page without TensorBoard's frame, as that of a
    report."""
    document, _, fragment = url.partition("#")
    here, _, now = str(page.evaluate("() => location.href")).partition("#")
    if here == document and fragment not in ("", now):
        page.evaluate(FOLLOW, fragment)
    else:
        if here == document:
            page.goto("about:blank")
        page.goto(url)
    frame = cast(FrameLocator, page)  # offers the same locators
    idle(frame)
    return frame


FOLLOW = """fragment => new Promise(done => {
    const painted = () => requestAnimationFrame(() => requestAnimationFrame(() => done(null)));
    addEventListener("hashchange", painted, { once: true });
    location.hash = fragment;
})"""


def place(page: Page) -> str:
    """The page's own part of the address, as the page writes it; `page.url` may lag behind."""
    fragment = str(page.evaluate("() => location.hash")).removeprefix("#")
    if in_viewer(page.url):
        return fragment
    return unquote(fragment.partition("p.tb_memplugin.at=")[2].partition("&")[0])


def resize(page: Page, frame: FrameLocator, width: int, height: int) -> None:
    """Gives the window another size; returns once the page has laid itself out and painted."""
    page.set_viewport_size({"width": width, "height": height})
    settled(frame)


def settled(frame: FrameLocator) -> None:
    """Returns once what the page did upon the last event is painted: after two frames, and then
    idle."""
    frame.locator("body").evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => "
        "done(null))))"
    )
    idle(frame)


def idle(frame: FrameLocator) -> None:
    """Waits until the page neither loads nor paints."""
    frame.locator(":root[data-idle='true']").wait_for(
        state="attached", timeout=GIVE_UP_MILLISECONDS
    )


class Held:
    """Keeps a page's requests from the server, from `hold` until they are let through.

    A page says that it waits before its request arrives here: what arrives after `let_through` goes
    on at once.
    """

    def __init__(self, page: Page, url: str | re.Pattern[str]) -> None:
        """Be able to hold the requests of `page` whose address matches `url`, a glob or a regular
        expression.

        The page must not have opened a document yet: Chromium tells an open one of the interception
        after saying that it is on, and a key or a click that comes next overtakes it where the page
        is busy. Its request is then neither held nor ever reported.
        """
        assert page.url == "about:blank", page.url
        self._waiting: list[Route] = []
        self._holds = False
        page.route(url, self._arrived)

    def _arrived(self, route: Route) -> None:
        self._waiting.append(route) if self._holds else route.continue_()

    def hold(self) -> None:
        """Hold what arrives from now on."""
        self._holds = True

    def let_through(self) -> None:
        """Send on what waits and what arrives until `hold` is called."""
        self._holds = False
        while self._waiting:
            self._waiting.pop(0).continue_()
