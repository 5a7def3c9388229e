"""What reading costs: a run of many steps and layers, written by the writer and read in every way
there is.

Prints the size of the run directory, the seconds until each of TensorBoard's readers has it whole,
every view's answer cold (first request of a fresh process) and warm (median), how many of 200
one-step peaks arrive, and what the plugin adds to TensorBoard's start (pairs with and without it,
alternating, in one run).

usage: python tests/benchmarks/bench_store.py [--steps 10000] [--layers 100] [--starts 3]
[--samples-only] [--smallest] Issue sizes: --steps 100000 --layers 300 --starts 10, and --steps
1000000 --samples-only.
"""

import json
import os
import pathlib
import queue
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from limits import finish, parser_of, print_limit
from servers import decode

from tb_memplugin import load
from tb_memplugin.schema import MISSING, DeviceSamples, LayerActivations, Samples
from tb_memplugin.storage.write import RunWriter
from tb_memplugin.version import PLUGIN_NAME

MIB = 1 << 20
MOST_MEGABYTES = 20
"""Of 100,000 steps of 300 layers."""
COLD_MILLISECONDS, WARM_MILLISECONDS, START_MILLISECONDS = 1000, 100, 50
PEAKS = 200
FLUSH_STEPS = 100
REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
WITHOUT_PLUGIN = """
import importlib.metadata as metadata
original = metadata.entry_points
def entry_points(**params):
    found = original(**params)
    if params.get("group") != "tensorboard_plugins":
        return found
    return metadata.EntryPoints(entry for entry in found if entry.name != "tb_memplugin")
metadata.entry_points = entry_points
"""


