"""A stack of blocks, each a wide layer, a narrow one and a sum, trained as it is and with gradient checkpointing:
`keras.RematScope` around the creation of the blocks, and `tf.recompute_grad` in them. Only the inputs of the blocks are
saved for the backward pass, which computes the results inside a block again.

usage: python demo/scenarios/gradient_checkpointing.py [--logdir runs/scenarios]
"""

import contextlib
import os

# Must be known before TensorFlow is imported: TensorFlow's default CPU allocator keeps no statistics.
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")

import keras
import tensorflow as tf
from scenario import STAYS, Advice, Comparison, Expected, Scenario, Variant, main

import tb_memplugin

BATCH, TOKENS, WIDTH, INNER, BLOCKS, CLASSES = 32, 128, 128, 512, 6, 8


class Block(keras.layers.Layer):
    """Its inner layers are created in `build`: inside a `RematScope`, Keras would recompute each of them as well."""

    def build(self, shape):
        self.wide = keras.layers.Dense(INNER, activation="relu", name="wide")
        self.narrow = keras.layers.Dense(WIDTH, name="narrow")
        self.wide.build(shape)
        self.narrow.build((*shape[:-1], INNER))

    def call(self, inputs):
        return inputs + self.narrow(self.wide(inputs))


class RecomputedBlock(Block):
    """The same with TensorFlow's own function."""

    def call(self, inputs):
        return tf.recompute_grad(super().call)(inputs)


def make_model(kind, scope):
    with scope:
        blocks = [kind(name=f"block{at}") for at in range(BLOCKS)]
    head = [keras.layers.GlobalAveragePooling1D(name="pool"), keras.layers.Dense(CLASSES, name="logits")]
    return keras.Sequential([keras.Input((TOKENS, WIDTH)), *blocks, *head])


def make_batches(steps):
    def make_batch(step):
        inputs = tf.random.stateless_uniform((BATCH, TOKENS, WIDTH), [1, step])
        return inputs, tf.random.stateless_uniform((BATCH,), [2, step], 0, CLASSES, tf.int64)

    return tf.data.Dataset.range(steps).map(make_batch)


def train(run, kind, scope):
    model = make_model(kind, scope)
    # In graph mode on every device; on a GPU, Keras compiles with XLA otherwise.
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    before = [variable.numpy() for variable in model.trainable_variables]
    callback = tb_memplugin.MemoryCallback(run, trace_steps=[2, 3])
    model.fit(make_batches(4), verbose=0, callbacks=[callback])
    callback.close()
    changed = [(variable.numpy() != old).any() for variable, old in zip(model.trainable_variables, before, strict=True)]
    assert all(changed), "some variables got no gradient"
    return {"trained_steps": int(model.optimizer.iterations)}


def train_in_scope(run, functional):
    """Layers that take more than inputs, or a whole functional model, inside a `RematScope`: Keras may fail."""
    with keras.RematScope(mode="full"):
        hidden = keras.layers.Dense(WIDTH, activation="relu")
        inputs = keras.Input((WIDTH,))
        model = keras.Model(inputs, hidden(inputs)) if functional else None
    if model is None:
        model = keras.Sequential([inputs, hidden])
    model.compile("adam", "mse", jit_compile=False)
    try:
        model.fit(tf.zeros((32, WIDTH)), tf.zeros((32, WIDTH)), batch_size=8, verbose=0)
    except ValueError as error:
        if "custom_gradient" not in str(error):
            raise
        print(error)
    return {"trained_steps": int(model.optimizer.iterations)}


PARAMETERS = BLOCKS * ((WIDTH + 1) * INNER + (INNER + 1) * WIDTH) + (WIDTH + 1) * CLASSES
ROWS = BATCH * TOKENS
# The inputs of each block, and for the head the means and the logits; without checkpointing the wide results as well.
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
        "recompute_grad": Variant(lambda run: train(run, RecomputedBlock, contextlib.nullcontext())),
        "scope_around_model": Variant(lambda run: train_in_scope(run, functional=True)),
        "scope_around_dense": Variant(lambda run: train_in_scope(run, functional=False)),
    },
    advice=[
        Advice(
            words=["“Use gradient checkpointing: it saves only some activations and computes the others again.”"],
            verdict="true",
            because="The inputs of the blocks stay until the backward pass, the results inside a block do not.",
            comparisons=[
                Comparison(
                    "plain",
                    run,
                    title=title,
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
                for run, title in (("remat_scope", "`keras.RematScope`"), ("recompute_grad", "`tf.recompute_grad`"))
            ],
        ),
        Advice(
            words=["“Put your model into a `RematScope`.”"],
            verdict="not true",
            because="In graph mode Keras fails with a `ValueError` at the first step: it passes keyword arguments such "
            "as `training` to the recomputed call, which TensorFlow's `custom_gradient` does not accept. Layers whose "
            "`call` takes inputs alone work, such as the blocks above.",
            comparisons=[
                Comparison(
                    "remat_scope",
                    run,
                    title=title,
                    figure="trained_steps",
                    claim=STAYS,
                    expected=[Expected("trained_steps", 4, 0, "Keras fails")],
                )
                for run, title in (("scope_around_model", "A functional model"), ("scope_around_dense", "`Dense`"))
            ],
        ),
    ],
)

if __name__ == "__main__":
    main(SCENARIO)
