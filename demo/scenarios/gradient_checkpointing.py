"""A stack of blocks, each a wide layer, a narrow one and a sum, trained as it is and with gradient
checkpointing: `keras.RematScope` around the creation of the blocks, `tf.recompute_grad` in them, or
`tb_memplugin.remat`. Only the inputs of the blocks are saved for the backward pass, which computes
the results inside a block again. Blocks with a batch normalization show how often its statistics
are updated.

usage: python demo/scenarios/gradient_checkpointing.py [--logdir runs/scenarios]
"""

import contextlib
import math
import os

# Must be known before TensorFlow is imported: TensorFlow's default CPU allocator keeps no
# statistics.
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")

import keras
import tensorflow as tf
from scenario import STAYS, Advice, Comparison, Expected, Scenario, Variant, main

import tb_memplugin

BATCH, TOKENS, WIDTH, INNER, BLOCKS, CLASSES = 32, 128, 128, 512, 6, 8


class Block(keras.layers.Layer):
    """Its inner layers are created in `build`: inside a `RematScope`, Keras would recompute each of
    them as well."""

    def build(self, shape):
        self.wide = keras.layers.Dense(INNER, activation="relu", name="wide")
        self.narrow = keras.layers.Dense(WIDTH, name="narrow")
        self.wide.build(shape)
        self.narrow.build((*shape[:-1], INNER))

    def call(self, inputs):
        return inputs + self.narrow(self.wide(inputs))


class NormalizedBlock(Block):
    """With a batch normalization, which sees batches of a constant mean."""

    def build(self, shape):
        super().build(shape)
        self.norm = keras.layers.BatchNormalization(name="norm")
        self.norm.build(shape)

    def call(self, inputs):
        return super().call(self.norm(inputs, training=True))


class Recomputed:
    """A block with TensorFlow's own function."""

    def call(self, inputs):
        return tf.recompute_grad(super().call)(inputs)


class RecomputedBlock(Recomputed, Block):
    pass


class RecomputedNormalizedBlock(Recomputed, NormalizedBlock):
    pass


def make_model(kind, scope):
    with scope:
        blocks = [kind(name=f"block{at}") for at in range(BLOCKS)]
    head = [
        keras.layers.GlobalAveragePooling1D(name="pool"),
        keras.layers.Dense(CLASSES, name="logits"),
    ]
    return keras.Sequential([keras.Input((TOKENS, WIDTH)), *blocks, *head])


def make_batches(steps):
    def make_batch(step):
        inputs = tf.random.stateless_uniform((BATCH, TOKENS, WIDTH), [1, step])
        return inputs, tf.random.stateless_uniform((BATCH,), [2, step], 0, CLASSES, tf.int64)

    return tf.data.Dataset.range(steps).map(make_batch)


def train(run, kind, scope, remat=False):
    plain = model = make_model(kind, scope)
    if remat:
        model = tb_memplugin.remat(plain, [f"block{at}" for at in range(BLOCKS)])
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    before = [variable.numpy() for variable in model.trainable_variables]
    callback = tb_memplugin.MemoryCallback(run, trace_steps=[2, 3])
    model.fit(make_batches(4), verbose=0, callbacks=[callback])
    callback.close()
    changed = [
        (variable.numpy() != old).any()
        for variable, old in zip(model.trainable_variables, before, strict=True)
    ]
    assert all(changed), "some variables got no gradient"
    return {"trained_steps": int(model.optimizer.iterations)}


