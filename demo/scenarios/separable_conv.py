"""Two CNNs with `Conv2D` and with `SeparableConv2D`: one with many channels on few pixels, one with
few channels on many pixels. A separable convolution has far fewer weights, but it is two
operations: the result of the first is kept for the backward pass as well.

usage: python demo/scenarios/separable_conv.py [--logdir runs/scenarios]
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

BATCH_SIZE, CLASSES, LAYERS = 8, 10, 3
SHAPES = {"many_channels": (8, 512), "many_pixels": (64, 32)}
"""Side of the images and channels of every layer."""


def make_model(side, channels, separable):
    convolution = keras.layers.SeparableConv2D if separable else keras.layers.Conv2D
    return keras.Sequential(
        [
            keras.Input((side, side, channels)),
            *(
                convolution(channels, 3, padding="same", activation="relu", name=f"conv{number}")
                for number in range(1, LAYERS + 1)
            ),
            keras.layers.GlobalAveragePooling2D(name="pool"),
            keras.layers.Dense(CLASSES, name="logits"),
        ]
    )


def train(run, side, channels, separable):
    model = make_model(side, channels, separable)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    random = np.random.default_rng(1)
    images = random.random((4 * BATCH_SIZE, side, side, channels), "float32")
    classes = random.integers(0, CLASSES, 4 * BATCH_SIZE)
    callback = tb_memplugin.MemoryCallback(run, trace_steps=[2, 3])
    model.fit(images, classes, batch_size=BATCH_SIZE, verbose=0, callbacks=[callback])
    callback.close()


def parameters(channels, separable):
    kernel = 9 * channels + channels * channels if separable else 9 * channels * channels
    return LAYERS * (kernel + channels) + (channels + 1) * CLASSES


def saved(side, channels, separable):
    """Bytes that the backward pass reads: the images, the layers' results and the means; of
    separable convolutions also the results of their first operation."""
    image = side * side * channels
    return 4 * BATCH_SIZE * (image * (1 + (2 if separable else 1) * LAYERS) + channels)


def comparison(shape):
    side, channels = SHAPES[shape]
    counts = [parameters(channels, separable) for separable in (False, True)]
    kept = [saved(side, channels, separable) for separable in (False, True)]
    return Comparison(
        f"{shape}_conv",
        f"{shape}_separable",
        title=f"{channels} channels, {side} × {side} pixels",
        claim=FALLS,
        expected=[
            Expected(
                "weights",
                *(4 * count for count in counts),
                "4 B × (9 c² + c) against (9 c + c² + c) per layer",
            ),
            Expected(
                "optimizer_state",
                *(8 * count for count in counts),
                "twice the weights (Adam)",
                0.001,
            ),
            Expected(
                "saved_for_backward",
                *kept,
                f"{1 + LAYERS} against {1 + 2 * LAYERS} tensors of one batch",
                0.001,
            ),
        ],
    )


SCENARIO = Scenario(
    number=9,
    title="SeparableConv2D",
    file=__file__,
    description=__doc__,
    runs={
        f"{shape}_{kind}": Variant(
            functools.partial(train, side=side, channels=channels, separable=kind == "separable")
        )
        for shape, (side, channels) in SHAPES.items()
        for kind in ("conv", "separable")
    },
    advice=[
        Advice(
            words=["“Replace Conv2D by SeparableConv2D to save memory.”"],
            verdict="true only if",
            because="weights dominate, as with many channels on few pixels. A separable "
            "convolution keeps one more tensor of the size of its input for the backward "
            "pass, so with large images the peak rises.",
            comparisons=[comparison(shape) for shape in SHAPES],
        )
    ],
)

if __name__ == "__main__":
    main(SCENARIO)
