"""What recording costs a training: pairs of equal trainings with and without the callback, in turn,
in one process.

The two halves of a pair run right after each other and their order alternates, so that drift of the
machine's speed cancels; printed are the ratio of each pair's total time, their median and range.
The first pair warms up and does not count. Give more `--pairs` on a noisy machine: with few, the
range says how little a median means.

The same is measured for many short calls of `fit`, of about a second each, with one callback for
all of them. There the share of the training's thread that the callback's own hooks take is printed
as well, and what one step takes of it, in `fit`, where the processor's caches are cold: both hardly
depend on what else the machine does.

usage: python tests/benchmarks/bench_recording.py [--pairs 6] [--steps 100] [--fits 20] [--overhead
0.005 0]
                                                  [--smallest]
"""

import os
import pathlib
import statistics
import tempfile
import time

os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")
os.environ.setdefault("TF_CPU_BFC_MEM_LIMIT_IN_MB", "4096")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
import tensorflow as tf
from limits import finish, parser_of, print_limit

import tb_memplugin


def make_data(steps: int, batch: int, size: int) -> tf.data.Dataset:
    """The same batch again and again: input costs nothing and is equal for both halves."""
    random = np.random.default_rng(1)
    images = tf.constant(random.random((batch, size, size, 3), "float32"))
    labels = tf.constant(random.integers(0, 10, batch))
    return tf.data.Dataset.from_tensors((images, labels)).repeat(steps)


