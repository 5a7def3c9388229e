"""Runs all scenarios, or the named ones, and writes docs/scenarios.md from their recordings.

The measured figures are kept in docs/scenarios.json, by device: a run on a GPU adds a section to the page and leaves
the CPU's figures as they are.

usage: python demo/scenarios/run_all.py [--logdir runs/scenarios] [--jobs 2] [--write] [--page-only] [NAME ...]
"""

import argparse
import concurrent.futures
import importlib
import json
import os
import pathlib
import sys

from scenario import Scenario
from scenario.page import page
from scenario.run import LOGDIR, measured, run

HERE = pathlib.Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs"


def load_scenarios() -> list[Scenario]:
    """All scenarios of this folder, by their number. The environment stays as it is."""
    environment = dict(os.environ)
    found = [
        importlib.import_module(path.stem).SCENARIO
        for path in HERE.glob("*.py")
        if "\nSCENARIO = " in path.read_text(encoding="utf-8")
    ]
    # Each file sets what its own process needs, before it imports TensorFlow. Nobody else should inherit that.
    os.environ.clear()
    os.environ.update(environment)
    return sorted(found, key=lambda one: one.number)


def stored() -> dict:
    """The figures of docs/scenarios.json, by device and scenario."""
    path = DOCS / "scenarios.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def main() -> None:
    scenarios = load_scenarios()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="scenarios to run (default: all)")
    parser.add_argument("--logdir", type=pathlib.Path, default=LOGDIR)
    parser.add_argument("--jobs", type=int, default=1, help="scenarios that run at the same time")
    parser.add_argument("--write", action="store_true", help="write docs/scenarios.json and docs/scenarios.md")
    parser.add_argument("--measure-only", action="store_true", help="train nothing: measure the runs in --logdir again")
    parser.add_argument(
        "--page-only", action="store_true", help="train nothing: write the page from the stored figures"
    )
    arguments = parser.parse_args()
    unknown = set(arguments.names) - {one.name for one in scenarios}
    if unknown:
        parser.error(f"no such scenario: {', '.join(sorted(unknown))}")
    chosen = [one for one in scenarios if not arguments.names or one.name in arguments.names]
    results, failed = stored(), []
    if not arguments.page_only:
        with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
            work = measured if arguments.measure_only else run
            pending = {one.name: pool.submit(work, one, arguments.logdir) for one in chosen}
        for name, future in pending.items():
            if error := future.exception():
                failed.append(f"{name}: {error}")
                continue
            result = future.result()
            if result["runs"]:
                results.setdefault(result["device"], {})[name] = result
    results = {device: dict(sorted(found.items())) for device, found in sorted(results.items())}
    text = page(scenarios, results)
    if arguments.write or arguments.page_only:
        (DOCS / "scenarios.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        (DOCS / "scenarios.md").write_text(text, encoding="utf-8")
    else:
        print(text)
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
