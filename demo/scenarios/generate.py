"""A decoder that generates tokens with a cache of keys and values: a cache that grows by
concatenation, one of full size that a Python loop passes to each call, and one of full size inside
a loop that TensorFlow runs. Only the last is updated in place; the others exist twice during a
call, as its argument and as its result.

usage: python demo/scenarios/generate.py [--logdir runs/scenarios]
"""

import functools
import os

# Must be known before TensorFlow is imported: TensorFlow's default CPU allocator keeps no
# statistics.
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")

import keras
import tensorflow as tf
from scenario import Advice, Claim, Comparison, Expected, Scenario, Variant, main

import tb_memplugin

BATCH_SIZE, TOKENS, WIDTH, BLOCKS, WORDS = 16, 128, 128, 8, 1000


class Block(keras.layers.Layer):
    """Attention of the newest token to all tokens so far, and a dense layer."""

    def build(self, _):
        self.project = keras.layers.Dense(3 * WIDTH, name="project")
        self.dense = keras.layers.Dense(WIDTH, activation="relu", name="dense")
        self.project.build((None, WIDTH))
        self.dense.build((None, WIDTH))

    def call(self, hidden, cache, position):
        query, *new = tf.split(self.project(hidden), 3, axis=-1)
        if cache[0].shape[1] == TOKENS:  # of full size
            cache = [
                keras.ops.slice_update(old, [0, position, 0], one[:, None])
                for old, one in zip(cache, new, strict=True)
            ]
            unseen = tf.where(tf.range(TOKENS) > position, -1e9, 0.0)
        else:
            cache = [tf.concat([old, one[:, None]], 1) for old, one in zip(cache, new, strict=True)]
            unseen = 0.0
        scores = tf.reduce_sum(query[:, None] * cache[0], -1) + unseen
        return hidden + self.dense(
            tf.reduce_sum(tf.nn.softmax(scores)[..., None] * cache[1], 1)
        ), cache


class Decoder(keras.Model):
    def build(self, _):
        self.embedding = keras.layers.Embedding(WORDS, WIDTH, name="embedding")
        self.embedding.build((None,))
        self.blocks = [Block(name=f"block{number}") for number in range(BLOCKS)]
        self.logits = keras.layers.Dense(WORDS, name="logits")
        self.logits.build((None, WIDTH))

    def call(self, words, caches, position):
        hidden, new = self.embedding(words), []
        for block, cache in zip(self.blocks, caches, strict=True):
            hidden, cache = block(hidden, cache, position)
            new.append(cache)
        return tf.argmax(self.logits(hidden), axis=-1, output_type=tf.int32), new


def generate(run, full_size, in_tensorflow):
    decoder = Decoder(name="decoder")
    decoder.build(None)
    cache = tf.TensorSpec((BATCH_SIZE, TOKENS if full_size else None, WIDTH))
    signature = [
        tf.TensorSpec((BATCH_SIZE,), tf.int32),
        [[cache, cache]] * BLOCKS,
        tf.TensorSpec((), tf.int32),
    ]
    one_token = tf.function(lambda *state: decoder(*state), input_signature=signature)

    @tf.function
    def all_tokens(words):
        caches = [[tf.zeros((BATCH_SIZE, TOKENS, WIDTH)) for _ in range(2)] for _ in range(BLOCKS)]
        for position in tf.range(TOKENS):
            words, caches = decoder(words, caches, position)
        return words

    words = tf.zeros((BATCH_SIZE,), tf.int32)
    with tb_memplugin.MemoryRecorder(run, model=decoder, overhead=1.0) as recorder:
        if in_tensorflow:
            for step in range(3):
                with recorder.step(step, "predict"):
                    words = all_tokens(words)
            return
        empty = tf.zeros((BATCH_SIZE, TOKENS if full_size else 0, WIDTH))
        caches = [[empty, empty]] * BLOCKS
        del empty
        for position in range(TOKENS):
            with recorder.step(position, "predict"):
                words, caches = one_token(words, caches, tf.constant(position))


def measure(run):
    """The last step's figures, from the allocator's statistics."""
    device = run.samples.devices[
        min(run.samples.devices, key=lambda name: not name.startswith("GPU"))
    ]
    return {
        "peak": int(device.peak_bytes[-1]),
        "in_use_between_calls": int(device.in_use_bytes[-1]),
    }


CACHE = 4 * 2 * BLOCKS * BATCH_SIZE * TOKENS * WIDTH
PARAMETERS = WORDS * WIDTH + BLOCKS * (WIDTH + 1) * 4 * WIDTH + (WIDTH + 1) * WORDS
BETWEEN = 4 * PARAMETERS + CACHE


IS_THERE_ONCE = Claim("falls below three quarters", 0, 0.75)


def compared_with(name, title, between, formula):
    expected = [Expected("in_use_between_calls", BETWEEN, between, formula, 0.3)]
    return Comparison("growing_cache", name, title=title, claim=IS_THERE_ONCE, expected=expected)


SCENARIO = Scenario(
    number=19,
    title="Generation with a cache",
    file=__file__,
    description=__doc__,
    runs={
        name: Variant(functools.partial(generate, full_size=full_size, in_tensorflow=in_tensorflow))
        for name, full_size, in_tensorflow in (
            ("growing_cache", False, False),
            ("full_size_cache", True, False),
            ("loop_in_tensorflow", True, True),
        )
    },
    measure=measure,
    advice=[
        Advice(
            words=["“Allocate the cache of keys and values once, at full size, to save memory.”"],
            verdict="true only if",
            because="the cache is updated in place, as in a loop that TensorFlow runs. A call that "
            "takes the cache and returns it holds the old one and the new one, whether it "
            "grows or not.",
            comparisons=[
                compared_with(
                    "full_size_cache", "Passed to each call", BETWEEN, "weights and the cache"
                ),
                compared_with(
                    "loop_in_tensorflow",
                    "Inside one loop",
                    None,
                    "weights and the cache, before the loop",
                ),
            ],
        )
    ],
)

if __name__ == "__main__":
    main(SCENARIO)
