"""A custom loop that keeps the features of every step in a list: as tensors, as tensors with
`gc.collect()` at every step, and as NumPy arrays. The tab names the list that keeps the tensors
alive.

usage: python demo/scenarios/leak.py [--logdir runs/scenarios]
"""

import functools
import gc
import os

# Must be known before TensorFlow is imported: TensorFlow's default CPU allocator keeps no
# statistics.
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")

import keras
import numpy as np
import tensorflow as tf
from scenario import FALLS, Advice, Comparison, Expected, Scenario, Variant, main, of_step

import tb_memplugin

BATCH_SIZE, INPUTS, WIDTH, CLASSES, STEPS = 64, 32, 2048, 10, 40
FEATURES = 4 * BATCH_SIZE * WIDTH
"""Bytes of the features of a batch."""

history = []


def train(run, collect=False, numpy=False):
    hidden = keras.layers.Dense(WIDTH, activation="relu", name="features")
    logits = keras.layers.Dense(CLASSES, name="logits")
    model = keras.Sequential([keras.Input((INPUTS,)), hidden, logits])
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def train_step(inputs, classes):
        with tf.GradientTape() as tape:
            features = hidden(inputs)
            loss = loss_function(classes, logits(features))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return features

    random = np.random.default_rng(1)
    traced = [STEPS // 2, STEPS - 1]
    with tb_memplugin.MemoryRecorder(
        run, model=model, optimizer=optimizer, trace_steps=traced
    ) as recorder:
        for step in range(STEPS):
            inputs = tf.constant(random.random((BATCH_SIZE, INPUTS), "float32"))
            classes = tf.constant(random.integers(0, CLASSES, BATCH_SIZE))
            with recorder.step(step):
                features = train_step(inputs, classes)
                history.append(np.array(features) if numpy else features)
                del features
                if collect:
                    gc.collect()


def measure(run):
    """Figures of the last step, and the bytes that the recorder ascribes to the list."""
    snapshot = max(run.snapshots, key=lambda one: one.step)
    groups = [
        group
        for group in snapshot.held_tensors
        if group.held_by == "list `history` in module __main__"
    ]
    return {
        **of_step(STEPS - 1)(run),
        "held_by_the_list_history": sum(group.bytes for group in groups),
    }


def compared_with(name, kept):
    before, after = (STEPS - 1) * FEATURES, kept * FEATURES
    expected = [
        Expected(figure, before, after, f"{FEATURES:,} B for each step before", 0.001)
        for figure in ("held_tensors", "held_by_the_list_history")
    ]
    return Comparison(
        "tensors_in_a_list", name, claim=FALLS, figure="held_tensors", expected=expected
    )


SCENARIO = Scenario(
    number=16,
    title="A leak in a custom loop",
    file=__file__,
    description=__doc__,
    runs={
        "tensors_in_a_list": Variant(train),
        "gc_collect": Variant(functools.partial(train, collect=True)),
        "numpy_arrays": Variant(functools.partial(train, numpy=True)),
    },
    measure=measure,
    advice=[
        Advice(
            words=["“Memory grows from step to step? Call gc.collect().”"],
            verdict="not true",
            because="The list still refers to the tensors, and Python's garbage collector frees "
            "only what nothing refers to.",
            comparisons=[compared_with("gc_collect", STEPS - 1)],
        ),
        Advice(
            words=["“Keep `.numpy()` of a tensor, not the tensor.”"],
            verdict="true",
            because="A NumPy copy lies in host memory, and the tensor is freed. On a CPU `numpy()` "
            "may share the tensor's memory; `np.array` copies.",
            comparisons=[compared_with("numpy_arrays", 0)],
        ),
    ],
)

if __name__ == "__main__":
    main(SCENARIO)
