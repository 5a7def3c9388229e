"""Trains one model for a few steps, in a process of its own, and prints what became of it as JSON.

usage: python train.py '{"model": "MobileNetV2", "batch": 8, ...}'
"""

import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import sys
import time
import types
from collections.abc import Callable
from typing import Any

from feeds import EXAMPLES, LENGTH, fed

sys.path.append(str(pathlib.Path(__file__).parent.parent / "integration"))


@dataclasses.dataclass(frozen=True)
class Training:
    """One training.

    Attributes:
        model: Name of a model below; ``drawn:3`` is drawn with seed 3, with its optimizer, precision,
            frozen layers and feed.
        batches: Batch sizes, one ``fit`` for each, in order.
        capacity_mib: Capacity of the allocator.
        optimizer: ``adam``, ``sgd`` or ``momentum``.
        frozen: Share of the layers that are frozen, from the first on.
        freeze: Layers with weights that are frozen, from the first on.
        compiled: Whether XLA compiles the step.
        accumulate: Batches over which the optimizer sums gradients.
        steps: Steps of each ``fit``.
        run: Directory to record into; empty to record nothing.
        device: ``CPU:0`` or ``GPU:0``.
        feed: What ``fit`` gets: ``generator``, ``arrays``, or ``slices`` of arrays. Arrays have the same number of
            examples at each batch size.
        grows: Whether a GPU's pool grows up to the whole card, instead of having the capacity from the start.
        segments: Layers of each segment that is recomputed.
        deterministic: Whether TensorFlow runs deterministic ops.
    """

    model: str
    batches: tuple[int, ...]
    capacity_mib: int = 8192
    optimizer: str = "adam"
    frozen: float = 0.0
    freeze: int = 0
    compiled: bool = False
    accumulate: int = 1
    steps: int = 12
    run: str = ""
    device: str = "CPU:0"
    feed: str = "generator"
    grows: bool = False
    segments: tuple[tuple[str, ...], ...] = ()
    deterministic: bool = False


def main() -> None:
    training = Training(**json.loads(sys.argv[1]))
    os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "1"
    os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"] = str(training.capacity_mib)
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import keras
    import tensorflow as tf

    if training.device == "GPU:0":
        (card,) = tf.config.list_physical_devices("GPU")
        if training.grows:
            tf.config.experimental.set_memory_growth(card, True)
        else:
            limit = tf.config.LogicalDeviceConfiguration(memory_limit=training.capacity_mib)
            tf.config.set_logical_device_configuration(card, [limit])
    if training.deterministic:
        tf.config.experimental.enable_op_determinism()
    keras.utils.set_random_seed(0)
    drawn = _drawn(training)
    model = drawn.model if drawn else build(training)
    feed = drawn.fit_arguments if drawn else functools.partial(fed, model, training.feed, training.steps)
    variables = model.variables
    if training.segments:
        model = _recomputing(model, training)
    recorder = watch = None
    if training.run:
        import tb_memplugin

        starts = range(0, len(training.batches) * training.steps, training.steps)
        traced = [start + step for start in starts for step in (1, 2, 3)]
        recorder = tb_memplugin.MemoryCallback(training.run, trace_steps=traced)
    else:  # the recorder measures peaks itself
        watch = _watch(training.device)
    passed = True
    for batch in training.batches:
        try:
            model.fit(**feed(EXAMPLES, batch), verbose=0, callbacks=[recorder or watch])
        # A convolution reports NotFoundError if no algorithm gets its scratch space.
        except (tf.errors.ResourceExhaustedError, tf.errors.NotFoundError):
            passed = False
            break
    if recorder is not None:
        recorder.close()
    answer = {
        "passed": passed,
        "peaks": watch.peaks if watch else [],
        "seconds": watch.seconds if watch else [],
        "losses": watch.losses if watch else [],
        "variables": _digests(variables),
    }
    print("ANSWER " + json.dumps(answer), flush=True)


