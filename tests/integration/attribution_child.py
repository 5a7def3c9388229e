"""Trains one small model on a real BFC allocator, traces a step, and prints the ledger and what it has to be.

Run as ``python attribution_child.py SCENARIO``, in a process of its own: the allocator is chosen when TensorFlow
starts. The truth comes from Keras (shapes × dtype × batch), from the allocator's statistics and from its memory dump.
"""

import collections
import contextlib
import dataclasses
import glob
import json
import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Callable
from typing import Any

os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "1"
os.environ.setdefault("TF_CPU_BFC_MEM_LIMIT_IN_MB", "6144")
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import keras
import numpy as np
import tensorflow as tf

from tb_memplugin.allocator.replay import TraceReplay, between_maps
from tb_memplugin.attribution.results.ledger import attribute, peak_event
from tb_memplugin.importers.allocator.memory_dump import read_dump
from tb_memplugin.importers.profile.xplane import read_traces
from tb_memplugin.recorder.native.memory_maps import MemoryMaps
from tb_memplugin.recorder.observe.model.layers import own_variables, walk
from tb_memplugin.recorder.observe.observer import ModelObserver

L = keras.layers
Step = Callable[[], None]


class Tracer:
    """Opens profiler windows round steps."""

    def __init__(self, model: Any, optimizer: Any = None) -> None:
        self.observer = ModelObserver()
        self.observer.install()
        self.observer.watch(model, optimizer)
        self.maps = MemoryMaps(["CPU:0"], lambda sentence: sys.exit(sentence))
        self.peak = 0

    def map(self) -> Any:
        dump = self.maps.read("CPU:0")
        assert dump is not None
        return read_dump(dump, 0.0)

    def open(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.observer.begin_window()
        tf.config.experimental.reset_memory_stats("CPU:0")
        tf.profiler.experimental.start(self._folder.name)
        self._start = self.map()

    def close(self, keep: pathlib.Path | None = None) -> tuple[Any, Any]:
        self.peak = tf.config.experimental.get_memory_info("CPU:0")["peak"]
        end = self.map()
        tf.profiler.experimental.stop()
        facts = self.observer.end_window("CPU:0")
        (path,) = glob.glob(self._folder.name + "/**/*.xplane.pb", recursive=True)
        with open(path, "rb") as file:
            trace = next(trace for trace in read_traces(file.read()) if trace.device == "CPU:0")
        if keep is not None:
            shutil.copy(path, keep)
        self._folder.cleanup()
        trace = between_maps(trace, self._start, end)
        facts = self.observer.recall(facts, trace)
        self.observer.remember(trace)
        return trace, facts


class TraceSteps(keras.callbacks.Callback):
    """Traces the first step, for what it leaves behind, and attributes step `at`."""

    def __init__(self, at: int = 3, keep: pathlib.Path | None = None) -> None:
        super().__init__()
        self._at, self._keep = at, keep
        self.result: Any = None
        self.tracer: Any = None

    def set_model(self, model: Any) -> None:
        super().set_model(model)
        self.tracer = Tracer(model)
        self._before_data = self.tracer.map()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if batch == 0:
            self.tracer.observer.first_batches("CPU:0", self._before_data, self.tracer.map())
        if batch in (0, self._at):
            self.tracer.open()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self.tracer is None or self.result is not None:
            return
        if hasattr(self.tracer, "_folder") and os.path.isdir(self.tracer._folder.name):
            trace, facts = self.tracer.close(self._keep)
            if batch >= self._at:
                self.result = (trace, facts)


def classes(*shape: int, count: int = 10) -> Any:
    return np.random.default_rng(0).integers(0, count, shape)


def noise(*shape: int) -> Any:
    return np.random.default_rng(0).random(shape, dtype=np.float32)


def fit(
    model: Any, x: Any, y: Any, optimizer: Any = "adam", keep: pathlib.Path | None = None, **compiled: Any
) -> tuple[Any, Any, int]:
    """Six steps on one batch that no pipeline copies ahead."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with model.distribute_strategy.scope():
        model.compile(optimizer, loss, **compiled)
    steps = int(compiled.get("steps_per_execution", 1))
    callback = TraceSteps(at=3 * steps, keep=keep)
    options = tf.data.Options()
    options.autotune.enabled = False
    data = tf.data.Dataset.from_tensors((x, y)).repeat(6 * steps).with_options(options)
    model.fit(data, verbose=0, callbacks=[callback])
    callback.tracer.observer.remove()
    return callback.result[0], callback.result[1], callback.tracer.peak


def collision() -> Any:
    """Keras's names and TensorFlow's scopes cross.

    The scope of `dense` is ``dense_1``, that of `dense_1` is ``dense_1_2``.
    """
    model = keras.Sequential(
        [
            keras.Input((64,)),
            L.Dense(512, activation="relu", name="below"),
            L.Dense(256, activation="relu", name="dense"),
            L.Dense(128, activation="relu", name="dense_1"),
            L.Dense(10, name="dense_2"),
        ],
        name="sequential",
    )
    model.get_layer("below").trainable = False
    model.get_layer("dense_1").trainable = False
    return model, noise(2048, 64), classes(2048)


def shared() -> Any:
    """A layer called twice, and two nested models whose layers have the same names, one of them frozen."""

    def tower(name: str) -> Any:
        return keras.Sequential([L.Dense(96, "relu", name="dense"), L.Dense(48, "relu", name="dense_1")], name=name)

    twice = L.Dense(128, activation="relu", name="twice")
    inputs = keras.Input((128,))
    hidden = twice(L.Dense(128, activation="relu", name="middle")(twice(inputs)))
    frozen, free = tower("a"), tower("b")
    outputs = L.Dense(10, name="out")(L.Concatenate()([frozen(hidden), free(hidden)]))
    model = keras.Model(inputs, outputs, name="both")
    frozen.trainable = False
    return model, noise(4096, 128), classes(4096)


def lstm() -> Any:
    model = keras.Sequential([keras.Input((32, 64)), L.LSTM(256, return_sequences=True), L.LSTM(256), L.Dense(10)])
    model.layers[0].trainable = False
    return model, noise(32, 32, 64), classes(32)


def transformer() -> Any:
    inputs = keras.Input((64,), dtype="int32")
    hidden = L.Embedding(1000, 128)(inputs)
    for _ in range(2):
        hidden = L.LayerNormalization()(L.Add()([hidden, L.MultiHeadAttention(4, 32)(hidden, hidden)]))
        inner = L.Dropout(0.1)(L.Dense(128)(L.Dense(512, activation="gelu")(hidden)))
        hidden = L.LayerNormalization()(L.Add()([hidden, inner]))
    model = keras.Model(inputs, L.Dense(10)(L.GlobalAveragePooling1D()(hidden)))
    model.layers[1].trainable = False
    return model, classes(32, 64, count=1000).astype("int32"), classes(32)


class UNet(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.down = [L.Conv2D(size, 3, padding="same", activation="relu") for size in (16, 32)]
        self.pool, self.up = L.MaxPool2D(), L.UpSampling2D()
        self.merge, self.out = L.Conv2D(16, 3, padding="same", activation="relu"), L.Conv2D(10, 1)

    def build(self, shape: Any) -> None:
        self.call(keras.Input(shape[1:], shape[0]))
        self.built = True

    def call(self, x: Any) -> Any:
        wide = self.down[0](x)
        deep = self.up(self.down[1](self.pool(wide)))
        return self.out(self.merge(keras.ops.concatenate([deep, wide], axis=-1)))


def unet() -> Any:
    model = UNet()
    model.build((None, 64, 64, 3))
    model.down[0].trainable = False
    return model, noise(16, 64, 64, 3), classes(16, 64, 64)


def application(name: str, free: int, batch: int = 16, size: int = 96) -> Any:
    backbone = getattr(keras.applications, name)(weights=None, include_top=False, input_shape=(size, size, 3))
    backbone.trainable = False
    for layer in backbone.layers[-free:]:
        layer.trainable = True
    head = [L.GlobalAveragePooling2D(), L.Dense(10)]
    return (
        keras.Sequential([keras.Input((size, size, 3)), backbone, *head]),
        noise(batch, size, size, 3),
        classes(batch),
    )


def vgg16() -> Any:
    model = keras.applications.VGG16(weights=None, classifier_activation=None)
    return model, noise(2, 224, 224, 3), classes(2)


def convolutions() -> Any:
    model = keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            L.Conv2D(32, 3, activation="relu"),
            L.BatchNormalization(),
            L.Conv2D(64, 3, activation="relu"),
            L.Flatten(),
            L.Dense(64, activation="relu"),
            L.Dense(10, dtype="float32"),
        ]
    )
    model.layers[0].trainable = False
    return model, noise(64, 32, 32, 3), classes(64)


class OwnStep(keras.Model):
    """A `train_step` of its own: two forward passes, clipped gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = L.Dense(1024, activation="relu"), L.Dense(10)

    def build(self, shape: Any) -> None:
        self.first.build(shape)
        self.second.build((shape[0], 1024))
        self.built = True

    def call(self, x: Any) -> Any:
        return self.second(self.first(x))

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            one, two = self(x, training=True), self(-x, training=True)
            loss = self.compute_loss(x, y, one) + tf.reduce_mean(tf.square(one - two))
        gradients = tape.gradient(loss, self.trainable_variables)
        gradients, _ = tf.clip_by_global_norm(gradients, 1.0)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


def own_step() -> Any:
    model = OwnStep()
    model.build((None, 512))
    return model, noise(512, 512), classes(512)


def rematerialised() -> Any:
    inputs = keras.Input((32, 32, 3))
    hidden = L.Conv2D(16, 3, padding="same", name="before")(inputs)
    with keras.RematScope(mode="full"):
        hidden = L.Conv2D(32, 3, padding="same", activation="relu", name="again_1")(hidden)
        hidden = L.Conv2D(32, 3, padding="same", activation="relu", name="again_2")(hidden)
    model = keras.Model(inputs, L.Dense(10)(L.GlobalAveragePooling2D()(hidden)))
    return model, noise(64, 32, 32, 3), classes(64)


class Scoped(L.Layer):
    """A layer whose name scope is that of another one."""

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(shape[-1], 512))

    def call(self, x: Any) -> Any:
        with tf.name_scope("odd/plain"):
            return tf.nn.relu(tf.matmul(x, self.kernel))


