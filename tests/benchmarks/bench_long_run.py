"""How the recorder's own memory and files grow in a long run: a million tiny steps in one process.

A child process records `--steps` steps with default settings. Printed are its resident memory, its growth
after the warm-up, and the size of the run directory per 100,000 steps. The same loop without a recorder shows what
TensorFlow and Python grow by themselves.

usage: python tests/benchmarks/bench_long_run.py [--steps 1000000] [--warm-up 100000] [--overhead 0.005] [--smallest]
"""

import argparse
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from limits import finish, parser_of, print_limit

os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")
os.environ.setdefault("TF_CPU_BFC_MEM_LIMIT_IN_MB", "256")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

MOST_GROWTH_BYTES = 5_000_000
"""Most growth of resident memory after the warm-up, beyond that of the same loop without a recorder."""
MOST_FILE_BYTES = 20_000_000
"""Most bytes of the run directory per 100,000 steps."""
READINGS = 20


def resident_bytes() -> int:
    """Resident memory of this process."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def recorder_of(run: pathlib.Path, model: Any, overhead: float, recording: bool) -> Iterator[Any]:
    """A context manager per step: the recorder's, or one that does nothing."""
    import tb_memplugin

    if not recording:
        yield lambda step: contextlib.nullcontext()
        return
    with tb_memplugin.MemoryRecorder(run, model=model, overhead=overhead) as recorder:
        yield recorder.step


def train(run: pathlib.Path, steps: int, warm_up: int, overhead: float, recording: bool) -> None:
    """Prints resident memory at the end of the warm-up and at `READINGS` steps after it: ``<step> <bytes>``."""
    import keras
    import tensorflow as tf

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD()
    optimizer.build(model.trainable_variables)
    batch = tf.ones((2, 4))

    @tf.function
    def one_step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(batch))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)

    every = max(1, (steps - warm_up) // READINGS)
    with recorder_of(run, model, overhead, recording) as step_of:
        for step in range(steps):
            with step_of(step):
                one_step()
            if step >= warm_up and (step - warm_up) % every == 0:
                print(step, resident_bytes(), flush=True)


def measure(steps: int, warm_up: int, overhead: float, recording: bool) -> tuple[int, int]:
    """(growth of resident memory after the warm-up, bytes of the run directory) of a child process."""
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        arguments = [f"--{name}={value}" for name, value in (("steps", steps), ("warm-up", warm_up))]
        command = [sys.executable, __file__, *arguments, f"--overhead={overhead}", f"--child={directory}/run"]
        child = subprocess.run(
            command if recording else [*command, "--without"], check=True, stdout=subprocess.PIPE, text=True
        )
        seconds = time.perf_counter() - began
        readings = [tuple(map(int, line.split())) for line in child.stdout.splitlines()]
        files = sum(path.stat().st_size for path in pathlib.Path(directory).rglob("*") if path.is_file())
    growth = readings[-1][1] - readings[0][1]
    levels = ", ".join(f"{resident / 1e6:.1f}" for _, resident in readings[:: READINGS // 5])
    print(
        f"{'with' if recording else 'without'} a recorder, {steps:,} steps in {seconds:.0f} s: resident {levels} "
        f"MB; after the warm-up of {warm_up:,} steps {growth / 1e6:+.2f} MB",
        flush=True,
    )
    return growth, files


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--warm-up", type=int, default=100_000)
    parser.add_argument("--overhead", type=float, default=0.005)
    parser.add_argument("--child", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--without", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        train(arguments.child, arguments.steps, arguments.warm_up, arguments.overhead, not arguments.without)
        return
    if arguments.smallest:
        arguments.steps, arguments.warm_up = 3_000, 1_000
    alone, _ = measure(arguments.steps, arguments.warm_up, arguments.overhead, False)
    growth, files = measure(arguments.steps, arguments.warm_up, arguments.overhead, True)
    of_100_000 = files * 100_000 / arguments.steps
    # What a short run pays once weighs more per step than in a long one.
    whole = not arguments.smallest
    print_limit("the recorder's growth after the warm-up", (growth - alone) / 1e6, MOST_GROWTH_BYTES / 1e6, "MB", whole)
    print_limit("files per 100,000 steps", of_100_000 / 1e6, MOST_FILE_BYTES / 1e6, "MB", whole)
    finish()


if __name__ == "__main__":
    main()