def _watch(device: str) -> Any:
    """A callback that keeps the peak, the time and the loss of every step."""
    import keras
    import tensorflow as tf

    class Watch(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.peaks: list[int] = []
            self.seconds: list[float] = []
            self.losses: list[float] = []

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            tf.config.experimental.reset_memory_stats(device)
            self._start = time.perf_counter()

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.losses.append(float(logs["loss"]))  # waits for the step
            self.seconds.append(time.perf_counter() - self._start)
            self.peaks.append(tf.config.experimental.get_memory_info(device)["peak"])

    return Watch()


def _digests(variables: Any) -> list[str]:
    """A digest of the values of each variable."""
    import numpy as np

    return [hashlib.sha256(np.asarray(one).tobytes()).hexdigest()[:16] for one in variables]


def _recomputing(plain: Any, training: Training) -> Any:
    """The model with segments recomputed, compiled as the plain one."""
    import tb_memplugin

    model = tb_memplugin.remat(plain, types.SimpleNamespace(segments=training.segments))
    return compiled(model, training)


def _drawn(training: Training) -> Any:
    """A model that is drawn at random, compiled; None for models with names."""
    name, _, seed = training.model.partition(":")
    if name != "drawn":
        return None
    import keras
    from random_model import RandomModel, drawn_precision

    keras.mixed_precision.set_global_policy(drawn_precision(int(seed)))
    drawn = RandomModel(int(seed))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    drawn.model.compile(drawn.optimizer, loss, jit_compile=training.compiled)
    return drawn


def build(training: Training) -> Any:
    """The compiled model."""

    model = (MODELS | HUB_MODELS | OTHER_MODELS)[training.model]()
    layers = model.layers
    for layer in layers[: round(len(layers) * training.frozen)]:
        layer.trainable = False
    for layer in [layer for layer in layers if layer.trainable_weights][: training.freeze]:
        layer.trainable = False
    return compiled(model, training)


def compiled(model: Any, training: Training) -> Any:
    """The model, compiled with the training's optimizer."""
    import keras

    more: dict[str, Any] = {"gradient_accumulation_steps": training.accumulate} if training.accumulate > 1 else {}
    optimizers: dict[str, Callable[[], Any]] = {
        "adam": lambda: keras.optimizers.Adam(**more),
        "sgd": lambda: keras.optimizers.SGD(**more),
        "momentum": lambda: keras.optimizers.SGD(momentum=0.9, **more),
    }
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizers[training.optimizer](), loss, jit_compile=training.compiled)
    return model


def _application(name: str) -> Callable[[], Any]:
    def make() -> Any:
        import keras

        kind = getattr(keras.applications, name)
        if name == "VGG16":  # without its fully connected layers, which hold nearly all of its weights
            return kind(weights=None, include_top=False, pooling="avg", input_shape=(96, 96, 3))
        return kind(weights=None, input_shape=(96, 96, 3), classes=10, classifier_activation=None)

    return make


def _unet() -> Any:
    import keras
    from keras import layers as L  # noqa: N812

    def twice(x: Any, filters: int) -> Any:
        for _ in range(2):
            x = L.Conv2D(filters, 3, padding="same", activation="relu")(x)
        return x

    inputs = x = keras.Input((96, 96, 3))
    skipped = []
    for filters in (16, 32, 64):
        x = twice(x, filters)
        skipped.append(x)
        x = L.MaxPooling2D()(x)
    x = twice(x, 128)
    for filters in (64, 32, 16):
        x = L.Concatenate()([L.Conv2DTranspose(filters, 2, 2)(x), skipped.pop()])
        x = twice(x, filters)
    return keras.Model(inputs, L.GlobalAveragePooling2D()(L.Conv2D(10, 1)(x)), name="unet")


def _lstm() -> Any:
    import keras
    from keras import layers as L  # noqa: N812

    inputs = keras.Input((64,), dtype="int32")
    x = L.LSTM(128, return_sequences=True)(L.Embedding(1000, 128)(inputs))
    return keras.Model(inputs, L.Dense(10)(L.LSTM(128)(x)), name="lstm")


def _transformer() -> Any:
    import keras
    from keras import layers as L  # noqa: N812

    inputs = keras.Input((128,), dtype="int32")
    x = L.Embedding(1000, 128)(inputs)
    for _ in range(2):
        x = L.LayerNormalization()(x + L.Dropout(0.1)(L.MultiHeadAttention(4, 32)(x, x)))
        x = L.LayerNormalization()(x + L.Dense(128)(L.Dense(512, activation="gelu")(x)))
    return keras.Model(inputs, L.Dense(10)(L.GlobalAveragePooling1D()(x)), name="transformer")


