"""What the ledgers of traced steps say on a GPU: bytes without an owner, replay, weights and slots
against Keras.

Every configuration trains in a process of its own: graph, XLA and eager mode, with memory growth
and without.

usage: python tests/gpu/attribution.py [--growth 0|1|both] [--modes graph,xla,eager] [--models
VGG16,...] [--on-device]
"""

import argparse
import itertools
import tempfile
import time
from typing import Any

from harness import alone, answer, compared, counted, made, told

MODELS = ("VGG16", "ResNet50", "DenseNet121", "MobileNetV2", "Transformer")
MODES = ("graph", "xla", "eager")
TRACED = (3, 6, 12)


def data(name: str, batch: int, on_device: bool) -> "tf.data.Dataset":  # noqa: F821
    import numpy as np
    import tensorflow as tf

    random = np.random.default_rng(1)
    examples = batch * 8 + batch // 2
    if name == "Transformer":
        x = random.integers(0, 8000, (examples, 256)).astype("int32")
    else:
        x = random.random((examples, 224, 224, 3), "float32")
    y = random.integers(0, 1000, examples)
    # The pipeline of most users; a partial last batch is part of it.
    batches = tf.data.Dataset.from_tensor_slices((x, y)).cache().shuffle(examples).batch(batch)
    return (
        batches.apply(tf.data.experimental.prefetch_to_device("/GPU:0", 2))
        if on_device
        else batches.prefetch(2)
    )


def one(name: str, mode: str, growth: bool, batch: int, on_device: bool) -> dict[str, Any]:
    import tensorflow as tf

    import tb_memplugin

    for card in tf.config.list_physical_devices("GPU"):
        tf.config.experimental.set_memory_growth(card, growth)
    model = made(name, mode, frozen=0.5)
    with tempfile.TemporaryDirectory() as directory:
        callback = tb_memplugin.MemoryCallback(directory + "/run", trace_steps=TRACED)
        model.fit(data(name, batch, on_device), epochs=2, verbose=0, callbacks=[callback])
        maps = callback._recording.sender.steps.windows._maps
        began = time.perf_counter()
        maps.read("GPU:0")
        read_seconds = time.perf_counter() - began
        callback.close()
        run = tb_memplugin.load(directory)["run"]
    truth = counted(model)
    rows = [compared(run, snapshot, truth) for snapshot in run.snapshots]
    return {"rows": rows, "notes": list(run.notes), "map_ms": 1000 * read_seconds}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--growth", default="both")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--on-device", action="store_true", help="prefetch batches to the GPU")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        name, mode, growth = arguments.one
        return answer(one(name, mode, growth == "1", arguments.batch, arguments.on_device))
    growths = ("0", "1") if arguments.growth == "both" else (arguments.growth,)
    options = ["--batch", arguments.batch, *["--on-device"] * arguments.on_device]
    for growth, name, mode in itertools.product(
        growths, arguments.models.split(","), arguments.modes.split(",")
    ):
        found, errors = alone(__file__, *options, "--one", name, mode, growth)
        if found is None:
            print(f"{name} {mode} growth={growth} FAILED: {errors}", flush=True)
            continue
        print(
            f"{name} {mode} growth={growth} map {found['map_ms']:.2f} ms {found['notes']}",
            flush=True,
        )
        print(*map(told, found["rows"]), sep="\n", flush=True)


if __name__ == "__main__":
    main()
