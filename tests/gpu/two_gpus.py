"""Replicas of one training on two GPUs: in one process (MirroredStrategy) and in two
(MultiWorkerMirroredStrategy).

Prints for each traced step of each device: the breakdown's sum beside the allocator's peak, the
share without an owner, the replay, and the layers with other weights or slots than Keras counts.
The two processes train the scenario of `demo/scenarios/data_parallel.py`, whose layers are all
trainable.

usage: python tests/gpu/two_gpus.py [--logdir DIRECTORY]
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping

from harness import compared, counted, told

ROOT = pathlib.Path(__file__).parent.parent.parent
SCENARIO = ROOT / "demo" / "scenarios" / "data_parallel.py"
# The scenario's Dense layers, in float32: weights, and Adam's two slots for each.
DENSE = {"wide1": (256, 512), "wide2": (512, 512), "logits": (512, 10)}


def mirrored(run: pathlib.Path) -> Mapping[str, tuple[int, int]]:
    """Train a convolutional model with one frozen layer; the bytes of weights and of slots by
    layer, from Keras."""
    import keras
    import numpy as np
    import tensorflow as tf

    import tb_memplugin

    keras.utils.set_random_seed(1)
    random = np.random.default_rng(1)
    with tf.distribute.MirroredStrategy().scope():
        layers = keras.layers
        model = keras.Sequential([keras.Input((96, 96, 3))])
        for number, width in enumerate((64, 128, 256)):
            model.add(
                layers.Conv2D(width, 3, activation="relu", padding="same", name=f"conv{number}")
            )
            model.add(layers.MaxPooling2D(name=f"pool{number}"))
        model.add(layers.Flatten(name="flatten"))
        model.add(layers.Dense(100, name="logits"))
        model.get_layer("conv0").trainable = False
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    images, labels = random.random((1024, 96, 96, 3), "float32"), random.integers(0, 100, 1024)
    callback = tb_memplugin.MemoryCallback(run, trace_steps=[2, 4, 6, 12])
    model.fit(images, labels, batch_size=128, epochs=2, verbose=0, callbacks=[callback])
    callback.close()
    return counted(model)


def report(logdir: pathlib.Path, truth: Mapping[str, tuple[int, int]]) -> None:
    """Print a line for each traced step of each device; the models of a process have different
    names."""
    import tb_memplugin

    for run in tb_memplugin.load(logdir).values():
        print(run.name)
        for snapshot in run.snapshots:
            print(
                told(compared(run, snapshot, truth, key=lambda path: path.rpartition("/")[2])),
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--logdir", type=pathlib.Path, default=None)
    logdir = parser.parse_args().logdir or pathlib.Path(tempfile.mkdtemp())
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # NVLink multicast is not available everywhere
    import tb_memplugin  # noqa: F401

    # The scenario records the runs one_device, mirrored and two_processes.
    subprocess.run(
        [sys.executable, SCENARIO, "--logdir", logdir / "data_parallel"], check=True, cwd=ROOT
    )
    report(
        logdir / "data_parallel",
        {name: (4 * (m + 1) * n, 8 * (m + 1) * n) for name, (m, n) in DENSE.items()},
    )
    conv = mirrored(logdir / "replicas")
    report(logdir / "replicas", conv)


if __name__ == "__main__":
    main()
