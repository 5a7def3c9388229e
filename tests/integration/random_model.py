"""Models that are drawn at random: the same seed gives the same model, optimizer and data."""

import functools
import random
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

L = keras.layers
CLASSES = 10
MAX_WIDTH = 192


def drawn_precision(seed: int) -> str:
    """The dtype policy to set before the model of this seed is made."""
    return random.Random(f"precision {seed}").choice(
        ["float32", "float32", "mixed_float16", "mixed_bfloat16"]
    )


class RandomModel:
    """A functional model of images or of sequences, with branches and shared layers.

    Args:
        seed: Decides everything below.

    Attributes:
        model: Not compiled; about a third of its layers with weights is frozen.
        optimizer: Adam, AdamW, RMSprop, or SGD with momentum.
        batch: Examples of a step.
        feed: How `fit_arguments` feeds it: ``arrays``, ``slices`` or ``generator``.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._shared: dict[tuple[Any, ...], Any] = {}
        images = self._random.random() < 0.5
        self.batch = self._random.choice([4, 6, 8, 16])
        inputs = self._images() if images else self._sequences()
        tensor = (
            inputs
            if images
            else L.Embedding(self._random.choice([50, 500, 3000]), self._width())(inputs)
        )
        for _ in range(self._random.randint(3, 9)):
            tensor = self._block(tensor, images)
        tensor = L.GlobalAveragePooling2D()(tensor) if images else self._reduce(tensor)
        for _ in range(self._random.randint(0, 2)):
            tensor = L.Dense(self._width(), self._random.choice(["relu", "gelu", "tanh"]))(tensor)
        self.model = keras.Model(inputs, L.Dense(CLASSES)(tensor), name="drawn")
        of, momentum = keras.optimizers, functools.partial(keras.optimizers.SGD, 0.01, momentum=0.9)
        self.optimizer = self._random.choice([of.Adam, of.AdamW, of.RMSprop, momentum])()
        self._freeze()
        self.feed = random.Random(f"feed {seed}").choice(["arrays", "slices", "generator"])

    def fit_arguments(self, examples: int, batch: int) -> dict[str, Any]:
        """Arguments of ``model.fit`` for an epoch of so many examples."""
        x, y = self.data(examples)
        if self.feed == "arrays":
            return {"x": x, "y": y, "batch_size": batch}
        slices = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x)).batch(batch)
        if self.feed == "slices":
            return {"x": slices.prefetch(tf.data.AUTOTUNE)}
        batches = (
            (x[start : start + batch], y[start : start + batch])
            for start in range(0, len(x), batch)
        )
        return {"x": batches, "steps_per_epoch": len(x) // batch}

    def data(self, count: int) -> tuple[Any, Any]:
        """Examples and their labels."""
        generator = np.random.default_rng(self._random.randrange(1 << 32))
        shape = self.model.input_shape[1:]
        if len(shape) == 3:
            x: Any = generator.random((count, *shape), dtype=np.float32)
        else:
            x = generator.integers(0, 50, (count, *shape), dtype=np.int32)
        return x, generator.integers(0, CLASSES, count)

    def _freeze(self) -> None:
        layers = [layer for layer in self.model.layers if layer.weights]
        for layer in layers[:-1]:  # something is trained
            layer.trainable = self._random.random() >= 0.35

    def _images(self) -> Any:
        return keras.Input(
            (self._random.choice([24, 31, 48, 64]), self._random.choice([32, 48]), 3)
        )

    def _sequences(self) -> Any:
        return keras.Input((self._random.choice([12, 33, 64]),), dtype="int32")

    def _width(self) -> int:
        return self._random.choice([8, 17, 24, 32, 48, 64, 96])

    def _reduce(self, tensor: Any) -> Any:
        if self._random.random() < 0.5:
            return L.LSTM(self._width())(tensor)
        return self._random.choice([L.GlobalAveragePooling1D, L.GlobalMaxPooling1D])()(tensor)

    def _block(self, tensor: Any, images: bool) -> Any:
        one = self._image_layer if images else self._sequence_layer
        choice = self._random.random()
        if choice < 0.5:
            return one(tensor)
        branches = [
            one(one(tensor, keep=True), keep=True) for _ in range(self._random.randint(1, 3))
        ]
        if choice < 0.75 and all(branch.shape == tensor.shape for branch in branches):
            return L.Add()([tensor, *branches])
        if len(branches) > 1 and sum(branch.shape[-1] for branch in branches) <= MAX_WIDTH:
            return L.Concatenate()(branches)
        return branches[0]

    def _image_layer(self, tensor: Any, keep: bool = False) -> Any:
        """A layer, or one that there is already; `keep`: height and width stay."""
        width = tensor.shape[-1]
        stride = 1 if keep or min(tensor.shape[1:3]) < 8 else self._random.choice([1, 1, 2])
        size, same = self._random.choice([1, 3, 5]), {"padding": "same", "strides": stride}
        active = self._random.choice([None, "relu", "swish"])
        layers: list[Callable[[], Any]] = [
            lambda: L.Conv2D(self._width(), size, activation=active, **same),
            lambda: L.Conv2D(self._width(), 3, activation=active, use_bias=False, **same),
            lambda: L.DepthwiseConv2D(size, activation=active, **same),
            lambda: L.SeparableConv2D(self._width(), 3, activation=active, **same),
            lambda: L.Dense(self._width(), activation=active),
            lambda: L.BatchNormalization(),
            lambda: L.LayerNormalization(),
            lambda: L.Dropout(0.2),
            lambda: L.Activation(active or "relu"),
            lambda: L.MaxPool2D(3, padding="same", strides=stride),
            lambda: self._share(("conv", width), lambda: L.Conv2D(width, 3, padding="same")),
        ]
        return self._random.choice(layers)()(tensor)

    def _sequence_layer(self, tensor: Any, keep: bool = False) -> Any:
        width = tensor.shape[-1]
        active = self._random.choice([None, "relu", "gelu"])
        layers: list[Callable[[], Any]] = [
            lambda: L.Dense(self._width(), activation=active),
            lambda: L.Conv1D(self._width(), 3, padding="same", activation=active),
            lambda: L.SeparableConv1D(self._width(), 3, padding="same"),
            lambda: L.LSTM(self._width(), return_sequences=True),
            lambda: L.LayerNormalization(),
            lambda: L.BatchNormalization(),
            lambda: L.Dropout(0.2),
            lambda: self._share(("dense", width), lambda: L.Dense(width, activation=active)),
        ]
        if self._random.random() < 0.2:
            return L.MultiHeadAttention(2, 16)(tensor, tensor)
        return self._random.choice(layers)()(tensor)

    def _share(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]
