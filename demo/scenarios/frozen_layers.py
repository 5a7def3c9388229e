"""A small model of `Dense` layers with and without a frozen one in its middle, and VGG16 with and
without a frozen backbone. A frozen layer keeps its weights in memory. It has no weight gradients
and no optimizer state. What it saves in activations depends on whether a trainable layer comes
before it.

usage: python demo/scenarios/frozen_layers.py [--logdir runs/scenarios]
"""

import functools
import os

# Must be known before TensorFlow is imported: TensorFlow's default CPU allocator keeps no
# statistics.
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")

import keras
import tensorflow as tf
from scenario import FALLS, Advice, Comparison, Expected, Scenario, Variant, main

import tb_memplugin

CLASSES = 8
FEATURES, WIDTH, BATCH = 256, 1024, 256
SIDE, HEAD_WIDTH, VGG_BATCH = 64, 256, 8


def make_dense(frozen):
    model = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(WIDTH, activation="relu", name="first"),
            keras.layers.Dense(WIDTH, activation="relu", name="middle"),
            keras.layers.Dense(WIDTH, activation="relu", name="last"),
            keras.layers.Dense(CLASSES, name="logits"),
        ]
    )
    model.get_layer("middle").trainable = not frozen
    return model


def make_vgg(frozen):
    backbone = keras.applications.VGG16(
        weights=None, include_top=False, input_shape=(SIDE, SIDE, 3)
    )
    backbone.trainable = not frozen
    head = [
        keras.layers.GlobalAveragePooling2D(name="pool"),
        keras.layers.Dense(HEAD_WIDTH, activation="relu", name="head"),
        keras.layers.Dense(CLASSES, name="logits"),
    ]
    return keras.Sequential([backbone, *head])


def make_batches(steps, batch_size, shape):
    def make_batch(step):
        inputs = tf.random.stateless_uniform((batch_size, *shape), [1, step])
        return inputs, tf.random.stateless_uniform((batch_size,), [2, step], 0, CLASSES, tf.int64)

    return tf.data.Dataset.range(steps).map(make_batch)


def train(run, make_model, frozen, batch_size):
    model = make_model(frozen)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    callback = tb_memplugin.MemoryCallback(run, trace_steps=[2, 3])
    model.fit(make_batches(4, batch_size, model.input_shape[1:]), verbose=0, callbacks=[callback])
    callback.close()


def dense(inputs, outputs):
    return 4 * (inputs + 1) * outputs


