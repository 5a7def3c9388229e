"""What recording costs a training of ResNet50, as a graph and compiled: the first fit of a process,
and further fits with one callback and without it, in turn.

Every case trains in a process of its own. Several cards train one case each at a time. Printed is
one line for each: wall time and largest resident memory of the first fit; of the further fits the
median ratio of each pair, how much fits without a callback differ among themselves, and the share
of time that the callback's hooks take on the training's thread.

usage: python tests/gpu/training_time.py [--image 160] [--batch 256] [--steps 30] [--pairs 15]
"""

import argparse
import concurrent.futures
import itertools
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from harness import alone, answer, made, on_next_card

MODES = ("graph", "xla")
OVERHEADS = {"none": None, "default": 0.005, "steps only": 0.0}


class Hooks:
    """Adds up the time that a callback's hooks take."""

    def __init__(self, callback: Any) -> None:
        self.seconds = 0.0
        for name in dir(callback):
            if name.startswith("on_") or name == "set_model":
                setattr(callback, name, self._timed(getattr(callback, name)))

    def _timed(self, hook: Any) -> Any:
        def timed(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return hook(*arguments, **named)
            finally:
                self.seconds += time.perf_counter() - began

        return timed


def one(arguments: argparse.Namespace) -> dict[str, Any]:
    import numpy as np
    import tensorflow as tf

    import tb_memplugin

    mode, overhead, pairs = arguments.one[0], OVERHEADS[arguments.one[1]], arguments.pairs
    model = made("ResNet50", mode, 0.0, arguments.image)
    random = np.random.default_rng(1)
    shape = (arguments.batch, arguments.image, arguments.image, 3)
    batch = (
        tf.constant(random.random(shape, "float32")),
        tf.constant(random.integers(0, 1000, arguments.batch)),
    )
    data = tf.data.Dataset.from_tensors(batch).repeat(arguments.steps)
    recorded: list[Any] = []
    hooks = None
    if overhead is not None:
        recorded = [tb_memplugin.MemoryCallback(tempfile.mkdtemp(), overhead=overhead)]
        hooks = Hooks(recorded[0])

    def fit(callbacks: list[Any]) -> float:
        began = time.perf_counter()
        model.fit(data, verbose=0, callbacks=callbacks)
        return time.perf_counter() - began

    first = fit(recorded)
    row: dict[str, Any] = {"first_s": first, "first_hooks_s": hooks.seconds if hooks else 0.0}
    row["max_rss_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    if hooks is None:
        return row
    # early steps are traced for two minutes, as the schedule of a new callback has it
    until = time.monotonic() + (arguments.settle if overhead else 0)
    while time.monotonic() < until:
        fit(recorded)
    hooks.seconds = 0.0
    seconds: dict[bool, list[float]] = {True: [], False: []}
    for pair in range(pairs):
        for with_ in (False, True) if pair % 2 else (True, False):
            seconds[with_].append(fit(recorded if with_ else []))
    without = statistics.median(seconds[False])
    ratios = sorted(a / b for a, b in zip(seconds[True], seconds[False], strict=True))
    return row | {
        "fit_s": without,
        "ratio": statistics.median(ratios),
        "ratio_of_medians": statistics.median(seconds[True]) / without,
        "quartiles": [ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]],
        "spread_without": statistics.pstdev(seconds[False]) / without,
        "hooks_share": hooks.seconds / sum(seconds[True]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    values = {"image": 160, "batch": 256, "steps": 30, "pairs": 15, "settle": 0}
    for name, value in values.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--one", nargs=2, metavar=("MODE", "CALLBACK"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        return answer(one(arguments))
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=True)
    with concurrent.futures.ThreadPoolExecutor(len(listed.stdout.splitlines())) as pool:

        def trained(case: tuple[str, str]) -> tuple[tuple[str, str], Any, str]:
            row, errors = alone(__file__, *sys.argv[1:], "--one", *case, environment=on_next_card())
            return case, row, errors

        for case, row, errors in pool.map(trained, itertools.product(MODES, OVERHEADS)):
            print(case, row if row is not None else errors[-500:], flush=True)


if __name__ == "__main__":
    main()
