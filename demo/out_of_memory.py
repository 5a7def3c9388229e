"""Runs out of memory for real, for the view Out of memory: a small Transformer, then a batch 24
times as large.

Without a GPU it runs on the CPU's BFC allocator at the capacity stated below. TensorFlow waits ten
seconds for memory before it gives up.

usage: python demo/out_of_memory.py [--logdir runs]
"""

import argparse
import os
import pathlib
import shutil

CAPACITY_MIB = 512
# Both must be known before TensorFlow is imported.
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")
os.environ.setdefault("TF_CPU_BFC_MEM_LIMIT_IN_MB", str(CAPACITY_MIB))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import tb_memplugin  # noqa: E402

TOKENS, WIDTH, HEADS, BLOCKS, WORDS = 256, 128, 4, 2, 1000
BATCH_SIZE = 4


def make_batches(steps: int, batch_size: int) -> tf.data.Dataset:
    """`steps` batches of random words, shape [TOKENS], of two classes."""
    random = np.random.default_rng(1)
    words = random.integers(0, WORDS, (steps, batch_size, TOKENS)).astype("int32")
    classes = random.integers(0, 2, (steps, batch_size))
    return tf.data.Dataset.from_generator(
        lambda: zip(words, classes, strict=True),
        output_signature=(
            tf.TensorSpec(words.shape[1:], tf.int32),
            tf.TensorSpec(classes.shape[1:], tf.int64),
        ),
    ).apply(tf.data.experimental.assert_cardinality(steps))


def make_model() -> keras.Model:
    """An encoder of attention blocks that tells two classes apart."""
    inputs = keras.Input((TOKENS,), dtype="int32")
    hidden = keras.layers.Embedding(WORDS, WIDTH, name="words")(inputs)
    for block in range(1, BLOCKS + 1):
        attention = keras.layers.MultiHeadAttention(
            HEADS, WIDTH // HEADS, name=f"block{block}_attention"
        )
        hidden = keras.layers.Add(name=f"block{block}_add_1")([hidden, attention(hidden, hidden)])
        wide = keras.layers.Dense(4 * WIDTH, activation="relu", name=f"block{block}_wide")(hidden)
        narrow = keras.layers.Dense(WIDTH, name=f"block{block}_narrow")(wide)
        hidden = keras.layers.Add(name=f"block{block}_add_2")([hidden, narrow])
    outputs = keras.layers.Dense(2, name="logits")(
        keras.layers.GlobalAveragePooling1D(name="pool")(hidden)
    )
    model = keras.Model(inputs, outputs, name="encoder")
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--logdir", type=pathlib.Path, default=pathlib.Path("runs"))
    run = parser.parse_args().logdir / "out_of_memory"
    shutil.rmtree(run, ignore_errors=True)
    keras.utils.set_random_seed(1)
    model = make_model()
    callback = tb_memplugin.MemoryCallback(run)
    fit = {"callbacks": [callback], "shuffle": False, "verbose": 0}
    model.fit(make_batches(12, BATCH_SIZE), **fit)
    try:
        model.fit(make_batches(1, 24 * BATCH_SIZE), **fit)
    except tf.errors.ResourceExhaustedError:
        print(f"{run.name}: ran out of memory, as it should", flush=True)
    callback.close()


if __name__ == "__main__":
    main()
