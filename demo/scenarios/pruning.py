"""A dense model, and the same model magnitude-pruned to 80 % zeros: each kernel has a mask, and
masked weights are set to zero after every step. The zeros are stored like all other floats, and the
masks come on top.

usage: python demo/scenarios/pruning.py [--logdir runs/scenarios]
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

INPUTS, WIDTH, CLASSES, BATCH_SIZE, SPARSITY = 256, 1024, 10, 64, 0.8


class PrunedDense(keras.layers.Dense):
    """A dense layer with a mask that keeps the largest weights of its kernel."""

    def build(self, input_shape):
        super().build(input_shape)
        self.mask = self.add_weight(
            shape=self.kernel.shape, initializer="ones", trainable=False, name="mask"
        )

    def prune(self, sparsity):
        sizes = keras.ops.abs(self.kernel)
        self.mask.assign(
            keras.ops.cast(sizes > keras.ops.quantile(sizes, sparsity), self.mask.dtype)
        )
        self.apply_mask()

    def apply_mask(self):
        self.kernel.assign(self.kernel * self.mask)


class Prune(keras.callbacks.Callback):
    """Prunes all layers at the first step, and keeps the pruned weights at zero."""

    def on_train_batch_end(self, batch, logs=None):
        for layer in self.model.layers:
            if batch == 0:
                layer.prune(SPARSITY)
            else:
                layer.apply_mask()


def train(run, pruned):
    dense = PrunedDense if pruned else keras.layers.Dense
    model = keras.Sequential(
        [
            keras.Input((INPUTS,)),
            dense(WIDTH, activation="relu", name="wide1"),
            dense(WIDTH, activation="relu", name="wide2"),
            dense(CLASSES, name="logits"),
        ]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    random = np.random.default_rng(1)
    features = random.random((6 * BATCH_SIZE, INPUTS), "float32")
    classes = random.integers(0, CLASSES, 6 * BATCH_SIZE)
    callback = tb_memplugin.MemoryCallback(run, trace_steps=[3, 4])
    callbacks = [callback, Prune()] if pruned else [callback]
    model.fit(features, classes, batch_size=BATCH_SIZE, verbose=0, callbacks=callbacks)
    callback.close()
    kernels = [layer.kernel.numpy() for layer in model.layers]
    return {"zeros": sum(int((kernel == 0).sum()) for kernel in kernels)}


KERNELS = INPUTS * WIDTH + WIDTH * WIDTH + WIDTH * CLASSES
PARAMETERS = KERNELS + 2 * WIDTH + CLASSES

SCENARIO = Scenario(
    number=10,
    title="Magnitude pruning",
    file=__file__,
    description=__doc__,
    runs={
        name: Variant(functools.partial(train, pruned=name == "pruned"))
        for name in ("dense", "pruned")
    },
    advice=[
        Advice(
            words=["“Prune 80 % of the weights, and the model needs a fifth of the memory.”"],
            verdict="not true",
            because="TensorFlow stores zeros like any other number, in weights, gradients and "
            "optimizer state. The masks are as large as the kernels. Pruning pays off in "
            "compressed files, or if whole units are removed.",
            comparisons=[
                Comparison(
                    "dense",
                    "pruned",
                    claim=FALLS,
                    expected=[
                        Expected(
                            "weights",
                            4 * PARAMETERS,
                            4 * (PARAMETERS + KERNELS),
                            "masks count as weights",
                        ),
                        Expected("frozen_weights", 0, 4 * KERNELS, f"masks of {KERNELS:,} floats"),
                        Expected(
                            "optimizer_state",
                            8 * PARAMETERS,
                            8 * PARAMETERS,
                            "twice the weights (Adam)",
                            0.001,
                        ),
                    ],
                )
            ],
        )
    ],
)

if __name__ == "__main__":
    main(SCENARIO)
