"""The same training with and without one evaluation of a large batch before it, and on a GPU also
with memory growth and with CUDA's allocator. What TensorFlow takes from the device, its pool, says
little about what the training needs: TensorFlow keeps the pool for later, and by default takes a
GPU's memory at once.

usage: python demo/scenarios/pool_against_use.py [--logdir runs/scenarios]
"""

import functools
import os
import time

# Must be known before TensorFlow is imported: TensorFlow's default CPU allocator keeps no
# statistics.
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")

import keras
import tensorflow as tf
from scenario import FALLS, STAYS, Advice, Comparison, Expected, Scenario, Variant, main
from scenario.batches import image_batches

import tb_memplugin

SIDE, CHANNELS, CLASSES, BATCH_SIZE, LARGE_BATCH = 32, 32, 10, 8, 512
STEPS = 8


def make_model():
    return keras.Sequential(
        [
            keras.Input((SIDE, SIDE, 3)),
            keras.layers.Conv2D(CHANNELS, 3, padding="same", activation="relu", name="conv1"),
            keras.layers.Conv2D(CHANNELS, 3, padding="same", activation="relu", name="conv2"),
            keras.layers.GlobalAveragePooling2D(name="pool"),
            keras.layers.Dense(CLASSES, name="logits"),
        ]
    )


def train(run, large_evaluation):
    model = make_model()
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    callback = tb_memplugin.MemoryCallback(run, trace_steps=[2, STEPS - 1])
    if large_evaluation:
        model.evaluate(image_batches(1, LARGE_BATCH, SIDE, CLASSES), verbose=0)
    callbacks = [callback]
    if tf.config.list_physical_devices("GPU"):  # the recorder asks the driver every few seconds
        callbacks.append(keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: time.sleep(6)))
    model.fit(
        image_batches(STEPS // 2, BATCH_SIZE, SIDE, CLASSES),
        epochs=2,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
    )
    callback.close()


def measure(run):
    """The last step's figures: the allocator's, the host's, and on a GPU the driver's."""
    device = run.samples.devices[
        min(run.samples.devices, key=lambda name: not name.startswith("GPU"))
    ]
    figures = {
        "peak": int(device.peak_bytes[-1]),
        "pool": int(device.pool_bytes[-1]),
        "host_RSS": int(run.samples.host_resident_bytes[-1]),
        "process_by_the_driver": int(device.driver_process_bytes[-1]),
        "all_processes_by_the_driver": int(device.driver_used_bytes[-1]),
    }
    return {name: size for name, size in figures.items() if size >= 0}


# The images, and the results of both convolutions.
EVALUATION = 4 * LARGE_BATCH * SIDE * SIDE * (3 + 2 * CHANNELS)

SCENARIO = Scenario(
    number=13,
    title="What TensorFlow takes and what it needs",
    file=__file__,
    description=__doc__,
    runs={
        "training_only": Variant(functools.partial(train, large_evaluation=False)),
        "after_a_large_evaluation": Variant(functools.partial(train, large_evaluation=True)),
    }
    | {
        name: Variant(
            functools.partial(train, large_evaluation=False), environment=environment, gpus=1
        )
        for name, environment in {
            "memory_growth": {"TF_FORCE_GPU_ALLOW_GROWTH": "true"},
            "cuda_malloc_async": {"TF_GPU_ALLOCATOR": "cuda_malloc_async"},
        }.items()
    },
    measure=measure,
    advice=[
        Advice(
            words=[
                "“My model needs 38 GiB: nvidia-smi says so.”",
                "“The process uses it, so the training needs it.”",
            ],
            verdict="not true",
            because="The pool is as large as it once had to be, or as TensorFlow was allowed to "
            "make it. Bytes in use and their peak tell what the training needs.",
            comparisons=[
                Comparison(
                    "training_only",
                    "after_a_large_evaluation",
                    claim=STAYS,
                    figure="pool",
                    expected=[
                        Expected(
                            "pool",
                            None,
                            EVALUATION,
                            "images and two results of the evaluation",
                            0.1,
                        ),
                    ],
                    show=["host_RSS"],
                    only="CPU",
                ),
                # A GPU's pool is as large as the card from the start, unless it may grow.
                Comparison(
                    "memory_growth",
                    "training_only",
                    claim=STAYS,
                    figure="pool",
                    show=["host_RSS"],
                    only="GPU",
                ),
            ],
        ),
        Advice(
            words=["“Turn on memory growth to save memory.”"],
            verdict="true only if",
            because="other processes need the memory. The pool is smaller, the peak of the "
            "training is the same.",
            comparisons=[
                Comparison(
                    "training_only", "memory_growth", title="Reserved", claim=FALLS, figure="pool"
                ),
                Comparison(
                    "training_only", "memory_growth", title="Needed", claim=FALLS, figure="peak"
                ),
            ],
        ),
        Advice(
            words=["“Set TF_GPU_ALLOCATOR=cuda_malloc_async to take less from the GPU.”"],
            verdict="true",
            because="CUDA's allocator takes memory as it is needed. It reports no allocations: "
            "there is no breakdown.",
            comparisons=[
                Comparison(
                    "training_only",
                    "cuda_malloc_async",
                    claim=FALLS,
                    figure="process_by_the_driver",
                ),
            ],
        ),
    ],
)

if __name__ == "__main__":
    main(SCENARIO)
