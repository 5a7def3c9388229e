"""The same training step run eagerly and as a `tf.function`, with a persistent `GradientTape` that
is kept or deleted, and with variables and data in float64 or float32, in a custom loop.

usage: python demo/scenarios/eager_and_graph.py [--logdir runs/scenarios]
"""

import functools
import os

# Must be known before TensorFlow is imported: TensorFlow's default CPU allocator keeps no
# statistics.
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")

import keras
import tensorflow as tf
from scenario import HALVES, Advice, Comparison, Expected, Scenario, Variant, main

import tb_memplugin

ROWS, WIDTH, DEPTH, CLASSES = 4096, 128, 8, 8


def make_model(dtype):
    layers = [
        keras.layers.Dense(WIDTH, activation="relu", dtype=dtype, name=f"dense{at}")
        for at in range(DEPTH)
    ]
    logits = keras.layers.Dense(CLASSES, dtype=dtype, name="logits")
    return keras.Sequential([keras.Input((WIDTH,), dtype=dtype), *layers, logits])


def make_batches(steps, dtype):
    def make_batch(step):
        inputs = tf.random.stateless_uniform((ROWS, WIDTH), [1, step], dtype=dtype)
        return inputs, tf.random.stateless_uniform((ROWS,), [2, step], 0, CLASSES, tf.int64)

    return tf.data.Dataset.range(steps).map(make_batch)


def train(run, function=True, tape="", dtype="float32"):
    """`tape`: "" for an ordinary one; a persistent one is "kept" until the next step, or "deleted"
    after its use."""
    keras.config.set_floatx(dtype)
    model = make_model(dtype)
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    kept = {}

    def train_step(inputs, classes):
        with tf.GradientTape(persistent=bool(tape)) as gradient_tape:
            loss = loss_function(classes, model(inputs, training=True))
        gradients = gradient_tape.gradient(loss, model.trainable_variables)
        if tape == "kept":
            kept["tape"] = gradient_tape
        del gradient_tape
        optimizer.apply(gradients, model.trainable_variables)

    step_function = tf.function(train_step) if function else train_step
    with tb_memplugin.MemoryRecorder(run, model, optimizer, trace_steps=[2, 3]) as recorder:
        for step, (inputs, classes) in enumerate(make_batches(4, dtype)):
            with recorder.step(step):
                step_function(inputs, classes)


PARAMETERS = DEPTH * (WIDTH + 1) * WIDTH + (WIDTH + 1) * CLASSES
# What the backward pass reads, beside the inputs: the result of each layer.
RESULTS = ROWS * (DEPTH * WIDTH + CLASSES)
# Weights, two slots for each of them, and two batches of inputs: the step's and a prefetched one.
STATE = 4 * (3 * PARAMETERS + 2 * ROWS * WIDTH)

SCENARIO = Scenario(
    number=3,
    title="Eager mode, tapes and float64",
    file=__file__,
    description=__doc__,
    runs={
        "eager": Variant(functools.partial(train, function=False)),
        "function": Variant(train),
        "tape_kept": Variant(functools.partial(train, function=False, tape="kept")),
        "tape_deleted": Variant(functools.partial(train, function=False, tape="deleted")),
        "float64": Variant(functools.partial(train, dtype="float64")),
    },
    advice=[
        Advice(
            words=["“Use `tf.function`: eager mode keeps more activations.”"],
            verdict="not true",
            because="Both keep the same results for the backward pass. What else exists at the "
            "peak depends on the order of the operations, which in graph mode the executor "
            "chooses.",
            comparisons=[
                Comparison(
                    "eager",
                    "function",
                    figure="saved_for_backward",
                    expected=[
                        Expected(
                            "saved_for_backward", 4 * RESULTS, 4 * RESULTS, "4 B × results", 0.01
                        )
                    ],
                )
            ],
        ),
        Advice(
            words=["“Delete a persistent tape after use: it keeps the activations alive.”"],
            verdict="true",
            because="A kept tape keeps the results of its step until the next tape replaces it, so "
            "that those of two steps exist at the peak. The older ones count as held tensors.",
            comparisons=[
                Comparison(
                    "tape_kept",
                    "tape_deleted",
                    expected=[
                        Expected(
                            "saved_for_backward",
                            4 * RESULTS,
                            4 * RESULTS,
                            "4 B × results of this step",
                        ),
                        Expected(
                            "held_tensors", 4 * RESULTS, 0, "results of the step before", 0.06
                        ),
                        Expected(
                            "step_end",
                            STATE + 4 * RESULTS,
                            STATE,
                            "weights, slots, batches, kept results",
                            0.15,
                        ),
                    ],
                ),
            ],
        ),
        Advice(
            words=["“Cast float64 to float32: it needs half the memory.”"],
            verdict="true",
            because="Weights, slots, data and all results have half the bytes for each value.",
            comparisons=[
                Comparison(
                    "float64",
                    "function",
                    claim=HALVES,
                    expected=[
                        Expected(
                            "weights", 8 * PARAMETERS, 4 * PARAMETERS, "8 B → 4 B × parameters"
                        ),
                        Expected(
                            "optimizer_state",
                            16 * PARAMETERS,
                            8 * PARAMETERS,
                            "twice the weights (Adam)",
                            0.001,
                        ),
                        Expected(
                            "saved_for_backward", 8 * RESULTS, 4 * RESULTS, "8 B → 4 B × results"
                        ),
                    ],
                )
            ],
        ),
    ],
)

if __name__ == "__main__":
    main(SCENARIO)
