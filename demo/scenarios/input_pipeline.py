"""A small model behind several input pipelines of `tf.data`: without a buffer, with prefetched
batches, with a cache, with a shuffle buffer, and with a last batch that is smaller than the others.

usage: python demo/scenarios/input_pipeline.py [--logdir runs/scenarios]
"""

import os
import time

# Must be known before TensorFlow is imported: TensorFlow's default CPU allocator keeps no
# statistics.
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")

import keras
import tensorflow as tf
from scenario import RISES, Advice, Comparison, Expected, Scenario, Variant, main

import tb_memplugin

FEATURES, WIDTH, CLASSES = 4096, 512, 8
BATCH, BATCHES, PREFETCHED, SHUFFLED = 64, 16, 8, 512


def make_examples(count):
    def make_example(number):
        inputs = tf.random.stateless_uniform((FEATURES,), [1, number])
        return inputs, tf.random.stateless_uniform((), [2, number], 0, CLASSES, tf.int64)

    # TensorFlow prefetches a batch or two by itself; not here, to compare with.
    options = tf.data.Options()
    options.experimental_optimization.inject_prefetch = False
    return tf.data.Dataset.range(count).map(make_example).with_options(options)


def unbuffered(count=BATCH * BATCHES):
    return make_examples(count).batch(BATCH)


def prefetched():
    return unbuffered().prefetch(PREFETCHED)


def on_the_gpu():
    return unbuffered().apply(tf.data.experimental.prefetch_to_device("/GPU:0", PREFETCHED))


def cached():
    return make_examples(BATCH * BATCHES).cache().batch(BATCH)


def cached_batches():
    return unbuffered().cache()


def shuffled():
    return make_examples(BATCH * BATCHES).shuffle(SHUFFLED, seed=1).batch(BATCH)


def partial():
    return unbuffered(BATCH * BATCHES - BATCH // 2)


def train(run, make_dataset, epochs=1, step=4):
    model = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(WIDTH, activation="relu", name="hidden"),
            keras.layers.Dense(CLASSES, name="logits"),
        ]
    )
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    callback = tb_memplugin.MemoryCallback(run, trace_steps=[step])
    # As long as a step of a larger model, so that the pipeline can fill its buffer meanwhile.
    longer = keras.callbacks.LambdaCallback(
        on_train_batch_begin=lambda batch, logs: time.sleep(0.2)
    )
    model.fit(make_dataset(), epochs=epochs, verbose=0, callbacks=[callback, longer])
    callback.close()


EXAMPLE = 4 * FEATURES
PARAMETERS = (FEATURES + 1) * WIDTH + (WIDTH + 1) * CLASSES
BUFFERED = {
    # 8 to 11 batches: those prefetched, the step's, and one that is being made out of its examples.
    "prefetch": (
        BATCH * (PREFETCHED + 1) + BATCH // 2,
        "those prefetched, the step's, one in the making",
        0.17,
    ),
    "cache": (BATCH * (BATCHES + 1), "all examples and the step's batch", 0.01),
    "cache_of_batches": (BATCH * BATCHES, "all batches, among them the step's", 0.01),
    "shuffle": (SHUFFLED + BATCH, f"{SHUFFLED} examples and the step's batch", 0.01),
}
"""Examples in memory by run, in words, and how exactly that is known."""

SCENARIO = Scenario(
    number=8,
    title="Input pipelines",
    file=__file__,
    description=__doc__,
    runs={
        "unbuffered": Variant(lambda run: train(run, unbuffered)),
        "prefetch": Variant(lambda run: train(run, prefetched)),
        "prefetch_to_device": Variant(lambda run: train(run, on_the_gpu), gpus=1),
        "cache": Variant(lambda run: train(run, cached, epochs=2, step=BATCHES + 4)),
        "cache_of_batches": Variant(
            lambda run: train(run, cached_batches, epochs=2, step=BATCHES + 4)
        ),
        "shuffle": Variant(lambda run: train(run, shuffled)),
        "full_last_batch": Variant(lambda run: train(run, unbuffered, step=BATCHES - 1)),
        "partial_last_batch": Variant(lambda run: train(run, partial, step=BATCHES - 1)),
    },
    advice=[
        Advice(
            words=["“`prefetch`, `cache` and `shuffle` hold their buffers in memory.”"],
            verdict="true",
            because="On the CPU the buffers are in the memory that is measured here.",
            on_gpu="`tf.data` runs on the host and keeps its buffers there. The GPU holds the "
            "step's batch alone.",
            comparisons=[
                Comparison(
                    "unbuffered",
                    run,
                    title=f"`{run}`",
                    claim=RISES,
                    figure="inputs",
                    expected=[
                        Expected(
                            "inputs",
                            BATCH * EXAMPLE,
                            examples * EXAMPLE,
                            f"{EXAMPLE:,} B × ({words})",
                            within,
                            cpu_only=True,
                        )
                    ],
                )
                for run, (examples, words, within) in BUFFERED.items()
            ],
        ),
        Advice(
            words=["“`prefetch_to_device` takes the GPU's memory.”"],
            verdict="true",
            because="The prefetched batches are on the GPU, also between the steps. Those that "
            "were copied before the first traced step are unattributed.",
            # Not `inputs`, which are unattributed in part. Not the peak, where they can take the
            # place of rounding.
            comparisons=[
                Comparison("prefetch", "prefetch_to_device", claim=RISES, figure="step_end")
            ],
        ),
        Advice(
            words=["“Drop a partial last batch: it takes additional memory.”"],
            verdict="not true",
            because="In graph mode the same function runs with fewer examples.",
            comparisons=[
                Comparison(
                    "full_last_batch",
                    "partial_last_batch",
                    claim=RISES,
                    expected=[
                        Expected(
                            "inputs",
                            BATCH * EXAMPLE,
                            BATCH // 2 * EXAMPLE,
                            f"{EXAMPLE:,} B × examples",
                            0.01,
                        ),
                        Expected("weights", *[4 * PARAMETERS] * 2, "4 B × parameters"),
                    ],
                )
            ],
        ),
    ],
)

if __name__ == "__main__":
    main(SCENARIO)
