"""A classifier with a hand-written loss and a CNN, in graph mode and compiled by XLA. In graph
mode, operations allocate their results one by one. A compiled step is one module, whose memory XLA
plans in advance: it merges elementwise operations, such as those of the loss, but needs more memory
for the gradients of max pooling.

usage: python demo/scenarios/xla.py [--logdir runs/scenarios]
"""

import functools
import os

# Must be known before TensorFlow is imported: TensorFlow's default CPU allocator keeps no
# statistics.
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")

import keras
import numpy as np
from scenario import FALLS, Advice, Comparison, Expected, Scenario, Variant, main

import tb_memplugin

CLASSES = 10
FEATURES, WORDS, WORDS_BATCH = 64, 4096, 192
SIDE, CHANNELS, CNN_BATCH = 64, (16, 32, 64), 16


def make_classifier():
    return keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(WORDS, name="logits")])


def focal_loss(classes, logits):
    """A focal loss with label smoothing, written operation by operation."""
    probabilities = keras.ops.softmax(logits)
    wanted = 0.9 * keras.ops.one_hot(classes[:, 0], WORDS) + 0.1 / WORDS
    return -keras.ops.sum(
        wanted * (1 - probabilities) ** 2 * keras.ops.log(probabilities + 1e-7), axis=-1
    )


def make_cnn():
    layers = [keras.Input((SIDE, SIDE, 3))]
    for number, channels in enumerate(CHANNELS, 1):
        layers += [
            keras.layers.Conv2D(
                channels, 3, padding="same", activation="relu", name=f"block{number}_conv"
            ),
            keras.layers.MaxPooling2D(2, name=f"block{number}_pool"),
        ]
    head = [
        keras.layers.GlobalAveragePooling2D(name="pool"),
        keras.layers.Dense(CLASSES, name="logits"),
    ]
    return keras.Sequential([*layers, *head])


def train(run, kind, compiled):
    if kind == "loss":
        model, batch_size, loss = make_classifier(), WORDS_BATCH, focal_loss
    else:
        model, batch_size = make_cnn(), CNN_BATCH
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, jit_compile=compiled)
    random = np.random.default_rng(1)
    examples = random.random((5 * batch_size, *model.input_shape[1:]), "float32")
    classes = random.integers(0, CLASSES, (5 * batch_size, 1))
    callback = tb_memplugin.MemoryCallback(run, trace_steps=[2, 3])
    model.fit(examples, classes, batch_size=batch_size, verbose=0, callbacks=[callback])
    callback.close()


def comparison(kind, title, parameters):
    return Comparison(
        f"{kind}_graph",
        f"{kind}_xla",
        title=title,
        claim=FALLS,
        expected=[
            Expected("weights", 4 * parameters, 4 * parameters, f"4 B × {parameters:,} parameters"),
            Expected(
                "optimizer_state", 8 * parameters, 8 * parameters, "twice the weights (Adam)", 0.001
            ),
        ],
    )


CLASSIFIER = (FEATURES + 1) * WORDS
CNN = sum((9 * before + 1) * after for before, after in zip((3, *CHANNELS), CHANNELS, strict=False))
CNN += (CHANNELS[-1] + 1) * CLASSES

SCENARIO = Scenario(
    number=15,
    title="XLA",
    file=__file__,
    description=__doc__,
    runs={
        f"{kind}_{mode}": Variant(functools.partial(train, kind=kind, compiled=mode == "xla"))
        for kind in ("loss", "cnn")
        for mode in ("graph", "xla")
    },
    advice=[
        Advice(
            words=["“jit_compile=True saves memory.”", "“XLA needs more memory.”"],
            verdict="true only if",
            because="XLA can merge operations whose results the step would otherwise keep.",
            comparisons=[
                comparison("loss", "A loss of many operations", CLASSIFIER),
                comparison("cnn", "Convolutions with max pooling", CNN),
            ],
        )
    ],
)

if __name__ == "__main__":
    main(SCENARIO)
