"""Runs all scenarios, or the named ones, and writes docs/advice.md and docs/advice/*.md from their
recordings.

The measured figures are kept in docs/advice/measured.json, by device: a run on a GPU leaves the
CPU's figures as they are.

usage: python demo/scenarios/run_all.py [--logdir runs/scenarios] [--jobs 2] [--write] [--page-only]
[NAME ...]
"""

import argparse
import concurrent.futures
import importlib
import json
import os
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

from scenario import Scenario
from scenario.page import overview, topic
from scenario.run import LOGDIR, measured, run

HERE = pathlib.Path(__file__).resolve().parent
DOCS = HERE.parents[1] / "docs"
FIGURES = DOCS / "advice" / "measured.json"


def load_scenarios() -> list[Scenario]:
    """All scenarios of this folder, by their number. The environment stays as it is."""
    environment = dict(os.environ)
    found = [
        importlib.import_module(path.stem).SCENARIO
        for path in HERE.glob("*.py")
        if "\nSCENARIO = " in path.read_text(encoding="utf-8")
    ]
    # Each file sets what its own process needs, before it imports TensorFlow. Nobody else should
    # inherit that.
    os.environ.clear()
    os.environ.update(environment)
    return sorted(found, key=lambda one: one.number)


def stored() -> dict:
    """The stored figures, by device and scenario."""
    return json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {}


def pages(
    scenarios: list[Scenario], results: Mapping[str, Mapping[str, Any]]
) -> dict[pathlib.Path, str]:
    """The text of every page by path."""
    texts = {DOCS / "advice.md": overview(scenarios, results)}
    for scenario in scenarios:
        found = {
            device: of_device[scenario.name]
            for device, of_device in results.items()
            if scenario.name in of_device
        }
        texts[DOCS / "advice" / f"{scenario.name}.md"] = topic(scenario, found)
    return texts


def main() -> None:
    scenarios = load_scenarios()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="scenarios to run (default: all)")
    parser.add_argument("--logdir", type=pathlib.Path, default=LOGDIR)
    parser.add_argument("--jobs", type=int, default=1, help="scenarios that run at the same time")
    parser.add_argument(
        "--write", action="store_true", help="write the pages and docs/advice/measured.json"
    )
    parser.add_argument(
        "--measure-only",
        action="store_true",
        help="train nothing: measure the runs in --logdir again",
    )
    parser.add_argument(
        "--page-only",
        action="store_true",
        help="train nothing: write the pages from the stored figures",
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
    if arguments.write or arguments.page_only:
        FIGURES.parent.mkdir(exist_ok=True)
        FIGURES.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        for path, text in pages(scenarios, results).items():
            path.write_text(text, encoding="utf-8")
    else:
        print(overview(scenarios, results))
    if failed:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
