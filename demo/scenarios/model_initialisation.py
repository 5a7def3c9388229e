"""What a model takes before it sees any data: a small CNN in float32, a larger one in float16 and
in float32, and a Transformer made of subclassed layers, before and after its layers are built. Step
0 creates and compiles the model, step 1 is traced; nothing is trained.

usage: python demo/scenarios/model_initialisation.py [--logdir runs/scenarios]
"""

import os

# Must be known before TensorFlow is imported: TensorFlow's default CPU allocator keeps no
# statistics.
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")

import keras
import tensorflow as tf
from scenario import (
    HALVES,
    RISES,
    STAYS,
    Advice,
    Comparison,
    Expected,
    Scenario,
    Variant,
    main,
    of_step,
)

import tb_memplugin

SIDE, CLASSES = 32, 10
SMALL, LARGER, HIDDEN = (16, 32), (64, 128, 256, 512), 1024
WORDS, TOKENS, WIDTH, HEADS, INNER, BLOCKS = 4000, 128, 128, 4, 512, 2


def make_cnn(channels, hidden, dtype="float32"):
    layers = [
        keras.layers.Conv2D(count, 3, padding="same", activation="relu", dtype=dtype)
        for count in channels
    ]
    dense = [keras.layers.Dense(units, dtype=dtype) for units in (hidden, CLASSES)]
    return keras.Sequential(
        [keras.Input((SIDE, SIDE, 3)), *layers, keras.layers.GlobalAveragePooling2D(), *dense]
    )


class Embedding(keras.layers.Layer):
    """Words and positions, with weights of its own."""

    def build(self, shape):
        self.words = self.add_weight((WORDS, WIDTH), name="words")
        self.positions = self.add_weight((TOKENS, WIDTH), name="positions")

    def call(self, words):
        return keras.ops.take(self.words, words, axis=0) + self.positions


class Block(keras.layers.Layer):
    def __init__(self, **options):
        super().__init__(**options)
        self.attention = keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS)
        self.norms = [keras.layers.LayerNormalization(), keras.layers.LayerNormalization()]
        self.wide, self.narrow = (
            keras.layers.Dense(INNER, activation="relu"),
            keras.layers.Dense(WIDTH),
        )

    def call(self, inputs):
        hidden = self.norms[0](inputs + self.attention(inputs, inputs))
        return self.norms[1](hidden + self.narrow(self.wide(hidden)))


class Transformer(keras.Model):
    def __init__(self):
        super().__init__()
        self.embedding = Embedding()
        self.blocks = [Block(name=f"block{at}") for at in range(BLOCKS)]
        self.logits = keras.layers.Dense(CLASSES)

    def call(self, words):
        hidden = self.embedding(words)
        for block in self.blocks:
            hidden = block(hidden)
        return self.logits(hidden)


def make_built_transformer():
    model = Transformer()
    model(keras.Input((TOKENS,), dtype="int32"))  # shapes alone, no data
    return model


def record(run, make_model, build_optimizer=False):
    with tb_memplugin.MemoryRecorder(run, trace_steps=[0, 1]) as recorder:
        with recorder.step(0):
            model = make_model()
            if model is not None:
                model.compile("adam", "mse")
                if build_optimizer:
                    model.optimizer.build(model.trainable_variables)
                recorder.watch(model, model.optimizer)
        with recorder.step(1):
            tf.zeros(())  # a traced step without any allocation has no breakdown
    del model


def measure(run):
    """The figures of step 1, and the peak of step 0, while the model was created."""
    (device,) = run.samples.devices.values()
    return {**of_step(1)(run), "peak_during_creation": int(device.peak_bytes[0])}


def cnn(channels, hidden):
    sizes = list(zip((3, *channels), channels, strict=False))
    dense = (channels[-1] + 1) * hidden + (hidden + 1) * CLASSES
    return sum((9 * before + 1) * after for before, after in sizes) + dense


SMALL_PARAMETERS, LARGER_PARAMETERS = cnn(SMALL, CLASSES), cnn(LARGER, HIDDEN)
# Queries, keys, values and results; two norms with scale and offset; the wide layer and the narrow
# one.
BLOCK = 4 * (WIDTH + 1) * WIDTH + 2 * 2 * WIDTH + (WIDTH + 1) * INNER + (INNER + 1) * WIDTH
TRANSFORMER = (WORDS + TOKENS) * WIDTH + BLOCKS * BLOCK + (WIDTH + 1) * CLASSES


def weights(before, after):
    return [Expected("weights", before, after, "size of the dtype × parameters")]


def created(before, after, title, size):
    """The weights that a model's creation adds."""
    return Comparison(
        before,
        after,
        title=title,
        figure="weights",
        claim=RISES,
        expected=weights(0, size),
        show=["peak_during_creation"],
    )


SCENARIO = Scenario(
    number=2,
    title="Model initialisation",
    file=__file__,
    description=__doc__,
    measure=measure,
    runs={
        "no_model": Variant(lambda run: record(run, lambda: None)),
        "small_cnn": Variant(lambda run: record(run, lambda: make_cnn(SMALL, CLASSES))),
        "small_cnn_built_optimizer": Variant(
            lambda run: record(run, lambda: make_cnn(SMALL, CLASSES), True)
        ),
        "larger_cnn_float32": Variant(lambda run: record(run, lambda: make_cnn(LARGER, HIDDEN))),
        "larger_cnn_float16": Variant(
            lambda run: record(run, lambda: make_cnn(LARGER, HIDDEN, "float16"))
        ),
        "transformer": Variant(lambda run: record(run, Transformer)),
        "transformer_built": Variant(lambda run: record(run, make_built_transformer)),
    },
    advice=[
        Advice(
            words=["“Creating a model already takes the memory of its weights, before any data.”"],
            verdict="true only if",
            because="its layers are built. A functional or sequential model with an `Input` is; a "
            "subclassed model has no weights until it is called for the first time.",
            comparisons=[
                created("no_model", "small_cnn", "A small CNN, float32", 4 * SMALL_PARAMETERS),
                created(
                    "no_model", "larger_cnn_float16", "A larger CNN, float16", 2 * LARGER_PARAMETERS
                ),
                created("no_model", "transformer", "A Transformer of subclassed layers", 0),
                created(
                    "transformer",
                    "transformer_built",
                    "The same after its first call, with a symbolic input",
                    4 * TRANSFORMER,
                ),
            ],
        ),
        Advice(
            words=["“`compile` allocates the optimizer's state.”"],
            verdict="not true",
            because="An optimizer creates its slots when it is built, at the latest in the first "
            "training step.",
            comparisons=[
                Comparison(
                    "small_cnn",
                    "small_cnn_built_optimizer",
                    figure="optimizer_state",
                    claim=STAYS,
                    expected=[
                        Expected(
                            "optimizer_state",
                            0,
                            8 * SMALL_PARAMETERS,
                            "twice the weights (Adam)",
                            0.001,
                        ),
                        Expected("weights", *[4 * SMALL_PARAMETERS] * 2, "4 B × parameters"),
                    ],
                )
            ],
        ),
        Advice(
            words=["“float16 halves the weights.”"],
            verdict="true",
            because="This is a model whose variables are float16, unlike those of mixed precision.",
            comparisons=[
                Comparison(
                    "larger_cnn_float32",
                    "larger_cnn_float16",
                    figure="weights",
                    claim=HALVES,
                    expected=weights(4 * LARGER_PARAMETERS, 2 * LARGER_PARAMETERS),
                    show=["peak_during_creation"],
                )
            ],
        ),
    ],
)

if __name__ == "__main__":
    main(SCENARIO)
