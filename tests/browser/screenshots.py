"""Pictures of the Memory tab on a log directory: every view, light and dark, wide and narrow.

usage: python tests/browser/screenshots.py LOGDIR OUTDIR [--run RUN]
"""

import argparse
import pathlib
import sys
import urllib.parse

from playwright.sync_api import sync_playwright

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import harness

VIEWS = ("overview", "frozen", "fragmentation")
SIZES = {"wide": {"width": 1440, "height": 900}, "narrow": {"width": 820, "height": 1180}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logdir")
    parser.add_argument("outdir", type=pathlib.Path)
    parser.add_argument("--run", default="frozen", help="the run shown as a stack")
    arguments = parser.parse_args()
    arguments.outdir.mkdir(parents=True, exist_ok=True)
    with harness.tensorboard(arguments.logdir) as address, sync_playwright() as playwright:
        browser = harness.launch(playwright)
        for size, viewport in SIZES.items():
            for dark in (False, True):
                context = browser.new_context(viewport=viewport, device_scale_factor=2 if size == "wide" else 1)
                for view in VIEWS:
                    page = context.new_page()
                    harness.open_tab(page, address, urllib.parse.urlencode({"view": view, "run": arguments.run}), dark)
                    name = f"{view}-{'dark' if dark else 'light'}-{size}.png"
                    page.screenshot(path=arguments.outdir / name)
                    print(arguments.outdir / name)
                    page.close()
                context.close()
        browser.close()


if __name__ == "__main__":
    main()