MIDDLE = dense(WIDTH, WIDTH)
DENSE = dense(FEATURES, WIDTH) + 2 * MIDDLE + dense(WIDTH, CLASSES)
# The batch, and the results of the layers, in float32. The result of `middle` is also the input of
# `last`.
DENSE_SAVED = 4 * BATCH * (FEATURES + 3 * WIDTH + CLASSES)
# 3 × 3 kernels and biases of VGG16's thirteen convolutions.
CHANNELS = [
    (3, 64),
    (64, 64),
    (64, 128),
    (128, 128),
    (128, 256),
    (256, 256),
    (256, 256),
    (256, 512),
    *[(512, 512)] * 5,
]
BACKBONE = sum(4 * (9 * before + 1) * after for before, after in CHANNELS)
HEAD = dense(512, HEAD_WIDTH) + dense(HEAD_WIDTH, CLASSES)
# What training the head needs: its inputs, the mean of 512 features, and the results of its layers.
HEAD_SAVED = 4 * VGG_BATCH * (512 + HEAD_WIDTH + CLASSES)
# Channels and side of the results of the convolutions and of the pools that end the blocks.
# oneDNN's pool on a CPU also stores one byte for each result: which of the four inputs was the
# largest.
CONVOLUTIONS = [
    (64, 1),
    (64, 1),
    (128, 2),
    (128, 2),
    *[(256, 4)] * 3,
    *[(512, 8)] * 3,
    *[(512, 16)] * 3,
]
POOLS = [(64, 2), (128, 4), (256, 8), (512, 16), (512, 32)]
VGG_SAVED = HEAD_SAVED + VGG_BATCH * (
    4 * SIDE**2 * 3
    + sum(4 * channels * (SIDE // scale) ** 2 for channels, scale in CONVOLUTIONS)
    + sum(5 * channels * (SIDE // scale) ** 2 for channels, scale in POOLS)
)
# The largest two results that exist at the same time: those of the first two convolutions.
PASSING = 2 * 4 * VGG_BATCH * SIDE**2 * 64

IN_THE_MIDDLE = ("dense_trainable", "dense_frozen")
BEFORE_ALL_OTHERS = ("vgg16_trainable", "vgg16_frozen")

SCENARIO = Scenario(
    number=1,
    title="Frozen layers",
    file=__file__,
    description=__doc__,
    runs={
        f"{name}_{state}": Variant(
            functools.partial(train, make_model=make, frozen=frozen, batch_size=batch)
        )
        for name, make, batch in (("dense", make_dense, BATCH), ("vgg16", make_vgg, VGG_BATCH))
        for state, frozen in (("trainable", False), ("frozen", True))
    },
    advice=[
        Advice(
            words=["“Freeze layers: they need no gradients and no optimizer state.”"],
            verdict="true",
            because="Adam keeps two values for each trainable parameter and none for a frozen one.",
            comparisons=[
                Comparison(
                    *IN_THE_MIDDLE,
                    title="A frozen layer in the middle",
                    figure="optimizer_state",
                    expected=[
                        Expected("weights", DENSE, DENSE, "4 B × parameters"),
                        Expected(
                            "optimizer_state",
                            2 * DENSE,
                            2 * (DENSE - MIDDLE),
                            "8 B × trainable",
                            0.001,
                        ),
                    ],
                ),
                Comparison(
                    *BEFORE_ALL_OTHERS,
                    title="A frozen backbone",
                    figure="optimizer_state",
                    expected=[
                        Expected("weights", BACKBONE + HEAD, BACKBONE + HEAD, "4 B × parameters"),
                        Expected(
                            "optimizer_state",
                            2 * (BACKBONE + HEAD),
                            2 * HEAD,
                            "8 B × trainable",
                            0.001,
                        ),
                    ],
                ),
            ],
        ),
        Advice(
            words=["“Frozen layers store no activations for the backward pass.”"],
            verdict="true only if",
            because="no trainable layer comes before them. Otherwise gradients pass through them, "
            "and the backward pass of their neighbours still reads the results on both sides.",
            comparisons=[
                Comparison(
                    *IN_THE_MIDDLE,
                    title="Behind a trainable layer",
                    figure="saved_for_backward",
                    expected=[
                        Expected(
                            "saved_for_backward",
                            DENSE_SAVED,
                            DENSE_SAVED,
                            "batch × (inputs + results)",
                        )
                    ],
                ),
                Comparison(
                    *BEFORE_ALL_OTHERS,
                    title="Before all trainable layers",
                    figure="saved_for_backward",
                    expected=[
                        Expected(
                            "saved_for_backward",
                            VGG_SAVED,
                            HEAD_SAVED,
                            "all results → those of the head",
                            cpu_only=True,
                        )
                    ],
                ),
            ],
        ),
        Advice(
            words=["“Frozen layers cost no memory.”"],
            verdict="not true",
            because="Their weights stay on the device, and in the forward pass their results exist "
            "one after another.",
            comparisons=[
                Comparison(
                    *BEFORE_ALL_OTHERS,
                    claim=FALLS,
                    figure="weights",
                    expected=[
                        Expected("frozen_weights", 0, BACKBONE, "4 B × parameters of the backbone"),
                        Expected(
                            "workspace",
                            None,
                            PASSING,
                            "results of two convolutions",
                            0.01,
                            cpu_only=True,
                        ),
                    ],
                ),
            ],
        ),
    ],
)

if __name__ == "__main__":
    main(SCENARIO)
