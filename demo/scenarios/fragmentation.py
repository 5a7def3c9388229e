"""A training that keeps the features of every batch and then drops half of them: the newer half, or
every second one. Both leave the same bytes in use. Then a large tensor is requested that is smaller
than the free memory.

usage: python demo/scenarios/fragmentation.py [--logdir runs/scenarios]
"""

import functools
import os

# Must be known before TensorFlow is imported: TensorFlow's default CPU allocator keeps no
# statistics.
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")
CAPACITY_MIB = 128
os.environ.setdefault("TF_CPU_BFC_MEM_LIMIT_IN_MB", str(CAPACITY_MIB))

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from scenario import STAYS, Advice, Comparison, Expected, Scenario, Variant, main  # noqa: E402

import tb_memplugin  # noqa: E402

BATCH_SIZE, INPUTS, WIDTH, CLASSES = 32, 64, 8192, 10
STEPS = 80
MIB = 1 << 20
FEATURES = 4 * BATCH_SIZE * WIDTH
"""Bytes of the features of a batch: 1 MiB."""
REQUEST = 48 * MIB
"""The large tensor, such as an evaluation's table of distances."""


def train(run, every_second):
    if gpus := tf.config.list_physical_devices("GPU"):
        limit = tf.config.LogicalDeviceConfiguration(memory_limit=CAPACITY_MIB)
        tf.config.set_logical_device_configuration(gpus[0], [limit])
    hidden = keras.layers.Dense(WIDTH, activation="relu", name="features")
    model = keras.Sequential(
        [keras.Input((INPUTS,)), hidden, keras.layers.Dense(CLASSES, name="logits")]
    )
    optimizer = keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)
    loss_function = keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def train_step(inputs, classes):
        with tf.GradientTape() as tape:
            features = hidden(inputs)
            loss = loss_function(classes, model.layers[-1](features))
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return features

    random = np.random.default_rng(1)
    kept = {}
    with tb_memplugin.MemoryRecorder(
        run, model=model, optimizer=optimizer, trace_steps=[2, STEPS]
    ) as recorder:
        for step in range(STEPS):
            inputs = tf.constant(random.random((BATCH_SIZE, INPUTS), "float32"))
            classes = tf.constant(random.integers(0, CLASSES, BATCH_SIZE))
            with recorder.step(step):
                kept[step] = train_step(inputs, classes)
        for step in range(1, STEPS, 2) if every_second else range(STEPS // 2, STEPS):
            del kept[step]
        try:
            with recorder.step(STEPS):
                tf.zeros([REQUEST // 4])
        except tf.errors.ResourceExhaustedError:
            print("the large tensor did not fit", flush=True)


def measure(run):
    """What was in use and free when the large tensor was requested, and the largest piece of the
    free memory."""
    if run.ooms:
        (oom,) = run.ooms
        in_use, pool, largest = oom.in_use_bytes, oom.pool_bytes, oom.largest_free_bytes
    else:
        device = run.samples.devices[min(run.samples.devices)]
        in_use, pool, largest = (
            int(column[-1])
            for column in (device.in_use_bytes, device.pool_bytes, device.largest_free_bytes)
        )
    return {
        "in_use": in_use,
        "free_in_the_pool": pool - in_use,
        "largest_free_chunk": largest,
        "failed_by_fragmentation": sum(
            one.requested_bytes for one in run.ooms if one.verdict == "fragmentation"
        ),
    }


IN_USE = 4 * ((INPUTS + 1) * WIDTH + (WIDTH + 1) * CLASSES) + STEPS // 2 * FEATURES

SCENARIO = Scenario(
    number=11,
    title="Fragmentation",
    file=__file__,
    description=__doc__,
    runs={
        name: Variant(
            functools.partial(train, every_second=name == "every_second_dropped"),
            environment={"TF_CPU_BFC_MEM_LIMIT_IN_MB": str(CAPACITY_MIB)},
        )
        for name in ("newer_half_dropped", "every_second_dropped")
    },
    measure=measure,
    advice=[
        Advice(
            words=[
                "“More memory is free than the tensor needs, so it must fit.”",
                "“Memory is memory: it does not matter which tensors I drop.”",
            ],
            verdict="not true",
            because="A tensor needs one free chunk. Tensors that stay between the dropped ones "
            "keep the free chunks apart, and the allocator cannot move them. The "
            "post-mortem's verdict is *fragmentation*.",
            comparisons=[
                Comparison(
                    "newer_half_dropped",
                    "every_second_dropped",
                    claim=STAYS,
                    figure="largest_free_chunk",
                    expected=[
                        Expected(
                            "in_use",
                            IN_USE,
                            IN_USE,
                            f"weights and {STEPS // 2} × {FEATURES:,} B",
                            0.03,
                        ),
                        Expected("failed_by_fragmentation", 0, REQUEST, "the large tensor"),
                    ],
                    show=["free_in_the_pool"],
                )
            ],
        )
    ],
)

if __name__ == "__main__":
    main(SCENARIO)
