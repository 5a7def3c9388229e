"""Pictures of the Memory tab on a log directory: every view, light and dark.

usage: python tests/browser/screenshots.py LOGDIR OUTDIR [--run RUN] [--matrix]

With `--matrix` every view in every width from 900 to 2560 pixels, light and dark, with Roboto and
without, for looking through: `VIEW-WIDTH-SCHEME-FONT.png`, and `...-below.png` of what lies below
the first screen.
"""

import argparse
import base64
import importlib.util
import itertools
import json
import pathlib
import re
import sys
import urllib.parse
import urllib.request
import zipfile

from playwright.sync_api import Browser, FrameLocator, ViewportSize, sync_playwright

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import harness
from page_views import OF_STEPS

WIDE: ViewportSize = {"width": 1440, "height": 900}
MATRIX = {900: 800, 1180: 800, 1440: 900, 1920: 1080, 2560: 1440}
"""Heights of the windows by their widths, in CSS pixels."""
FONTS = ("fallback", "roboto")
ADD_FONTS = """(body, fonts) => Promise.all(fonts.map(async ([weight, data]) => {
    const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
    document.fonts.add(await new FontFace("Roboto", bytes, { weight }).load());
}))"""
SCROLL_DOWN = "main => { main.scrollTop = main.scrollHeight; return main.scrollTop > 40; }"


def roboto() -> list[tuple[str, str]]:
    """Weight and base64 of the Latin letters of Roboto, which TensorBoard contains for its own
    page."""
    found = importlib.util.find_spec("tensorboard")
    assert found and found.origin
    with zipfile.ZipFile(pathlib.Path(found.origin).parent / "webfiles.zip") as files:
        rules = files.read("font-roboto/roboto.html").decode().split("@font-face")[1:]
        latin = (
            rule
            for rule in rules
            if "U+0000-00FF" in rule and re.search("family: '?Roboto'?;", rule)
        )
        paths = (
            re.search(r"weight: (\d+);.*?url\(/(\S+?)\)", rule, re.DOTALL)
            for rule in latin
            if "normal" in rule
        )
        return [(path[1], base64.b64encode(files.read(path[2])).decode()) for path in paths if path]


def places(address: str, run: str) -> dict[str, str]:
    """Each view's place in the address: its run, and for a layer's page the layer that holds
    most."""
    with urllib.request.urlopen(f"{address}/data/plugin/tb_memplugin/runs") as answer:
        runs = json.load(answer)["runs"]
    died = next((each["run"] for each in runs if each["ooms"]), run)
    shown = next(each for each in runs if each["run"] == run)
    device, last = shown["devices"][0]["device"], None
    query = urllib.parse.urlencode({"run": run, "device": device})
    with urllib.request.urlopen(f"{address}/data/plugin/tb_memplugin/snapshots?{query}") as answer:
        last = [
            snapshot for snapshot in json.load(answer)["snapshots"] if snapshot["phase"] == "train"
        ][-1]["step"]
    with urllib.request.urlopen(
        f"{address}/data/plugin/tb_memplugin/snapshot?{query}&step={last}"
    ) as answer:
        ledger = [row for row in json.load(answer)["ledger"] if row["layer"]]
    layer = max(ledger, key=lambda row: int(row["bytes"]))["layer"]
    devices = max(runs, key=lambda each: len(each["devices"]))["run"]
    more = {"layer": {"layer": layer}, "oom": {"run": died}, "devices": {"run": devices}}
    return {
        view: urllib.parse.urlencode({"view": view, "run": run, **more.get(view, {})})
        for view in OF_STEPS
    }


def take(frame: FrameLocator, path: pathlib.Path) -> None:
    frame.locator("body").page.screenshot(path=path)
    print(path)


def take_documented(browser: Browser, address: str, arguments: argparse.Namespace) -> None:
    """The pictures of the documentation."""
    context = browser.new_context(viewport=WIDE, device_scale_factor=arguments.scale)
    page, shown = context.new_page(), places(address, arguments.run)
    for view, dark in itertools.product(arguments.views, (False, True)):
        page.goto("about:blank")
        frame = harness.open_tab(page, address, shown[view], dark)
        take(frame, arguments.outdir / f"{view}-{'dark' if dark else 'light'}-wide.png")
    context.close()


def take_matrix(browser: Browser, address: str, arguments: argparse.Namespace) -> None:
    """The pictures for looking through."""
    shown, fonts = places(address, arguments.run), roboto()
    for (width, height), font in itertools.product(MATRIX.items(), FONTS):
        context = browser.new_context(
            viewport={"width": width, "height": height}, device_scale_factor=arguments.scale
        )
        page = context.new_page()
        for view, dark in itertools.product(arguments.views, (False, True)):
            page.goto("about:blank")
            frame = harness.open_tab(page, address, shown[view], dark)
            if font == "roboto":
                frame.locator("body").evaluate(ADD_FONTS, fonts)
                # Canvases measure and paint their texts anew.
                page.set_viewport_size({"width": width, "height": height + 1})
                page.set_viewport_size({"width": width, "height": height})
                harness.idle(frame)
            name = f"{view}-{width}-{'dark' if dark else 'light'}-{font}"
            take(frame, arguments.outdir / f"{name}.png")
            if frame.locator("main").evaluate(SCROLL_DOWN):
                take(frame, arguments.outdir / f"{name}-below.png")
        context.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("logdir")
    parser.add_argument("outdir", type=pathlib.Path)
    parser.add_argument("--run", default="frozen", help="the run shown as a stack")
    parser.add_argument("--scale", type=float, default=1, help="device pixels for each CSS pixel")
    parser.add_argument(
        "--matrix", action="store_true", help="every width, scheme and font, for looking through"
    )
    parser.add_argument("--views", nargs="*", default=OF_STEPS, choices=OF_STEPS)
    arguments = parser.parse_args()
    arguments.outdir.mkdir(parents=True, exist_ok=True)
    with harness.tensorboard(arguments.logdir) as address, sync_playwright() as playwright:
        browser = harness.launch(playwright)
        (take_matrix if arguments.matrix else take_documented)(browser, address, arguments)
        browser.close()


if __name__ == "__main__":
    main()