def write_run(directory: pathlib.Path, steps: int, layers: int) -> np.ndarray:
    """Figures as an allocator's: two in a hundred differ from the layer's usual ones; returns the
    steps of the peaks.

    Layers' sizes are fixed by their shapes, so most steps repeat the one before; where they do not,
    any size may come.
    """
    random = np.random.default_rng(1)
    peak_steps = np.sort(random.choice(steps, min(PEAKS, steps // 10), replace=False))
    heights = np.zeros(steps, np.int64)
    heights[peak_steps] = (1 + np.arange(len(peak_steps))) * MIB
    base = random.integers(MIB, 200 * MIB, max(layers, 1)) // 256 * 256
    paths = tuple(f"model/block_{layer // 10}/layer_{layer}" for layer in range(layers))
    writer = RunWriter(directory)
    for first in range(0, steps, FLUSH_STEPS):
        count = min(FLUSH_STEPS, steps - first)
        step = np.arange(first, first + count)
        wall = 1.79e9 + step * 0.1
        missing = np.full(count, MISSING)
        in_use = 900 * MIB + random.integers(0, 20 * MIB, count) // 256 * 256
        capacity = np.full(count, 4096 * MIB)
        pool = np.where(step % 10 == 0, 2048 * MIB, MISSING)
        largest = np.where(step % 10 == 0, 2047 * MIB - in_use, MISSING)
        driver = missing, in_use + 300 * MIB, missing
        device = DeviceSamples(in_use, 1500 * MIB + heights[step], capacity, *driver, pool, largest)
        writer.samples(
            Samples(step, np.zeros_like(step), step // 1000, wall, in_use + 2048, {"GPU:0": device})
        )
        if layers:
            other = (base * random.random((count, layers))).astype(np.int64) // 256 * 256
            values = np.where(random.random((count, layers)) < 0.02, other, base)
            values[:, 0] = base[0] + heights[step]
            writer.activations(LayerActivations(step, wall, paths, values))
    writer.close()
    return peak_steps


@contextmanager
def tensorboard(
    logdir: pathlib.Path, load_fast: str, plugin: bool = True
) -> Iterator[tuple[str, float]]:
    """A running TensorBoard: its address, and the seconds until it told it."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "sitecustomize.py").write_text("" if plugin else WITHOUT_PLUGIN)
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--port", "0"]
        command += ["--host", "127.0.0.1", f"--load_fast={load_fast}"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, str(REPOSITORY)])}
        began = time.perf_counter()
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        found: queue.Queue[str] = queue.Queue()

        def read(stream: Any) -> None:
            for line in stream:
                if match := re.search(r"at (http://\S+)", line):
                    found.put(match[1])

        threading.Thread(target=read, args=[process.stderr], daemon=True).start()
        try:
            address = found.get(timeout=120)
            yield f"{address}data/plugin/{PLUGIN_NAME}/", time.perf_counter() - began
        finally:
            process.terminate()
            process.wait(timeout=60)


def fetch(address: str, request: str) -> tuple[bytes, float]:
    """Body and milliseconds of one request."""
    began = time.perf_counter()
    with urllib.request.urlopen(address + request, timeout=300) as response:
        body = response.read()
    return body, 1000 * (time.perf_counter() - began)


def wait_until_whole(address: str, steps: int) -> float:
    """Seconds until the route `runs` tells all steps."""
    began = time.perf_counter()
    pause = threading.Event()
    while time.perf_counter() - began < 600:
        runs = json.loads(fetch(address, "runs")[0])["runs"]
        if runs and runs[0]["steps"] == steps:
            return time.perf_counter() - began
        pause.wait(0.05)
    raise SystemExit("the run did not become whole within ten minutes")


VIEWS = {
    "overview": "overview?run=run&device=GPU:0",
    "activations": "activations?run=run",
    "runs": "runs",
    "snapshots": "snapshots?run=run",
}


def measure_reader(
    logdir: pathlib.Path, load_fast: str, steps: int, views: dict[str, str], peak_steps: np.ndarray
) -> None:
    """Prints what one of TensorBoard's readers takes for each of `views`."""
    with tensorboard(logdir, load_fast) as (address, _):
        ready = wait_until_whole(address, steps)
        warm = {}
        for name, request in views.items():
            fetch(address, request)
            warm[name] = statistics.median(fetch(address, request)[1] for _ in range(7))
        shown: dict[float, float] = {}
        for first in range(0, steps, 20_000):
            steps_ = f"first_step={first}&last_step={first + 20_000 - 1}"
            query = f"{views['overview']}&points=10000&{steps_}"
            _, columns = decode(fetch(address, query)[0])
            shown.update(zip(columns["step"], columns["peak_bytes"], strict=True))
        arrived = sum(
            shown.get(step) == (1500 + at + 1) * MIB
            for at, step in enumerate(peak_steps.tolist())
            if step in shown
        )
    print(f"load_fast={load_fast}: whole {ready:.2f} s after start")
    print_limit(f"missing peaks of {len(peak_steps)}", len(peak_steps) - arrived, 0, any_size=True)
    for name, request in views.items():
        with tensorboard(logdir, load_fast) as (address, _):
            # The server's own reader needs its time before; ours begins with this request.
            threading.Event().wait(1 + 2 * ready)
            body, cold = fetch(address, request)
        print(f"  {name:12} {len(body) / 1024:8.0f} KiB")
        print_limit(f"{name}, cold", cold, COLD_MILLISECONDS, "ms")
        print_limit(f"{name}, warm", warm[name], WARM_MILLISECONDS, "ms")


def measure_start(logdir: pathlib.Path, starts: int) -> None:
    """Prints what the plugin adds to TensorBoard's start, from pairs in turn."""
    differences, ratios = [], []
    for pair in range(starts + 1):
        seconds = {}
        for plugin in (True, False) if pair % 2 else (False, True):
            with tensorboard(logdir, "true", plugin) as (_, took):
                seconds[plugin] = took
        if pair:  # the first pair warms the file cache
            differences.append(1000 * (seconds[True] - seconds[False]))
            ratios.append(seconds[True] / seconds[False])
    print(
        f"start: plugin adds {statistics.median(differences):.0f} ms "
        f"({min(differences):.0f} to {max(differences):.0f}), ratio {statistics.median(ratios):.3f}"
    )
    print_limit(
        "time added to the start of TensorBoard",
        statistics.median(differences),
        START_MILLISECONDS,
        "ms",
    )


def main() -> None:
    parser = parser_of(__doc__, steps=(10_000, 500), layers=(100, 5), starts=(3, 1))
    parser.add_argument("--samples-only", action="store_true", help="no layer activations")
    options = parser.parse_args()
    layers = 0 if options.samples_only else options.layers
    names = ["overview"] if options.smallest else list(VIEWS)
    views = {name: VIEWS[name] for name in names if layers or name != "activations"}
    with tempfile.TemporaryDirectory() as folder:
        logdir = pathlib.Path(folder)
        began = time.perf_counter()
        peak_steps = write_run(logdir / "run", options.steps, layers)
        wrote = time.perf_counter() - began
        size = sum(path.stat().st_size for path in logdir.rglob("*") if path.is_file())
        print(
            f"{options.steps} steps x {layers} layers: {size / 1e6:.1f} MB, written in "
            f"{wrote:.1f} s"
        )
        print_limit(
            "run directory", size / 1e6, MOST_MEGABYTES, "MB", any_size=options.steps <= 100_000
        )
        began = time.perf_counter()
        run = load(logdir)["run"]
        seconds = time.perf_counter() - began
        print(
            f"load: {seconds:.2f} s for {len(run.samples)} samples, {run.activations.bytes.shape}"
        )
        del run
        for load_fast in ("true", "false"):
            measure_reader(logdir, load_fast, options.steps, views, peak_steps)
        if options.starts:
            measure_start(logdir, options.starts)
    finish()


if __name__ == "__main__":
    main()
