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

from feeds import EXAMPLES, fed

sys.path.append(str(pathlib.Path(__file__).parent.parent / "integration"))


@dataclasses.dataclass(frozen=True)
class Training:
    """One training.

    Attributes:
        model: Name of a model below; ``drawn:3`` is drawn with seed 3, with its optimizer,
            precision, frozen layers and feed.
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
        feed: What ``fit`` gets: ``generator``, ``arrays``, or ``slices`` of arrays. Arrays have the
            same number of examples at each batch size.
        grows: Whether a GPU's pool grows up to the whole card, instead of having the capacity from
            the start.
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
    import numpy as np
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
    feed = (
        drawn.fit_arguments
        if drawn
        else functools.partial(fed, model, training.feed, training.steps)
    )
    variables = model.variables
    if training.segments:
        import tb_memplugin

        segments = types.SimpleNamespace(segments=training.segments)
        model = compiled(tb_memplugin.remat(model, segments), training)
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
        **{name: getattr(watch, name) if watch else [] for name in ("peaks", "seconds", "losses")},
        "variables": [
            hashlib.sha256(np.asarray(one).tobytes()).hexdigest()[:16] for one in variables
        ],
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
    import models

    made = getattr(models, (MODELS | HUB_MODELS | OTHER_MODELS)[training.model])
    model = made(training.model) if training.model in models.APPLICATIONS else made()
    layers = model.layers
    for layer in layers[: round(len(layers) * training.frozen)]:
        layer.trainable = False
    for layer in [layer for layer in layers if layer.trainable_weights][: training.freeze]:
        layer.trainable = False
    return compiled(model, training)


def compiled(model: Any, training: Training) -> Any:
    """The model, compiled with the training's optimizer."""
    import keras

    more: dict[str, Any] = (
        {"gradient_accumulation_steps": training.accumulate} if training.accumulate > 1 else {}
    )
    optimizers: dict[str, Callable[[], Any]] = {
        "adam": lambda: keras.optimizers.Adam(**more),
        "sgd": lambda: keras.optimizers.SGD(**more),
        "momentum": lambda: keras.optimizers.SGD(momentum=0.9, **more),
    }
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizers[training.optimizer](), loss, jit_compile=training.compiled)
    return model


HUB_MODELS = {"KerasHub BERT": "bert", "KerasHub GPT-2": "gpt2"}
"""Models that need KerasHub."""
OTHER_MODELS = {"Subclassed": "blocks"}
"""Models that only plans are measured with."""
MODELS = {
    **dict.fromkeys(("MobileNetV2", "ResNet50", "VGG16"), "application"),
    **{
        name: name.lower().replace("-", "")
        for name in ("U-Net", "LSTM", "Transformer", "Decoder", "MLP", "Mixer")
    },
}
"""Name of each model to what makes it in `models`."""

if __name__ == "__main__":
    main()
