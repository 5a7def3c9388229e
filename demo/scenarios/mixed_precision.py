"""A deep model of narrow layers, whose memory is mostly activations, a wide one, whose memory is
mostly weights, and a CNN, in float32, `mixed_float16` and `mixed_bfloat16`. Activations are stored
with 16 bits. Variables, their gradients when they are applied, and optimizer state stay in float32.

usage: python demo/scenarios/mixed_precision.py [--logdir runs/scenarios]
"""

import functools
import os

# Must be known before TensorFlow is imported: TensorFlow's default CPU allocator keeps no
# statistics.
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")

import keras
import tensorflow as tf
from scenario import HALVES, Advice, Claim, Comparison, Expected, Scenario, Variant, main

import tb_memplugin

CLASSES, BATCH = 8, 32
TOKENS, NARROW, DEPTH = 128, 128, 12
WIDE = 1536
SIDE, CHANNELS = 32, (32, 64)


def make_logits():
    return keras.layers.Dense(CLASSES, dtype="float32", name="logits")


def make_deep():
    layers = [
        keras.layers.Dense(NARROW, activation="relu", name=f"dense{at}") for at in range(DEPTH)
    ]
    head = [
        keras.layers.GlobalAveragePooling1D(name="pool"),
        make_logits(),
    ]
    return keras.Sequential([keras.Input((TOKENS, NARROW)), *layers, *head])


def make_wide():
    return keras.Sequential(
        [
            keras.Input((WIDE,)),
            keras.layers.Dense(WIDE, activation="relu", name="dense"),
            make_logits(),
        ]
    )


def make_cnn():
    return keras.Sequential(
        [
            keras.Input((SIDE, SIDE, 3)),
            keras.layers.Conv2D(CHANNELS[0], 3, padding="same", activation="relu", name="conv1"),
            keras.layers.Conv2D(CHANNELS[1], 3, padding="same", activation="relu", name="conv2"),
            keras.layers.GlobalAveragePooling2D(name="pool"),
            make_logits(),
        ]
    )


def make_batches(steps, shape):
    def make_batch(step):
        inputs = tf.random.stateless_uniform((BATCH, *shape), [1, step])
        return inputs, tf.random.stateless_uniform((BATCH,), [2, step], 0, CLASSES, tf.int64)

    return tf.data.Dataset.range(steps).map(make_batch)


def train(run, make_model, policy):
    keras.mixed_precision.set_global_policy(policy)
    model = make_model()
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    callback = tb_memplugin.MemoryCallback(run, trace_steps=[2, 3])
    model.fit(make_batches(4, model.input_shape[1:]), verbose=0, callbacks=[callback])
    callback.close()


def dense(inputs, outputs):
    return (inputs + 1) * outputs


LARGE = dense(WIDE, WIDE) + dense(WIDE, CLASSES)
# Values that the backward pass reads: the inputs and the result of each layer, with 32 or 16 bits
# ...
SAVED = BATCH * TOKENS * NARROW * (1 + DEPTH)
# ... and in float32 always, the means and the logits. With 16 bits also the converted kernels of
# all layers but the first, whose inputs need no gradient.
SAVED_HEAD = 4 * BATCH * (NARROW + CLASSES)
KERNELS = (DEPTH - 1) * NARROW**2

POLICIES = ("float32", "mixed_float16", "mixed_bfloat16")
TO_HALF = Claim("falls to half", 0, 0.5)
# On a GPU the batch in float32 counts as inputs, its 16-bit copy as saved.
ABOUT_HALF = Claim("falls to about half", 0.45, 0.6)

SCENARIO = Scenario(
    number=5,
    title="Mixed precision",
    file=__file__,
    description=__doc__,
    runs={
        f"{name}_{policy}": Variant(functools.partial(train, make_model=make, policy=policy))
        for name, make in (("deep", make_deep), ("wide", make_wide), ("cnn", make_cnn))
        for policy in POLICIES
        if (name, policy) != ("cnn", "mixed_bfloat16")
    },
    advice=[
        Advice(
            words=["“Mixed precision stores activations in half the memory.”"],
            verdict="true",
            because="Of what is saved for the backward pass, only the 16-bit copies of the kernels "
            "are new. On a GPU the batch in float32 counts as inputs, its 16-bit copy as "
            "saved.",
            comparisons=[
                Comparison(
                    "deep_float32",
                    f"deep_{policy}",
                    title=f"`{policy}`",
                    figure="saved_for_backward",
                    claim=claim,
                    only=kind,
                    expected=[
                        Expected(
                            "saved_for_backward",
                            4 * SAVED + SAVED_HEAD,
                            2 * SAVED + 2 * KERNELS + SAVED_HEAD,
                            "4 B × results → 2 B × (results + kernels)",
                            1e-6,  # the loss itself, a single number, may be saved or not
                        ),
                    ],
                )
                for kind, claim in (("CPU", HALVES), ("GPU", ABOUT_HALF))
                for policy in POLICIES[1:]
            ],
        ),
        Advice(
            words=[
                "“Mixed precision halves the model's weights.”",
                "“Mixed precision halves optimizer state.”",
            ],
            verdict="not true",
            because="Variables and slots stay in float32. During a step each kernel also has a "
            "16-bit copy.",
            comparisons=[
                Comparison(
                    "wide_float32",
                    f"wide_{policy}",
                    title=f"`{policy}`",
                    figure="weights",
                    claim=HALVES,
                    expected=[
                        Expected("weights", 4 * LARGE, 4 * LARGE, "4 B × parameters"),
                        Expected(
                            "optimizer_state", 8 * LARGE, 8 * LARGE, "8 B × parameters", 0.001
                        ),
                    ],
                )
                for policy in POLICIES[1:]
            ],
        ),
        Advice(
            words=["“Use mixed precision to save memory.”"],
            verdict="true only if",
            because="activations are most of it, and the kernels for 16 bits need no more scratch "
            "space. Those of float16 convolutions on the CPU do.",
            comparisons=[
                Comparison("deep_float32", "deep_mixed_float16", title="Mostly activations"),
                Comparison("deep_float32", "deep_mixed_bfloat16", title="Mostly activations"),
                Comparison("wide_float32", "wide_mixed_float16", title="Mostly weights"),
                Comparison("cnn_float32", "cnn_mixed_float16", title="Convolutions"),
            ],
        ),
        Advice(
            words=["“Mixed precision halves memory.”"],
            verdict="not true",
            because="Weights, slots and data in float32 remain, and each step adds copies of the "
            "weights in 16 bits.",
            comparisons=[
                Comparison(
                    "wide_float32", "wide_mixed_float16", title="Mostly weights", claim=TO_HALF
                )
            ],
        ),
    ],
)

if __name__ == "__main__":
    main(SCENARIO)