class Tower(L.Layer):
    """A layer that makes a model when it is built."""

    def build(self, shape: Any) -> None:
        self.inner = keras.Sequential([L.Dense(384, "relu", name="dense"), L.Dense(256, "relu")], name="inner")
        self.inner.build(shape)

    def call(self, x: Any) -> Any:
        return self.inner(x)


class Loop(L.Layer):
    """The same weights three times, in a loop of TensorFlow."""

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(shape[-1], shape[-1]))

    def call(self, x: Any) -> Any:
        return tf.while_loop(lambda step, _: step < 3, lambda step, x: (step + 1, tf.tanh(x @ self.kernel)), (0, x))[1]


def odd() -> Any:
    layers = [Scoped(name="scoped"), L.Dense(512, "relu", name="plain"), Tower(name="tower"), Loop(name="loop")]
    model = keras.Sequential([keras.Input((64,)), L.Dense(64), *layers, L.Dense(10)], name="odd")
    model.layers[0].trainable = False
    return model, noise(2048, 64), classes(2048)


def two_models() -> Any:
    """A layer shared by two models of the process, of which one is trained and the other only ran."""
    trunk = L.Dense(512, activation="relu", name="trunk")
    first = keras.Sequential([keras.Input((4,)), trunk, L.Dense(10, name="head")], name="first")
    second = keras.Sequential([keras.Input((4,)), trunk, L.Dense(700, name="head")], name="second")
    second(noise(4, 4))
    first.keep = [second]
    return first, noise(2048, 4), classes(2048)


