"""Starts the real TensorBoard and opens its Memory tab in Chromium."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence

from playwright.sync_api import Browser, FrameLocator, Page, Playwright

START_SECONDS = 60
IDLE_MILLISECONDS = 30_000
CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


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
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", logdir, "--host", "127.0.0.1", "--port", str(port)]
    if prefix:
        command += ["--path_prefix", prefix]
    with subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait_for(f"{address}/data/plugin/tb_memplugin/runs", server)
            yield address
        finally:
            server.terminate()
            server.wait(20)


def _wait_for(url: str, server: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and server.poll() is None:
        with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(url, timeout=5) as answer:
            if answer.status == 200:
                return
        time.sleep(0.2)
    raise RuntimeError(f"TensorBoard did not answer {url} within {START_SECONDS} s")


def tab_url(address: str, at: str = "", dark: bool = False) -> str:
    """The address of the Memory tab; `at` is the page's own part, as it writes it."""
    query = "?darkMode=true" if dark else "?darkMode=false"
    place = f"&p.tb_memplugin.at={_quote(at)}" if at else ""
    return f"{address}/{query}#tb_memplugin{place}"


def _quote(text: str) -> str:
    return urllib.request.quote(text, safe="")  # type: ignore[attr-defined,no-any-return]


def open_tab(page: Page, address: str, at: str = "", dark: bool = False) -> FrameLocator:
    """The tab's frame, once it has painted what it loaded."""
    page.goto(tab_url(address, at, dark))
    frame = page.frame_locator("iframe[src*='tb_memplugin']")
    idle(frame)
    return frame


def resize(page: Page, frame: FrameLocator, width: int, height: int) -> None:
    """Gives the window another size; returns once the page has laid itself out and painted."""
    page.set_viewport_size({"width": width, "height": height})
    frame.locator("body").evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(null))))"
    )
    idle(frame)


def idle(frame: FrameLocator) -> None:
    """Waits until the page neither loads nor paints."""
    frame.locator(":root[data-idle='true']").wait_for(state="attached", timeout=IDLE_MILLISECONDS)
