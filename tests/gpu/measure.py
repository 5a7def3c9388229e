"""What the recorder says on a real GPU, and what it costs: VGG16 and ResNet50, plain and compiled,
frozen and trainable.

Every configuration trains in a process of its own. Printed is a Markdown table: the allocator's
peak of the traced step beside the ledger's sum (closure), the share of it that has no owner, and
the ratio of training time with and without the callback at default settings (pairs in turn, the
first one not counted).

usage: python tests/gpu/measure.py [--image 224] [--batch 64] [--steps 60] [--pairs 6] [--profiles
DIRECTORY]
"""

import argparse
import gzip
import itertools
import pathlib
import pickle
import statistics
import sys
import tempfile
import time
from typing import Any

from harness import alone, answer, compared, made

MODELS = ("VGG16", "ResNet50")
MODES = ("graph", "xla")
FROZEN = {"trainable": 0.0, "frozen": 0.8}
"""Layers that are frozen, from the first on."""
HEAD = """
| model | mode | layers | peak (B) | ledger − peak | unattributed | saved | step | with / without |
|---|---|---|---:|---|---:|---:|---:|---|
"""


def keep_last_trace(callback: "tb_memplugin.MemoryCallback") -> list[Any]:  # noqa: F821
    """A list that has the callback's last traced step and its profile, once that is worked
    through."""
    kept: list[Any] = []
    callback._recording.start()
    sender = callback._recording.sender
    analyze = sender.analyze

    def keep(traced: Any) -> object:
        kept[:] = [(traced, pathlib.Path(traced.profile).read_bytes())]
        return analyze(traced)

    sender.analyze = keep
    return kept


def measure_one(arguments: argparse.Namespace) -> dict[str, Any]:
    """Trains one configuration and returns its row."""
    import numpy as np
    import tensorflow as tf

    import tb_memplugin

    name, mode, part = arguments.one
    model = made(name, mode, FROZEN[part], arguments.image)
    random = np.random.default_rng(1)
    images = tf.constant(
        random.random((arguments.batch, arguments.image, arguments.image, 3), "float32")
    )
    labels = tf.constant(random.integers(0, 1000, arguments.batch))
    data = tf.data.Dataset.from_tensors((images, labels)).repeat(arguments.steps)
    with tempfile.TemporaryDirectory() as directory:
        callback = tb_memplugin.MemoryCallback(pathlib.Path(directory) / "run")
        kept = keep_last_trace(callback) if arguments.profiles is not None else []
        seconds: dict[bool, list[float]] = {True: [], False: []}
        for pair in range(arguments.pairs + 1):
            for recorded in (False, True) if pair % 2 else (True, False):
                began = time.perf_counter()
                model.fit(data, verbose=0, callbacks=[callback] if recorded else [])
                if pair:
                    seconds[recorded].append(time.perf_counter() - began)
        callback.close()
        run = tb_memplugin.load(directory)["run"]
        for traced, profile in kept:
            stored = arguments.profiles / f"{name}_{mode}_{part}.xplane.pb.gz"
            stored.write_bytes(gzip.compress(profile))
            facts = pickle.dumps({"step": traced.step, "facts": dict(traced.facts)})
            stored.with_suffix("").with_suffix(".facts.gz").write_bytes(gzip.compress(facts))
    ratios = [with_ / without for with_, without in zip(seconds[True], seconds[False], strict=True)]
    step_ms = 1000 * statistics.median(seconds[False]) / arguments.steps
    return {**compared(run, run.snapshots[-1], {}), "step_ms": step_ms, "ratios": sorted(ratios)}


def row_text(case: tuple[str, ...], row: dict[str, Any]) -> str:
    """One row of the table."""
    off, ratios = row["ledger"] - row["peak"], row["ratios"]
    cells = (
        *case,
        f"{row['peak']:,}",
        f"{off:+,}" if off else "exactly",
        f"{100 * row['unattributed'] / row['ledger']:.3f} %",
        f"{row['saved']:,}",
        f"{row['step_ms']:.1f} ms",
        f"{statistics.median(ratios):.4f} ({ratios[0]:.4f} to {ratios[-1]:.4f})",
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in {"image": 224, "batch": 64, "steps": 60, "pairs": 6}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument(
        "--profiles", type=pathlib.Path, help="keep one raw profile of each configuration here"
    )
    parser.add_argument("--one", nargs=3, metavar=("MODEL", "MODE", "PART"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        return answer(measure_one(arguments))
    size, batch = arguments.image, arguments.batch
    print(
        f"images {size} × {size}, batch {batch}, {arguments.pairs} pairs of {arguments.steps} "
        f"steps\n{HEAD}",
        end="",
    )
    for case in itertools.product(MODELS, MODES, FROZEN):
        row, errors = alone(__file__, *sys.argv[1:], "--one", *case)
        if row is None:
            print(f"| {' | '.join(case)} | failed: {errors.splitlines()[-1:]} |", flush=True)
        else:
            print(row_text(case, row), *row["notes"], flush=True)


if __name__ == "__main__":
    main()
