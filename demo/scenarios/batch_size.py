"""A CNN with batches of 64 and of 16 images. Activations, their gradients and the batches scale
with the batch size; weights, their gradients and the optimizer's slots do not.

usage: python demo/scenarios/batch_size.py [--logdir runs/scenarios]
"""

import functools
import os

# Must be known before TensorFlow is imported: TensorFlow's default CPU allocator keeps no
# statistics.
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")

import keras
import tensorflow as tf
from scenario import Advice, Comparison, Expected, Scenario, Variant, main

import tb_memplugin

SIDE, CHANNELS, CLASSES = 32, (32, 64), 10


def make_model():
    return keras.Sequential(
        [
            keras.Input((SIDE, SIDE, 3)),
            keras.layers.Conv2D(CHANNELS[0], 3, padding="same", activation="relu", name="conv1"),
            keras.layers.Conv2D(CHANNELS[1], 3, padding="same", activation="relu", name="conv2"),
            keras.layers.GlobalAveragePooling2D(name="pool"),
            keras.layers.Dense(4096, activation="relu", name="wide"),
            keras.layers.Dense(CLASSES, name="logits"),
        ]
    )


def make_batches(steps, batch_size):
    # Made by TensorFlow one by one: NumPy arrays would be on the device as a whole, or not at all
    # (shared on a CPU).
    def make_batch(step):
        images = tf.random.stateless_uniform((batch_size, SIDE, SIDE, 3), [1, step])
        return images, tf.random.stateless_uniform((batch_size,), [2, step], 0, CLASSES, tf.int64)

    return tf.data.Dataset.range(steps).map(make_batch)


def train(run, batch_size):
    model = make_model()
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    callback = tb_memplugin.MemoryCallback(run, trace_steps=[2, 3])
    model.fit(make_batches(4, batch_size), verbose=0, callbacks=[callback])
    callback.close()


PARAMETERS = (9 * 3 + 1) * 32 + (9 * 32 + 1) * 64 + (64 + 1) * 4096 + (4096 + 1) * CLASSES
# What the backward pass reads, per image: the image, the results of both convolutions and of the
# wide layer, the means.
SAVED = 4 * (SIDE * SIDE * (3 + sum(CHANNELS)) + CHANNELS[-1] + 4096)

SCENARIO = Scenario(
    number=4,
    title="Batch size",
    file=__file__,
    description=__doc__,
    runs={f"batch_{size}": Variant(functools.partial(train, batch_size=size)) for size in (64, 16)},
    advice=[
        Advice(
            words=["“Out of memory? Reduce the batch size.”"],
            verdict="true",
            because="Activations shrink in proportion to the batch. Weights and optimizer state "
            "stay.",
            comparisons=[
                Comparison(
                    "batch_64",
                    "batch_16",
                    expected=[
                        Expected(
                            "weights",
                            4 * PARAMETERS,
                            4 * PARAMETERS,
                            f"4 B × {PARAMETERS:,} parameters",
                        ),
                        Expected(
                            "optimizer_state",
                            8 * PARAMETERS,
                            8 * PARAMETERS,
                            "twice the weights (Adam)",
                            0.001,
                        ),
                        Expected(
                            "saved_for_backward",
                            64 * SAVED,
                            16 * SAVED,
                            f"batch × {SAVED:,} B with the images",
                            0.001,
                        ),
                    ],
                )
            ],
        )
    ],
)

if __name__ == "__main__":
    main(SCENARIO)
