"""A training with batches of 64 examples, and with 4 batches of 16 whose gradients are summed
before the weights change: by the optimizer (`gradient_accumulation_steps=4`) and by hand. The sums
are one more value for each trainable parameter, and they stay in memory.

usage: python demo/scenarios/gradient_accumulation.py [--logdir runs/scenarios]
"""

import functools
import os

# Must be known before TensorFlow is imported: TensorFlow's default CPU allocator keeps no
# statistics.
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")

import keras
import tensorflow as tf
from scenario import STAYS, Advice, Comparison, Expected, Scenario, Variant, main

import tb_memplugin

CLASSES, ACCUMULATED = 8, 4
SIDE, CHANNELS = 32, (32, 64)
WIDE = 1536


def make_cnn():
    return keras.Sequential(
        [
            keras.Input((SIDE, SIDE, 3)),
            keras.layers.Conv2D(CHANNELS[0], 3, padding="same", activation="relu", name="conv1"),
            keras.layers.Conv2D(CHANNELS[1], 3, padding="same", activation="relu", name="conv2"),
            keras.layers.GlobalAveragePooling2D(name="pool"),
            keras.layers.Dense(CLASSES, name="logits"),
        ]
    )


def make_wide():
    return keras.Sequential(
        [
            keras.Input((WIDE,)),
            keras.layers.Dense(WIDE, activation="relu", name="dense"),
            keras.layers.Dense(CLASSES, name="logits"),
        ]
    )


def make_batches(steps, batch_size, shape):
    def make_batch(step):
        inputs = tf.random.stateless_uniform((batch_size, *shape), [1, step])
        return inputs, tf.random.stateless_uniform((batch_size,), [2, step], 0, CLASSES, tf.int64)

    return tf.data.Dataset.range(steps).map(make_batch)


def train(run, make_model, batch_size, accumulated=None):
    """Keras's `fit`; the optimizer sums the gradients of `accumulated` batches, if that is
    given."""
    model = make_model()
    optimizer = keras.optimizers.Adam(gradient_accumulation_steps=accumulated)
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    callback = tb_memplugin.MemoryCallback(run, trace_steps=[2, 3, 4, 5, 6, 7])
    model.fit(make_batches(8, batch_size, model.input_shape[1:]), verbose=0, callbacks=[callback])
    callback.close()


def train_by_hand(run, make_model, batch_size):
    """A custom loop that keeps the sums of the gradients in variables."""
    model = make_model()
    optimizer = keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    sums = [
        tf.Variable(tf.zeros(variable.shape), trainable=False)
        for variable in model.trainable_variables
    ]

    @tf.function
    def add_gradients(inputs, classes):
        with tf.GradientTape() as tape:
            loss = loss_function(classes, model(inputs, training=True)) / ACCUMULATED
        for total, gradient in zip(
            sums, tape.gradient(loss, model.trainable_variables), strict=True
        ):
            total.assign_add(gradient)

    @tf.function
    def apply_gradients():
        optimizer.apply([tf.convert_to_tensor(total) for total in sums], model.trainable_variables)
        for total in sums:
            total.assign(tf.zeros_like(total))

    with tb_memplugin.MemoryRecorder(
        run, model, optimizer, trace_steps=[2, 3, 4, 5, 6, 7]
    ) as recorder:
        for step, (inputs, classes) in enumerate(
            make_batches(8, batch_size, model.input_shape[1:])
        ):
            with recorder.step(step):
                add_gradients(inputs, classes)
                if step % ACCUMULATED == ACCUMULATED - 1:
                    apply_gradients()


LARGE = 4 * ((WIDE + 1) * WIDE + (WIDE + 1) * CLASSES)
# What the backward pass reads, for each image: the image, the results of both convolutions, the
# means and the logits.
IMAGE = 4 * SIDE**2 * 3
SAVED = IMAGE + 4 * (SIDE**2 * sum(CHANNELS) + CHANNELS[-1] + CLASSES)
# The loss itself, a single number, may be saved or not.
SCALAR = 1e-6

SCENARIO = Scenario(
    number=7,
    title="Gradient accumulation",
    file=__file__,
    description=__doc__,
    runs={
        f"{name}_{way}": variant
        for name, make in (("cnn", make_cnn), ("wide", make_wide))
        for way, variant in (
            ("batch_64", Variant(functools.partial(train, make_model=make, batch_size=64))),
            ("batch_16", Variant(functools.partial(train, make_model=make, batch_size=16))),
            (
                "by_optimizer",
                Variant(
                    functools.partial(
                        train, make_model=make, batch_size=16, accumulated=ACCUMULATED
                    )
                ),
            ),
            ("by_hand", Variant(functools.partial(train_by_hand, make_model=make, batch_size=16))),
        )
    },
    advice=[
        Advice(
            words=["“Use gradient accumulation: a large batch with the memory of a small one.”"],
            verdict="true only if",
            because="activations are most of the memory. Where weights are, the sums take more "
            "than the smaller batch saves.",
            comparisons=[
                Comparison(
                    "cnn_batch_64",
                    "cnn_by_optimizer",
                    title="Mostly activations, summed by the optimizer",
                    expected=[
                        Expected(
                            "saved_for_backward",
                            64 * SAVED,
                            16 * SAVED,
                            f"batch × {SAVED:,} B",
                            SCALAR,
                        )
                    ],
                ),
                Comparison(
                    "cnn_batch_64",
                    "cnn_by_hand",
                    title="Mostly activations, summed by hand",
                    # The loop holds the images anyway.
                    expected=[
                        Expected(
                            "saved_for_backward",
                            64 * SAVED,
                            16 * (SAVED - IMAGE),
                            "without the images",
                            SCALAR,
                        )
                    ],
                ),
                Comparison(
                    "wide_batch_64",
                    "wide_by_optimizer",
                    title="Mostly weights, summed by the optimizer",
                ),
                Comparison("wide_batch_64", "wide_by_hand", title="Mostly weights, summed by hand"),
            ],
        ),
        Advice(
            words=["“Gradient accumulation needs no additional memory.”"],
            verdict="not true",
            because="The sums are one more value for each trainable parameter, whoever adds them "
            "up, and they stay between the steps. While they are set to zero, the old and "
            "the new values exist.",
            comparisons=[
                Comparison(
                    "wide_batch_16",
                    run,
                    title=title,
                    claim=STAYS,
                    # Not the peak: there the sums can take the place of rounding, of chunks that
                    # were not split.
                    figure="step_end",
                    expected=[
                        Expected("weights", LARGE, LARGE, "4 B × parameters"),
                        Expected("optimizer_state", 2 * LARGE, slots, slots_formula, 0.001),
                        # The peak of other devices need not be where the sums are set to zero.
                        Expected("other_state", 0, sums, sums_formula, 0.01, cpu_only=True),
                    ],
                )
                for run, title, slots, slots_formula, sums, sums_formula in (
                    (
                        *("wide_by_optimizer", "Summed by the optimizer"),
                        *(3 * LARGE, "8 B → 12 B × parameters: slots and sums"),
                        *(LARGE, "new sums, 4 B × parameters"),
                    ),
                    (
                        *("wide_by_hand", "By hand"),
                        *(2 * LARGE, "8 B × parameters"),
                        *(2 * LARGE, "old and new sums, 4 B × parameters each"),
                    ),
                )
            ],
        ),
    ],
)

if __name__ == "__main__":
    main(SCENARIO)
