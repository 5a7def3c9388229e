"""A CNN in graph mode and compiled by XLA. In graph mode, operations allocate their results one by one. A compiled step
is one module, whose temporary memory XLA plans in advance.

usage: python demo/scenarios/xla.py [--logdir runs/scenarios]
"""

import functools
import os

# Must be known before TensorFlow is imported: TensorFlow's default CPU allocator keeps no statistics.
os.environ.setdefault("TF_CPU_ALLOCATOR_USE_BFC", "1")

import keras  # noqa: E402
import numpy as np  # noqa: E402
from scenario import FALLS, Advice, Comparison, Expected, Scenario, Variant, main  # noqa: E402

import tb_memplugin  # noqa: E402

SIDE, CHANNELS, CLASSES, BATCH_SIZE = 64, (16, 32, 64), 10, 16


def make_model():
    layers = [keras.Input((SIDE, SIDE, 3))]
    for number, channels in enumerate(CHANNELS, 1):
        layers += [
            keras.layers.Conv2D(channels, 3, padding="same", use_bias=False, name=f"block{number}_conv"),
            keras.layers.BatchNormalization(name=f"block{number}_norm"),
            keras.layers.Activation("gelu", name=f"block{number}_gelu"),
            keras.layers.MaxPooling2D(2, name=f"block{number}_pool"),
        ]
    head = [keras.layers.GlobalAveragePooling2D(name="pool"), keras.layers.Dense(CLASSES, name="logits")]
    return keras.Sequential([*layers, *head])


def train(run, compiled):
    model = make_model()
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=compiled)
    random = np.random.default_rng(1)
    images = random.random((5 * BATCH_SIZE, SIDE, SIDE, 3), "float32")
    classes = random.integers(0, CLASSES, 5 * BATCH_SIZE)
    callback = tb_memplugin.MemoryCallback(run, trace_steps=[2, 3])
    model.fit(images, classes, batch_size=BATCH_SIZE, verbose=0, callbacks=[callback])
    callback.close()


SCENARIO = Scenario(
    number=15,
    title="XLA",
    file=__file__,
    description=__doc__,
    runs={name: Variant(functools.partial(train, compiled=name == "compiled")) for name in ("graph_mode", "compiled")},
    advice=[],
)

if __name__ == "__main__":
    main(SCENARIO)