def train_on_ones(run, kind, remat=False):
    """How often a step updates the statistics of a block: each update moves a mean of 0 toward the
    batches' 1."""
    plain = model = make_model(kind, contextlib.nullcontext())
    if remat:
        model = tb_memplugin.remat(plain, [f"block{at}" for at in range(BLOCKS)])
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    inputs, steps = tf.ones((4 * BATCH, TOKENS, WIDTH)), 4
    callback = tb_memplugin.MemoryCallback(run, trace_steps=[2, 3])
    model.fit(
        inputs, tf.zeros(4 * BATCH, tf.int64), batch_size=BATCH, verbose=0, callbacks=[callback]
    )
    callback.close()
    norm = plain.get_layer("block0").norm
    updates = math.log(1 - float(norm.moving_mean[0])) / math.log(norm.momentum)
    return {"update_count": round(updates) // steps}


def train_in_scope(run, functional):
    """Layers that take more than inputs, or a whole functional model, inside a `RematScope`: Keras
    may fail."""
    with keras.RematScope(mode="full"):
        hidden = keras.layers.Dense(WIDTH, activation="relu")
        inputs = keras.Input((WIDTH,))
        model = keras.Model(inputs, hidden(inputs)) if functional else None
    if model is None:
        model = keras.Sequential([inputs, hidden])
    model.compile("adam", "mse")
    try:
        model.fit(tf.zeros((32, WIDTH)), tf.zeros((32, WIDTH)), batch_size=8, verbose=0)
    except ValueError as error:
        if "custom_gradient" not in str(error):
            raise
        print(error)
    return {"trained_steps": int(model.optimizer.iterations)}


PARAMETERS = BLOCKS * ((WIDTH + 1) * INNER + (INNER + 1) * WIDTH) + (WIDTH + 1) * CLASSES
ROWS = BATCH * TOKENS
# The inputs of each block, and for the head the means and the logits; without checkpointing the
# wide results as well.
BLOCK_INPUTS = 4 * ROWS * WIDTH * BLOCKS
WIDE_RESULTS = 4 * ROWS * INNER * BLOCKS
HEAD = 4 * BATCH * (WIDTH + CLASSES)

SCENARIO = Scenario(
    number=6,
    title="Gradient checkpointing",
    file=__file__,
    description=__doc__,
    runs={
        "plain": Variant(lambda run: train(run, Block, contextlib.nullcontext())),
        "remat_scope": Variant(lambda run: train(run, Block, keras.RematScope(mode="full"))),
        "recompute_grad": Variant(
            lambda run: train(run, RecomputedBlock, contextlib.nullcontext())
        ),
        "remat": Variant(lambda run: train(run, Block, contextlib.nullcontext(), remat=True)),
        "normalized": Variant(lambda run: train_on_ones(run, NormalizedBlock)),
        "normalized_recompute_grad": Variant(
            lambda run: train_on_ones(run, RecomputedNormalizedBlock)
        ),
        "normalized_remat": Variant(lambda run: train_on_ones(run, NormalizedBlock, remat=True)),
        "scope_around_model": Variant(lambda run: train_in_scope(run, functional=True)),
        "scope_around_dense": Variant(lambda run: train_in_scope(run, functional=False)),
    },
    advice=[
        Advice(
            words=[
                "“Use gradient checkpointing: it saves only some activations and computes the "
                "others again.”"
            ],
            verdict="true",
            because="The inputs of the blocks stay until the backward pass, the results inside a "
            "block do not.",
            comparisons=[
                Comparison(
                    "plain",
                    run,
                    title=title,
                    only=only,
                    expected=[
                        Expected("weights", 4 * PARAMETERS, 4 * PARAMETERS, "4 B × parameters"),
                        Expected(
                            "saved_for_backward",
                            BLOCK_INPUTS + WIDE_RESULTS + HEAD,
                            BLOCK_INPUTS + HEAD,
                            "inputs and wide results → inputs of the blocks",
                        ),
                    ],
                )
                for run, title, only in (
                    ("remat_scope", "`keras.RematScope`", ""),
                    ("recompute_grad", "`tf.recompute_grad`", ""),
                    ("remat", "`tb_memplugin.remat`", "CPU"),
                )
            ],
        ),
        Advice(
            words=["“Gradient checkpointing trains the same.”"],
            verdict="true only if",
            because="the second run of a layer changes nothing. `tf.recompute_grad` and "
            "`RematScope` update the statistics of a batch normalization in both runs, and "
            "draw another mask for a dropout. `tb_memplugin.remat` does not.",
            comparisons=[
                Comparison(
                    "normalized",
                    run,
                    title=title,
                    figure="update_count",
                    claim=STAYS,
                    only="CPU",
                    expected=[Expected("update_count", 1, updates, "updates in each step")],
                )
                for run, title, updates in (
                    ("normalized_recompute_grad", "`tf.recompute_grad`", 2),
                    ("normalized_remat", "`tb_memplugin.remat`", 1),
                )
            ],
        ),
        Advice(
            words=["“Put your model into a `RematScope`.”"],
            verdict="not true",
            because="In graph mode Keras fails with a `ValueError` at the first step: it passes "
            "keyword arguments such as `training` to the recomputed call, which TensorFlow's "
            "`custom_gradient` does not accept. Layers whose `call` takes inputs alone work, "
            "such as the blocks above.",
            comparisons=[
                Comparison(
                    "remat_scope",
                    run,
                    title=title,
                    figure="trained_steps",
                    claim=STAYS,
                    expected=[Expected("trained_steps", 4, 0, "Keras fails")],
                )
                for run, title in (
                    ("scope_around_model", "A functional model"),
                    ("scope_around_dense", "`Dense`"),
                )
            ],
        ),
    ],
)

if __name__ == "__main__":
    main(SCENARIO)
