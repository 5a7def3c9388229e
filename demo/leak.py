"""Trains a small CNN in a custom loop that leaks: it keeps the features of every step in a list,
"for a plot later".

The features stay on the device, so memory grows by 2 MiB per step; the tab names the list that
keeps them alive. `features.numpy()` instead of `features` would move them to host memory.

Nothing is downloaded. Without a GPU the training runs on the CPU's BFC allocator at the capacity
stated below.

usage: python demo/leak.py [--logdir runs] [--steps 120]
"""

import argparse
import os
import pathlib
import shutil
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

IMAGE_SIZE, BATCH_SIZE, CLASSES = 64, 16, 8
FEATURES_SHAPE = (BATCH_SIZE, 16, 16, 128)
"""Shape of the tensor that each step leaks: 2 MiB in float32."""

history: list[tf.Tensor] = []


def make_batches(steps: int) -> tf.data.Dataset:
    """`steps` batches of random images, shape [IMAGE_SIZE, IMAGE_SIZE, 3], of random classes."""
    random = np.random.default_rng(1)

    def batches():
        for _ in range(steps):
            images = random.normal(size=(BATCH_SIZE, IMAGE_SIZE, IMAGE_SIZE, 3)).astype("float32")
            yield images, random.integers(0, CLASSES, BATCH_SIZE)

    signature = (
        tf.TensorSpec((BATCH_SIZE, IMAGE_SIZE, IMAGE_SIZE, 3), tf.float32),
        tf.TensorSpec((BATCH_SIZE,), tf.int64),
    )
    return tf.data.Dataset.from_generator(batches, output_signature=signature)


def make_model() -> keras.Model:
    """A CNN with two outputs: logits, and the features of its last convolution."""
    inputs = keras.Input((IMAGE_SIZE, IMAGE_SIZE, 3), batch_size=BATCH_SIZE)
    hidden = keras.layers.Conv2D(32, 3, padding="same", activation="relu", name="conv1")(inputs)
    hidden = keras.layers.MaxPooling2D(2, name="pool1")(hidden)
    hidden = keras.layers.Conv2D(64, 3, padding="same", activation="relu", name="conv2")(hidden)
    hidden = keras.layers.MaxPooling2D(2, name="pool2")(hidden)
    features = keras.layers.Conv2D(
        FEATURES_SHAPE[-1], 3, padding="same", activation="relu", name="conv3"
    )(hidden)
    logits = keras.layers.Dense(CLASSES, name="logits")(
        keras.layers.GlobalAveragePooling2D(name="pool3")(features)
    )
    return keras.Model(inputs, [logits, features], name="cnn")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--logdir", type=pathlib.Path, default=pathlib.Path("runs"))
    parser.add_argument("--steps", type=int, default=120)
    arguments = parser.parse_args()
    run = arguments.logdir / "leak"
    shutil.rmtree(run, ignore_errors=True)
    keras.utils.set_random_seed(1)
    model, optimizer = make_model(), keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)
    loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def train_step(images, classes):
        with tf.GradientTape() as tape:
            logits, features = model(images, training=True)
            loss = loss_function(classes, logits)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss, features

    began = time.monotonic()
    print(f"{run.name}: training for {arguments.steps} steps, each leaks 2 MiB", flush=True)
    # In a run of a few seconds the default overhead would allow one traced step.
    every = max(1, arguments.steps // 6)
    traced = range(every - 1, arguments.steps, every)
    with tb_memplugin.MemoryRecorder(
        run, model=model, optimizer=optimizer, trace_steps=traced
    ) as recorder:
        for step, (images, classes) in enumerate(make_batches(arguments.steps)):
            with recorder.step(step):
                _, features = train_step(images, classes)
                history.append(features)  # the leak
    print(f"{run.name}: done in {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
