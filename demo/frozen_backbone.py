"""Trains VGG16 twice and records where its memory goes: all trainable, and with a frozen backbone
that is unfrozen in two stages.

The tab shows what each stage adds: gradients, optimizer state and activations of the unfrozen
blocks, and as `other state` the slots of the earlier stages' optimizers, which TensorFlow does not
free. Block 1 stays frozen: it has 0.3 % of the weights and nearly half of the activations.

Nothing is downloaded: the backbone has no pretrained weights and the images are made here. Without
a GPU the training runs on the CPU with the same allocator class that a GPU has (BFC), at a capacity
that is stated below.

usage: python demo/frozen_backbone.py [--logdir runs] [--epochs 6] [--steps 8]
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import time

CAPACITY_MIB = 512
# Both must be known before TensorFlow is imported.
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")
os.environ.setdefault("TF_CPU_BFC_MEM_LIMIT_IN_MB", str(CAPACITY_MIB))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import tb_memplugin  # noqa: E402

IMAGE_SIZE = 80
BATCH_SIZE = 16
CLASSES = 8
RUNS = ("all_trainable", "frozen")
STAGES = ((), ("block5",), ("block2", "block3", "block4", "block5"))
"""Blocks of the backbone that are trainable in each third of the run `frozen`."""


def make_batches(steps: int, seed: int, batch_size: int = BATCH_SIZE) -> tf.data.Dataset:
    """`steps` batches of striped images, shape [IMAGE_SIZE, IMAGE_SIZE, 3], whose class is the
    direction of the stripes."""
    count = steps * batch_size
    random = np.random.default_rng(seed)
    labels = random.integers(0, CLASSES, count)
    angle = labels * np.pi / CLASSES
    y, x = np.mgrid[0:IMAGE_SIZE, 0:IMAGE_SIZE]
    along = x[None] * np.cos(angle)[:, None, None] + y[None] * np.sin(angle)[:, None, None]
    stripes = np.sin(along * 0.8 + random.uniform(0, 6, count)[:, None, None])
    images = stripes[..., None] + random.normal(0, 0.3, (count, IMAGE_SIZE, IMAGE_SIZE, 3))
    shape = (steps, batch_size, IMAGE_SIZE, IMAGE_SIZE, 3)
    # From a generator: the images stay in host memory, and only the batches under way are on the
    # device.
    return tf.data.Dataset.from_generator(
        lambda: zip(
            images.astype("float32").reshape(shape), labels.reshape(steps, batch_size), strict=True
        ),
        output_signature=(
            tf.TensorSpec(shape[1:], tf.float32),
            tf.TensorSpec(shape[1:2], tf.int64),
        ),
    ).apply(tf.data.experimental.assert_cardinality(steps))


def make_model() -> keras.Model:
    """VGG16 without its top, with a small head for `CLASSES` classes."""
    backbone = keras.applications.VGG16(
        weights=None, include_top=False, input_shape=(IMAGE_SIZE, IMAGE_SIZE, 3)
    )
    return keras.Sequential(
        [
            backbone,
            keras.layers.GlobalAveragePooling2D(name="pool"),
            keras.layers.Dense(256, activation="relu", name="head"),
            keras.layers.Dense(CLASSES, name="logits"),
        ],
        name="classifier",
    )


def compile_model(model: keras.Model) -> None:
    """Compiles with a new Adam, as is needed for a change of `trainable` to take effect."""
    model.compile(
        optimizer=keras.optimizers.Adam(1e-4),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )


def train(run: pathlib.Path, epochs: int, steps: int, frozen: bool) -> None:
    """One run. A frozen backbone trains `epochs` epochs, a third of them in each of `STAGES`, one
    without frozen layers a third of them."""
    keras.utils.set_random_seed(1)
    # One operation at a time, as on a GPU: the peak does not depend on which of them overlap.
    tf.config.threading.set_inter_op_parallelism_threads(1)
    batches = make_batches(steps, seed=1)
    model = make_model()
    backbone = model.get_layer("vgg16")
    # a run of a minute: the default is for longer ones
    callback = tb_memplugin.MemoryCallback(run, overhead=0.1)
    fit = {
        "validation_data": make_batches(2, seed=2),
        "callbacks": [callback],
        "shuffle": False,
        "verbose": 0,
    }
    if frozen:
        for at, blocks in enumerate(STAGES):
            print(
                f"{run.name}: trainable blocks of the backbone: {', '.join(blocks) or 'none'}",
                flush=True,
            )
            for layer in backbone.layers:
                layer.trainable = layer.name.startswith(blocks)
            compile_model(model)
            first, last = (epochs * stage // len(STAGES) for stage in (at, at + 1))
            model.fit(batches, initial_epoch=first, epochs=last, **fit)
    else:
        compile_model(model)
        model.fit(batches, epochs=max(1, epochs // len(STAGES)), **fit)
    callback.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--logdir", type=pathlib.Path, default=pathlib.Path("runs"))
    parser.add_argument(
        "--epochs", type=int, default=6, help="epochs of the run frozen, at least 3"
    )
    parser.add_argument("--steps", type=int, default=8, help="training steps in an epoch")
    parser.add_argument("--run", choices=RUNS, help="only this run, in this process")
    arguments = parser.parse_args()
    if arguments.run is None:
        # each in a process of its own, as trainings are: what one leaves behind is not the other's
        for name in RUNS:
            subprocess.run([sys.executable, __file__, *sys.argv[1:], "--run", name], check=True)
        return
    gpus = tf.config.list_physical_devices("GPU")
    where = (
        f"on {len(gpus)} GPU"
        if gpus
        else (f"on the CPU's BFC allocator, capacity {CAPACITY_MIB} MiB")
    )
    run = arguments.logdir / arguments.run
    shutil.rmtree(run, ignore_errors=True)
    began = time.monotonic()
    print(f"{run.name}: training {where}", flush=True)
    train(run, arguments.epochs, arguments.steps, frozen=arguments.run == "frozen")
    print(f"{run.name}: done in {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
