"""Pictures of the Memory tab on a log directory: every view, light and dark, wide and narrow.

usage: python tests/browser/screenshots.py LOGDIR OUTDIR [--run RUN]
"""

import argparse
import json
import pathlib
import sys
import urllib.parse
import urllib.request

from playwright.sync_api import sync_playwright

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import harness

VIEWS = ("overview", "layers", "layer", "frozen", "step", "fragmentation", "oom", "what-if", "compare")
SIZES = {"wide": {"width": 1440, "height": 900}, "narrow": {"width": 820, "height": 1180}}


def places(address: str, run: str) -> dict[str, str]:
    """Each view's place in the address: its run, and for a layer's page the layer that holds most."""
    with urllib.request.urlopen(f"{address}/data/plugin/tb_memplugin/runs") as answer:
        runs = json.load(answer)["runs"]
    died = next((each["run"] for each in runs if each["ooms"]), run)
    shown = next(each for each in runs if each["run"] == run)
    device, last = shown["devices"][0]["device"], None
    query = urllib.parse.urlencode({"run": run, "device": device})
    with urllib.request.urlopen(f"{address}/data/plugin/tb_memplugin/snapshots?{query}") as answer:
        last = [snapshot for snapshot in json.load(answer)["snapshots"] if snapshot["phase"] == "train"][-1]["step"]
    with urllib.request.urlopen(f"{address}/data/plugin/tb_memplugin/snapshot?{query}&step={last}") as answer:
        ledger = [row for row in json.load(answer)["ledger"] if row["layer"]]
    layer = max(ledger, key=lambda row: int(row["bytes"]))["layer"]
    more = {"layer": {"layer": layer}, "oom": {"run": died}}
    return {view: urllib.parse.urlencode({"view": view, "run": run, **more.get(view, {})}) for view in VIEWS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("logdir")
    parser.add_argument("outdir", type=pathlib.Path)
    parser.add_argument("--run", default="frozen", help="the run shown as a stack")
    parser.add_argument("--scale", type=float, default=1, help="device pixels for each CSS pixel")
    parser.add_argument("--views", nargs="*", default=VIEWS, choices=VIEWS)
    arguments = parser.parse_args()
    arguments.outdir.mkdir(parents=True, exist_ok=True)
    with harness.tensorboard(arguments.logdir) as address, sync_playwright() as playwright:
        browser = harness.launch(playwright)
        for size, viewport in SIZES.items():
            for dark in (False, True):
                context = browser.new_context(viewport=viewport, device_scale_factor=arguments.scale)
                for view, place in places(address, arguments.run).items():
                    if view not in arguments.views:
                        continue
                    page = context.new_page()
                    harness.open_tab(page, address, place, dark)
                    name = f"{view}-{'dark' if dark else 'light'}-{size}.png"
                    page.screenshot(path=arguments.outdir / name)
                    print(arguments.outdir / name)
                    page.close()
                context.close()
        browser.close()


if __name__ == "__main__":
    main()
