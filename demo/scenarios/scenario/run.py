"""Runs a scenario: each variant in a process of its own, then the figures of all of them."""

import argparse
import datetime
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

import tb_memplugin
from scenario.declare import Scenario, Variant
from scenario.measure import at_peak
from scenario.page import topic

LOGDIR = pathlib.Path("runs/scenarios")
FACTS = "facts.json"
"""Beside the events of a run: where it ran, and the figures that its training returned."""
ENVIRONMENT = {
    "TF_CPU_ALLOCATOR_USE_BFC": "1",
    "TF_CPU_BFC_MEM_LIMIT_IN_MB": "4096",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
"""For every variant that does not say otherwise."""


def main(scenario: Scenario) -> None:
    """The command line of a scenario's file."""
    parser = argparse.ArgumentParser(
        description=scenario.description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--logdir", type=pathlib.Path, default=LOGDIR)
    parser.add_argument("--run", choices=list(scenario.runs), help="only this run, in this process")
    arguments = parser.parse_args()
    if arguments.run is not None:
        _train(scenario, arguments.run, arguments.logdir)
        return
    result = run(scenario, arguments.logdir)
    print(topic(scenario, {"here": result}))


def run(scenario: Scenario, logdir: pathlib.Path) -> dict[str, Any]:
    """Trains all variants, each in a process of its own, and returns what they came to: see
    `measured`."""
    gpus = _count_gpus()
    for name, variant in scenario.runs.items():
        if variant.gpus > gpus:
            print(
                f"{scenario.name}/{name}: left out, needs {variant.gpus} GPU",
                file=sys.stderr,
                flush=True,
            )
            continue
        began = time.monotonic()
        _start(scenario, name, variant, logdir)
        print(
            f"{scenario.name}/{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True
        )
    return measured(scenario, logdir)


def measured(scenario: Scenario, logdir: pathlib.Path) -> dict[str, Any]:
    """The figures of the runs below `logdir`: ``device``, ``tensorflow``, ``keras``, ``date``, and
    ``runs`` by name."""
    directory = logdir / scenario.name
    recorded = tb_memplugin.load(directory)
    facts: dict[str, Any] = {}
    figures: dict[str, Mapping[str, int]] = {}
    for name in scenario.runs:
        if not (directory / name / FACTS).exists():
            continue
        facts = json.loads((directory / name / FACTS).read_text(encoding="utf-8"))
        of_run = (scenario.measure or at_peak)(recorded[name]) if name in recorded else {}
        figures[name] = {**of_run, **facts.pop("figures")}
    return {**facts, "runs": figures}


def _start(scenario: Scenario, name: str, variant: Variant, logdir: pathlib.Path) -> None:
    root = pathlib.Path(__file__).resolve().parents[3]
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, scenario.file, "--logdir", str(logdir), "--run", name],
        env={**os.environ, **ENVIRONMENT, "PYTHONPATH": path, **variant.environment},
        capture_output=True,
        text=True,
        timeout=variant.timeout,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(
            f"{scenario.name}/{name} ended with {done.returncode}:\n{done.stderr[-4000:]}"
        )


def _train(scenario: Scenario, name: str, logdir: pathlib.Path) -> None:
    """One variant, in this process."""
    import keras
    import tensorflow as tf

    directory = logdir / scenario.name / name
    shutil.rmtree(directory, ignore_errors=True)
    keras.utils.set_random_seed(1)
    # One operation at a time, as on a GPU: the peak does not depend on which of them overlap.
    tf.config.threading.set_inter_op_parallelism_threads(1)
    figures = scenario.runs[name].train(directory) or {}
    gpus = tf.config.list_physical_devices("GPU")
    facts = {
        "device": tf.config.experimental.get_device_details(gpus[0])["device_name"]
        if gpus
        else "CPU",
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "date": datetime.date.today().isoformat(),
        "figures": dict(figures),
    }
    directory.mkdir(parents=True, exist_ok=True)
    (directory / FACTS).write_text(json.dumps(facts), encoding="utf-8")


def _count_gpus() -> int:
    import tensorflow as tf

    return len(tf.config.list_physical_devices("GPU"))