def _decoder() -> Any:
    """A causal Transformer that predicts the class from the last token, with a wide vocabulary."""
    import keras
    from keras import layers as L  # noqa: N812

    inputs = keras.Input((96,), dtype="int32")
    x = L.Embedding(4000, 192)(inputs)
    for _ in range(3):
        x = x + L.MultiHeadAttention(6, 32)(L.LayerNormalization()(x), x, use_causal_mask=True)
        x = x + L.Dense(192)(L.Dense(768, activation="relu")(L.LayerNormalization()(x)))
    return keras.Model(inputs, L.Dense(10)(L.Dense(4000)(x)[:, -1]), name="decoder")


def _mlp() -> Any:
    import keras
    from keras import layers as L  # noqa: N812

    inputs = x = keras.Input((256,))
    for width in (1024, 1024, 512, 2048):
        x = L.Dropout(0.1)(L.BatchNormalization()(L.Dense(width, activation="relu")(x)))
    return keras.Model(inputs, L.Dense(10)(x), name="mlp")


def _mixer() -> Any:
    """An MLP-Mixer: layers over tokens and over features in turn."""
    import keras
    from keras import layers as L  # noqa: N812

    inputs = keras.Input((64, 48))
    x = L.Dense(128)(inputs)
    for _ in range(3):
        across = L.Permute((2, 1))(L.LayerNormalization()(x))
        across = L.Dense(64)(L.Dense(128, activation="gelu")(across))
        x = x + L.Permute((2, 1))(across)
        x = x + L.Dense(128)(L.Dense(256, activation="gelu")(L.LayerNormalization()(x)))
    return keras.Model(inputs, L.Dense(10)(L.GlobalAveragePooling1D()(x)), name="mixer")


def _bert() -> Any:
    import keras_hub

    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=2000,
        num_layers=2,
        num_heads=4,
        hidden_dim=128,
        intermediate_dim=512,
        max_sequence_length=LENGTH,
    )
    return keras_hub.models.BertTextClassifier(backbone=backbone, num_classes=10, preprocessor=None)


def _gpt2() -> Any:
    import keras_hub

    backbone = keras_hub.models.GPT2Backbone(
        vocabulary_size=2000,
        num_layers=2,
        num_heads=4,
        hidden_dim=128,
        intermediate_dim=512,
        max_sequence_length=LENGTH,
    )
    return keras_hub.models.GPT2CausalLM(backbone=backbone, preprocessor=None)


def _blocks() -> Any:
    """A subclassed model with Transformer blocks in a list, whose order of calls Keras does not know."""
    import keras
    from keras import layers as L  # noqa: N812
    from remat_child import Block

    class Blocks(keras.Model):
        input = keras.KerasTensor((None, 128), "int32")
        output_shape = (None, 10)

        def __init__(self) -> None:
            super().__init__(name="blocks")
            self.embedding, self.head = L.Embedding(1000, 32), L.Dense(10)
            self.blocks = [Block(name=f"block{at}") for at in range(6)]

        def call(self, tokens: Any) -> Any:
            tensor = self.embedding(tokens)
            for block in self.blocks:
                tensor = block(tensor)
            return self.head(keras.ops.mean(tensor, 1))

    model = Blocks()
    model(keras.ops.zeros((2, 128), "int32"))
    return model


HUB_MODELS: dict[str, Callable[[], Any]] = {"KerasHub BERT": _bert, "KerasHub GPT-2": _gpt2}
"""Models that need KerasHub."""
OTHER_MODELS: dict[str, Callable[[], Any]] = {"Subclassed": _blocks}
"""Models that only plans are measured with."""
MODELS: dict[str, Callable[[], Any]] = {
    "MobileNetV2": _application("MobileNetV2"),
    "ResNet50": _application("ResNet50"),
    "VGG16": _application("VGG16"),
    "U-Net": _unet,
    "LSTM": _lstm,
    "Transformer": _transformer,
    "Decoder": _decoder,
    "MLP": _mlp,
    "Mixer": _mixer,
}

if __name__ == "__main__":
    main()
