"""Replicas of one training on two GPUs: in one process (MirroredStrategy) and in two (MultiWorkerMirroredStrategy).

Prints for each traced step of each device: the breakdown's sum beside the allocator's peak, the share without an owner,
the replay, and how many layers have other weights or slots than Keras counts. The two processes train the scenario of
`demo/scenarios/data_parallel.py`, whose layers are all trainable.

usage: python tests/gpu/two_gpus.py [--logdir DIRECTORY]
"""

import argparse
import collections
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping

ROOT = pathlib.Path(__file__).parent.parent.parent
SCENARIO = ROOT / "demo" / "scenarios" / "data_parallel.py"
# The scenario's Dense layers, in float32: weights, and Adam's two slots for each.
DENSE = {"wide1": (256, 512), "wide2": (512, 512), "logits": (512, 10)}
Truth = Mapping[str, tuple[int, int]]


def mirrored(run: pathlib.Path) -> Truth:
    """Train a convolutional model with one frozen layer; the bytes of weights and of slots by layer, from Keras."""
    import keras
    import numpy as np
    import tensorflow as tf

    import tb_memplugin
    from tb_memplugin.recorder.observe.model.layers import own_variables, walk

    keras.utils.set_random_seed(1)
    random = np.random.default_rng(1)
    with tf.distribute.MirroredStrategy().scope():
        layers = keras.layers
        model = keras.Sequential([keras.Input((96, 96, 3))])
        for number, width in enumerate((64, 128, 256)):
            model.add(layers.Conv2D(width, 3, activation="relu", padding="same", name=f"conv{number}"))
            model.add(layers.MaxPooling2D(name=f"pool{number}"))
        model.add(layers.Flatten(name="flatten"))
        model.add(layers.Dense(100, name="logits"))
        model.get_layer("conv0").trainable = False
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    images, labels = random.random((1024, 96, 96, 3), "float32"), random.integers(0, 100, 1024)
    callback = tb_memplugin.MemoryCallback(run, trace_steps=[2, 4, 6, 12])
    model.fit(images, labels, batch_size=128, epochs=2, verbose=0, callbacks=[callback])
    callback.close()
    trainable = {id(weight) for weight in model.trainable_weights}
    return {
        path: (
            sum(4 * int(np.prod(weight.shape)) for weight in weights),
            sum(8 * int(np.prod(weight.shape)) for weight in weights if id(weight) in trainable),
        )
        for path, weights in own_variables(walk(model)).items()
    }


def two_processes(logdir: pathlib.Path) -> Truth:
    """Run the scenario, which records the runs one_device, mirrored and two_processes."""
    subprocess.run([sys.executable, SCENARIO, "--logdir", logdir], check=True, cwd=ROOT)
    return {f"sequential/{name}": (4 * (m + 1) * n, 8 * (m + 1) * n) for name, (m, n) in DENSE.items()}


def report(run: "tb_memplugin.Run", truth: Truth) -> None:  # noqa: F821
    """Print a line for each traced step of each device."""
    for snapshot in run.snapshots:
        sizes: dict[str, dict[str, int]] = collections.defaultdict(lambda: collections.defaultdict(int))
        for row in snapshot.ledger:
            sizes[row.category][row.layer] += row.bytes
        ledger = sum(sum(by_layer.values()) for by_layer in sizes.values())
        samples = run.samples
        peak = int(samples.devices[snapshot.device].peak_bytes[samples.step == snapshot.step].max())
        wrong = [
            path.rpartition("/")[2]
            for path, expected in truth.items()
            if expected != tuple(_of_layer(sizes[name], path) for name in ("weights", "optimizer_state"))
        ]
        unattributed = sum(sizes["unattributed"].values())
        saved = sum(row.bytes for row in snapshot.saved_for_backward)
        replay = snapshot.replay
        print(
            f"{run.name} step {snapshot.step} {snapshot.device}: ledger {ledger:,} = peak {peak:,} {ledger - peak:+}, "
            f"unattributed {unattributed:,} ({100 * unattributed / ledger:.4f} %), saved {saved:,}, "
            f"replay {None if replay is None else vars(replay)}, layers with other weights or slots: {wrong}",
            flush=True,
        )


def _of_layer(by_layer: Mapping[str, int], path: str) -> int:
    name = path.rpartition("/")[2]
    return sum(size for layer, size in by_layer.items() if (layer or "").rpartition("/")[2] == name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logdir", type=pathlib.Path, default=None)
    logdir = parser.parse_args().logdir or pathlib.Path(tempfile.mkdtemp())
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # NVLink multicast is not available everywhere
    import tb_memplugin

    dense = two_processes(logdir / "data_parallel")
    for run in tb_memplugin.load(logdir / "data_parallel").values():
        report(run, dense)
    conv = mirrored(logdir / "replicas")
    (run,) = tb_memplugin.load(logdir / "replicas").values()
    report(run, conv)


if __name__ == "__main__":
    main()