def mirrored() -> Any:
    """Two replicas, each with half of the batch, on devices that share one allocator."""
    halves = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], halves)
    # Without collective operations, beside which TensorFlow's profiler can crash (docs/limits.md).
    to_one = tf.distribute.ReductionToOneDevice()
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"], cross_device_ops=to_one).scope():
        layers = [L.Dense(512, "relu", name="below"), L.Dense(384, "relu", name="above"), L.Dense(10, name="head")]
        model = keras.Sequential([keras.Input((64,)), *layers], name="mirrored")
    model.layers[0].trainable = False
    return model, noise(2048, 64), classes(2048)


def custom_loop() -> tuple[Any, Any, Any, int]:
    """A ``GradientTape`` loop under ``tf.function`` whose peak, a large temporary, is when all gradients are there."""
    model = keras.Sequential([keras.Input((512,)), *(L.Dense(1024, use_bias=False) for _ in range(3)), L.Dense(10)])
    optimizer = keras.optimizers.Adam()
    x, y = tf.constant(noise(4, 512)), tf.constant(classes(4))

    @tf.function
    def train(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(y, model(x), from_logits=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        with tf.control_dependencies(gradients):
            large = tf.reduce_sum(tf.random.uniform([16 << 20]))
        with tf.control_dependencies([large]):
            gradients = [tf.identity(gradient) for gradient in gradients]
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    tracer = Tracer(model, optimizer)
    tracer.open()
    train(x, y)
    tracer.close()
    for _ in range(2):
        train(x, y)
    tracer.open()
    train(x, y)
    trace, facts = tracer.close()
    return model, optimizer, (trace, facts), tracer.peak


MODELS: dict[str, Callable[[], Any]] = {
    "collision": collision,
    "shared": shared,
    "lstm": lstm,
    "transformer": transformer,
    "unet": unet,
    "mobilenet": lambda: application("MobileNetV2", 30),
    "efficientnet": lambda: application("EfficientNetB0", 40),
    "vgg16": vgg16,
    "vgg16_frozen": lambda: application("VGG16", 5, batch=24),
    "convolutions": convolutions,
    "own_step": own_step,
    "rematerialised": rematerialised,
    "odd": odd,
    "two_models": two_models,
    "mirrored": mirrored,
}


def truth(model: Any, optimizer: Any, batch: int) -> dict[str, Any]:
    """By layer path, from Keras: bytes of weights and slots, of one output, and whether it is trainable."""
    nodes = walk(model)
    trainable = {id(weight) for weight in model.trainable_weights}
    slots: dict[str, int] = collections.Counter()
    for variable in optimizer.variables:
        slots[variable.path.rpartition("/")[2]] += variable.numpy().nbytes
    layers: dict[str, Any] = {}
    for path, weights in own_variables(nodes).items():
        layers[path] = {
            "weights": sum(weight.numpy().nbytes for weight in weights),
            "trainable": sum(weight.numpy().nbytes for weight in weights if id(weight) in trainable),
        }
    for node in nodes:
        try:
            shape, dtype = node.layer.output.shape, keras.backend.standardize_dtype(node.layer.output.dtype)
            layers[node.path]["output"] = int(np.prod([size or batch for size in shape])) * np.dtype(dtype).itemsize
        except (AttributeError, ValueError):  # called several times, or subclassed
            layers[node.path]["output"] = None
    return layers


def pool_by_dump() -> dict[str, int]:
    """Pool and free chunks as the allocator's own dump has them, after an allocation that cannot succeed."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TF_BFC_MEMORY_DUMP"] = folder + "/dump"
        with contextlib.suppress(tf.errors.ResourceExhaustedError):
            tf.zeros([1 << 40], tf.int8)
        from tensorflow.core.protobuf import bfc_memory_map_pb2

        dump = bfc_memory_map_pb2.MemoryDump()
        with open(min(glob.glob(folder + "/dump*")), "rb") as file:
            dump.ParseFromString(file.read())
    return {"pool": sum(chunk.size for chunk in dump.chunk)}


def main() -> None:
    name, _, mode = sys.argv[1].partition(":")
    keras.utils.set_random_seed(0)
    if name == "custom_loop":
        model, optimizer, (trace, facts), peak = custom_loop()
        batch = 4
    else:
        if mode == "mixed":
            keras.mixed_precision.set_global_policy("mixed_float16")
        model, x, y = MODELS[name]()
        batch = len(x)
        options: dict[str, dict[str, Any]] = {
            "xla": {"jit_compile": True},
            "eager": {"run_eagerly": True},
            "steps": {"steps_per_execution": 3},
            "accumulation": {"optimizer": keras.optimizers.SGD(0.1, momentum=0.9, gradient_accumulation_steps=2)},
        }
        trace, facts, peak = fit(model, x, y, **options.get(mode, {}))
        optimizer = model.optimizer
    replay = None if trace.start_map is None else TraceReplay(trace, peak_event(trace))
    snapshot = attribute(trace, facts, step=3, phase="train", wall_time=0.0, capacity_bytes=None, replay=replay)
    answer = {
        "snapshot": dataclasses.asdict(snapshot),
        "peak": peak,
        "start": facts.start_in_use,
        "traced_start": trace.start_in_use,
        "missed": trace.missed,
        "layers": truth(model, optimizer, batch),
        "batch": batch,
        "limit": int(os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"]) << 20,
        **(pool_by_dump() if mode == "dump" else {}),
    }
    print("ANSWER" + json.dumps(answer))


if __name__ == "__main__":
    main()
