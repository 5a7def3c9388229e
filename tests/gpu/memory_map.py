"""The allocator's memory map on real GPUs: against TensorFlow's statistics, and the time that a
read takes.

Each case runs in a process of its own: a fixed limit, memory growth, the whole device, two logical
devices on the first GPU, every GPU of the machine (where there are several), and cuda_malloc_async,
which must be refused. Exits with 1 if a map disagrees with the statistics or is not read where it
should be.

usage: python3 tests/gpu/memory_map.py [--chunks 1000 10000]
"""

import argparse
import collections
import os
import sys
import time
import timeit
from typing import Any

from harness import alone, answer

CASES = ("fixed limit", "growth", "whole device", "two logical", "all GPUs", "cuda_malloc_async")
HEAD = (
    "| case | device | TensorFlow | chunks | equal | map − statistics, bytes | read, ms | ms / "
    "1,000 | parse |"
)
READS = 200


def configure(case: str) -> None:
    """Sets up TensorFlow's GPUs as the case says."""
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    assert gpus, "TensorFlow sees no GPU"
    if case != "all GPUs":
        tf.config.set_visible_devices(gpus[:1], "GPU")
        gpus = gpus[:1]
    limits = {"fixed limit": [4096], "two logical": [2048, 3072]}.get(case)
    for gpu in gpus:
        if limits:
            devices = [tf.config.LogicalDeviceConfiguration(memory_limit=limit) for limit in limits]
            tf.config.set_logical_device_configuration(gpu, devices)
        elif case in ("growth", "all GPUs", "cuda_malloc_async"):
            tf.config.experimental.set_memory_growth(gpu, True)


def measure(case: str, chunks: list[int]) -> None:
    """Prints a JSON list with one row per device and number of chunks."""
    import tensorflow as tf

    from tb_memplugin.recorder.devices import MemoryMaps

    configure(case)
    devices = [f"GPU:{number}" for number in range(len(tf.config.list_logical_devices("GPU")))]
    said: list[str] = []
    maps = MemoryMaps(devices, said.append)
    rows: list[Any] = [
        measured(case, device, number, maps) for number in chunks for device in devices
    ]
    if case in ("fixed limit", "growth"):
        rows += [trained(case, maps)]
    answer([rows, said])


def measured(case: str, device: str, number: int, maps: Any) -> list[Any]:
    """One row: a device with at least that many chunks, read while tensors come and go."""
    import tensorflow as tf

    with tf.device(device):
        held = collections.deque(tf.zeros([n % 97 + 1, 64]) for n in range(number))
        offs: collections.Counter[int] = collections.Counter()
        took, data = [], None
        for turn in range(READS):
            held.append(tf.zeros([turn % 61 + 1, 640]))
            if turn % 3:
                held.popleft()
            data, seconds = compared(maps, device, offs)
            took.append(seconds)
            if data is None:
                break
        return row(case, device, data, offs, took)


def trained(case: str, maps: Any) -> list[Any]:
    """One row for GPU:0: a ResNet50 in training, its map read between the steps."""
    import keras
    import numpy as np

    keras.utils.set_random_seed(1)
    model = keras.applications.ResNet50(weights=None, input_shape=(96, 96, 3), classes=10)
    # many chunks, not one of a module
    model.compile("adam", "sparse_categorical_crossentropy", jit_compile=False)
    offs: collections.Counter[int] = collections.Counter()
    kept: list[tuple[bytes | None, float]] = []

    class Reads(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            kept.append(compared(maps, "GPU:0", offs))

    x, y = np.ones((640, 96, 96, 3), "float32"), np.zeros(640, "int64")
    model.fit(x, y, batch_size=16, verbose=0, callbacks=[Reads()])
    read = [pair for pair in kept if pair[0] is not None] or kept
    return row(f"{case}, ResNet50", "GPU:0", read[-1][0], offs, [seconds for _, seconds in read])


def compared(
    maps: Any, device: str, offs: "collections.Counter[int]"
) -> tuple[bytes | None, float]:
    """A map and the seconds that its read took; counts by how much it differs from the statistics.

    These are taken before and after: kernels that end in between free memory.
    """
    import tensorflow as tf

    from tb_memplugin.importers import summarize_dump

    before = tf.config.experimental.get_memory_info(device)["current"]
    began = time.perf_counter()
    data = maps.read(device)
    seconds = time.perf_counter() - began
    after = tf.config.experimental.get_memory_info(device)["current"]
    if data is not None:
        in_use = summarize_dump(data).in_use_bytes
        offs[min(in_use - before, in_use - after, key=abs)] += 1
    return data, seconds


def row(
    case: str, device: str, data: bytes | None, offs: "collections.Counter[int]", took: list[float]
) -> list[Any]:
    """The cells of a device whose last map is `data`."""
    import tensorflow as tf

    from tb_memplugin.importers import read_dump

    if data is None:
        return [case, device, tf.__version__, 0, "not read", "", "", "", ""]
    chunks, read = len(read_dump(data, 0.0)), min(took)
    parse = min(timeit.repeat(lambda: read_dump(data, 0.0), number=1, repeat=10))
    others = sorted(off for off in offs if off)
    span = f"{others[0]} to {others[-1]}" if others else "0"
    times = [f"{read * 1e3:.3f}", f"{read * 1e6 / chunks:.3f}", f"{parse * 1e3:.3f} ms"]
    return [case, device, tf.__version__, chunks, f"{offs[0]} of {offs.total()}", span, *times]


def run_case(case: str, chunks: list[int]) -> tuple[list[list[Any]], list[str]]:
    """The rows and warnings of a case, from a process of its own."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    environment.pop("TF_FORCE_GPU_ALLOW_GROWTH", None)
    if case == "cuda_malloc_async":
        environment["TF_GPU_ALLOCATOR"] = case
    found, errors = alone(__file__, "--case", case, "--chunks", *chunks, environment=environment)
    if found is None:
        print(errors, file=sys.stderr)
    return found or ([[case, "", "", 0, "failed", "", "", "", ""]], [])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--chunks",
        type=int,
        nargs="+",
        default=[1000, 10_000],
        help="tensors to hold (%(default)s)",
    )
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        measure(options.case, options.chunks)
        return 0
    print(HEAD + "\n|" + "---|" * 9, flush=True)
    failed, sentences = False, []
    for case in CASES:
        rows, said = run_case(case, options.chunks)
        for cells in rows:
            print("| " + " | ".join(map(str, cells)) + " |", flush=True)
            count, _, total = str(cells[4]).partition(" of ")
            refused = cells[4] == "not read" and case == "cuda_malloc_async"
            failed = failed or not (refused or (total and count == total))
        sentences += [f"{case}: {sentence}" for sentence in said]
    print("\n" + "\n".join(sentences))
    print("FAILED" if failed else "every map equals the statistics")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