def make_model(size: int) -> keras.Model:
    """A VGG16, whose step takes some 100 ms on two cores at 32 × 32 and on a GPU at 224 × 224."""
    keras.utils.set_random_seed(1)
    backbone = keras.applications.VGG16(
        weights=None, include_top=False, input_shape=(size, size, 3), pooling="avg"
    )
    model = keras.Sequential([backbone, keras.layers.Dense(10)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def train(
    model: keras.Model, data: tf.data.Dataset, callbacks: list[keras.callbacks.Callback]
) -> float:
    """Seconds of one epoch."""
    began = time.perf_counter()
    model.fit(data, epochs=1, verbose=0, callbacks=callbacks)
    return time.perf_counter() - began


def measure_hooks(steps: int) -> None:
    """Prints what beginning and ending a step takes of the training's thread, without any training
    in between."""
    with (
        tempfile.TemporaryDirectory() as directory,
        tb_memplugin.MemoryRecorder(pathlib.Path(directory) / "run", overhead=0.0) as recorder,
    ):
        began = time.perf_counter()
        for step in range(steps):
            recorder.begin_step(step)
            recorder.end_step()
        seconds = time.perf_counter() - began
    each, share = 1e6 * seconds / steps, seconds / steps / 0.05
    print(
        f"beginning and ending a step: {each:.1f} µs, {100 * share:.3f} % of a step of 50 ms",
        flush=True,
    )


def compared(
    model: keras.Model, data: tf.data.Dataset, callback: keras.callbacks.Callback, pairs: int
) -> tuple[list[float], list[float]]:
    """Seconds of some epochs with and of as many without the callback, in pairs whose order
    alternates."""
    taken: dict[bool, list[float]] = {True: [], False: []}
    for pair in range(pairs):
        for callbacks in ([], [callback]) if pair % 2 else ([callback], []):
            taken[bool(callbacks)].append(train(model, data, callbacks))
    return taken[True], taken[False]


def show_ratios(what: str, overhead: float, recorded: list[float], plain: list[float]) -> str:
    """Prints what recording adds with its limit; returns the median and range of the ratios of the
    pairs."""
    ratios = [one / other for one, other in zip(recorded, plain, strict=True)]
    median = statistics.median(ratios)
    print_limit(
        f"{what} with overhead={overhead}",
        100 * (median - 1),
        100 * overhead if overhead else 0.1,
        "%",
    )
    return f"median {median:.4f} (from {min(ratios):.4f} to {max(ratios):.4f})"


def measure(overhead: float, pairs: int, steps: int, batch: int, size: int) -> None:
    """Prints the ratios for one setting of `overhead`."""
    model, data = make_model(size), make_data(steps, batch, size)
    with tempfile.TemporaryDirectory() as directory:
        # One callback for the whole measurement, as in a long training: its first trace is paid for
        # over all of it.
        callback = tb_memplugin.MemoryCallback(pathlib.Path(directory) / "run", overhead=overhead)
        recorded, plain = (seconds[1:] for seconds in compared(model, data, callback, pairs + 1))
        callback.close()
        snapshots = len(tb_memplugin.load(directory)["run"].snapshots)
    step_ms = 1000 * statistics.median(plain) / steps
    ratios = show_ratios("time added", overhead, recorded, plain)
    print(
        f"  with / without, {pairs} pairs of {steps} steps of {step_ms:.1f} ms, {snapshots} "
        f"snapshots: {ratios}"
    )


HOOKS = (
    "set_model",
    "on_train_begin",
    "on_epoch_begin",
    "on_train_batch_begin",
    "on_epoch_end",
    "on_train_end",
)


def make_small_model(size: int) -> keras.Model:
    """A CNN whose step takes some 20 ms on two cores at 32 × 32."""
    keras.utils.set_random_seed(1)
    layers = keras.layers
    blocks = [
        layer
        for filters in (32, 64, 64)
        for layer in (
            layers.Conv2D(filters, 3, padding="same", activation="relu"),
            layers.MaxPooling2D(),
        )
    ]
    model = keras.Sequential(
        [keras.Input((size, size, 3)), *blocks, layers.Flatten(), layers.Dense(10)]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def time_hooks(callback: keras.callbacks.Callback) -> dict[str, list[float]]:
    """Seconds that each call of each hook of the callback takes of the training's thread from now
    on."""
    spent: dict[str, list[float]] = {name: [] for name in HOOKS}

    def timed(name: str) -> None:
        hook = getattr(callback, name)

        def call(*arguments: object, **named: object) -> None:
            began = time.perf_counter()
            hook(*arguments, **named)
            spent[name].append(time.perf_counter() - began)

        setattr(callback, name, call)

    for name in HOOKS:
        timed(name)
    return spent


def measure_short_fits(overhead: float, fits: int, seconds: float, batch: int, size: int) -> None:
    """Prints the ratios for calls of `fit` of about `seconds` in a row, and what the callback's
    hooks take of them."""
    model = make_small_model(size)
    with tempfile.TemporaryDirectory() as directory:
        callback = tb_memplugin.MemoryCallback(pathlib.Path(directory) / "run", overhead=overhead)
        train(model, make_data(20, batch, size), [callback])
        steps = max(1, int(seconds * 20 / train(model, make_data(20, batch, size), [])))
        data = make_data(steps, batch, size)
        for callbacks in ([callback], [], [callback], []):
            train(model, data, callbacks)
        spent = time_hooks(callback)
        recorded, plain = compared(model, data, callback, fits)
        callback.close()
    total = {name: sum(calls) for name, calls in spent.items()}
    share = sum(total.values()) / sum(recorded)
    begins, median = spent["on_train_batch_begin"], statistics.median(plain)
    ratios = show_ratios("time added to short fits", overhead, recorded, plain)
    print(
        f"  with / without, {fits} pairs of fits of {median:.2f} s, {steps} steps each: "
        f"{ratios}; in the callback's hooks {100 * share:.3f} %, ms a fit: "
        f"{', '.join(f'{name} {1000 * took / fits:.2f}' for name, took in total.items())}; "
        f"on_train_batch_begin, median of {len(begins)} steps of {1000 * median / steps:.1f} ms: "
        f"{1e6 * statistics.median(begins):.1f} µs",
        flush=True,
    )


def main() -> None:
    parser = parser_of(
        __doc__, pairs=(6, 1), steps=(100, 5), fits=(20, 1), batch=(16, 4), size=(32, 32)
    )
    parser.add_argument("--overhead", type=float, nargs="+", default=[0.005, 0.0])
    arguments = parser.parse_args()
    measure_hooks(500 if arguments.smallest else 20_000)
    fit_seconds = 0.2 if arguments.smallest else 1.0
    for overhead in arguments.overhead:
        measure(overhead, arguments.pairs, arguments.steps, arguments.batch, arguments.size)
        measure_short_fits(overhead, arguments.fits, fit_seconds, arguments.batch, arguments.size)
    finish()


if __name__ == "__main__":
    main()
