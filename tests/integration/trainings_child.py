"""Trains one model on a real BFC allocator while it is recorded, and prints the recording and what
it has to be.

Run as ``python trainings_child.py SCENARIO``, in a process of its own: the allocator is chosen when
TensorFlow starts. SCENARIO is ``NAME[:MODE]`` of `MODELS`, or ``NAME:SIZE:BATCH PIPELINE`` of
`keras.applications`, or ``random:SEED PIPELINE``; PIPELINE is ``cached``, ``batched`` or
``arrays``. The truth comes from Keras (shapes × dtype × batch).
"""

import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from random_model import RandomModel

import tb_memplugin
from tb_memplugin.fit import RECORDED, Predictor, recorded_program, reproduce
from tb_memplugin.recorder.watch.layers import own_variables, walk

L = keras.layers
STEPS = (3, 5)
"""Traced steps of the families."""


def classes(*shape: int, count: int = 10) -> Any:
    return np.random.default_rng(0).integers(0, count, shape)


def noise(*shape: int) -> Any:
    return np.random.default_rng(0).random(shape, dtype=np.float32)


def fit(
    model: Any, optimizer: Any, data: dict[str, Any], traced: tuple[int, ...], **compiled: Any
) -> tuple[Any, Any]:
    """The optimizer, and the run of a training on `data`."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    with model.distribute_strategy.scope():
        model.compile(optimizer, loss, **compiled)
    with tempfile.TemporaryDirectory() as directory:
        callback = tb_memplugin.MemoryCallback(directory, trace_steps=traced)
        model.fit(**data, verbose=0, callbacks=[callback])
        callback.close()
        (run,) = tb_memplugin.load(directory).values()
    return model.optimizer, run


def repeated(x: Any, y: Any, steps: int) -> Any:
    """So many times one batch that no pipeline copies ahead."""
    options = tf.data.Options()
    options.autotune.enabled = False
    return tf.data.Dataset.from_tensors((x, y)).repeat(steps).with_options(options)


def collision() -> Any:
    """Keras's names and TensorFlow's scopes cross: that of `dense` is ``dense_1``, of `dense_1`
    ``dense_1_2``."""
    layers = [
        L.Dense(units, "relu", name=name)
        for units, name in ((512, "below"), (256, "dense"), (128, "dense_1"))
    ]
    model = keras.Sequential(
        [keras.Input((64,)), *layers, L.Dense(10, name="dense_2")], name="sequential"
    )
    model.get_layer("below").trainable = False
    model.get_layer("dense_1").trainable = False
    return model, noise(2048, 64), classes(2048)


def shared() -> Any:
    """A layer called twice, and two nested models whose layers have the same names, one of them
    frozen."""

    def tower(name: str) -> Any:
        return keras.Sequential(
            [L.Dense(96, "relu", name="dense"), L.Dense(48, "relu", name="dense_1")], name=name
        )

    twice = L.Dense(128, activation="relu", name="twice")
    inputs = keras.Input((128,))
    hidden = twice(L.Dense(128, activation="relu", name="middle")(twice(inputs)))
    frozen, free = tower("a"), tower("b")
    outputs = L.Dense(10, name="out")(L.Concatenate()([frozen(hidden), free(hidden)]))
    model = keras.Model(inputs, outputs, name="both")
    frozen.trainable = False
    return model, noise(4096, 128), classes(4096)


def lstm() -> Any:
    model = keras.Sequential(
        [keras.Input((32, 64)), L.LSTM(256, return_sequences=True), L.LSTM(256), L.Dense(10)]
    )
    model.layers[0].trainable = False
    return model, noise(32, 32, 64), classes(32)


def transformer() -> Any:
    inputs = keras.Input((64,), dtype="int32")
    hidden = L.Embedding(1000, 128)(inputs)
    for _ in range(2):
        hidden = L.LayerNormalization()(
            L.Add()([hidden, L.MultiHeadAttention(4, 32)(hidden, hidden)])
        )
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
    backbone = getattr(keras.applications, name)(
        weights=None, include_top=False, input_shape=(size, size, 3)
    )
    backbone.trainable = False
    for layer in backbone.layers[-free:]:
        layer.trainable = True
    head = [L.GlobalAveragePooling2D(), L.Dense(10)]
    model = keras.Sequential([keras.Input((size, size, 3)), backbone, *head])
    return model, noise(batch, size, size, 3), classes(batch)


def vgg16() -> Any:
    model = keras.applications.VGG16(weights=None, classifier_activation=None)
    return model, noise(2, 224, 224, 3), classes(2)


def convolutions() -> Any:
    layers = [
        L.Conv2D(32, 3, activation="relu"),
        L.BatchNormalization(),
        L.Conv2D(64, 3, activation="relu"),
    ]
    head = [L.Flatten(), L.Dense(64, activation="relu"), L.Dense(10, dtype="float32")]
    model = keras.Sequential([keras.Input((32, 32, 3)), *layers, *head])
    model.layers[0].trainable = False
    return model, noise(16, 32, 32, 3), classes(16)


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
        self.inner = keras.Sequential(
            [L.Dense(384, "relu", name="dense"), L.Dense(256, "relu")], name="inner"
        )
        self.inner.build(shape)

    def call(self, x: Any) -> Any:
        return self.inner(x)


class Loop(L.Layer):
    """The same weights three times, in a loop of TensorFlow."""

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(shape[-1], shape[-1]))

    def call(self, x: Any) -> Any:
        return tf.while_loop(
            lambda step, _: step < 3, lambda step, x: (step + 1, tf.tanh(x @ self.kernel)), (0, x)
        )[1]


def odd() -> Any:
    layers = [
        Scoped(name="scoped"),
        L.Dense(512, "relu", name="plain"),
        Tower(name="tower"),
        Loop(name="loop"),
    ]
    model = keras.Sequential([keras.Input((64,)), L.Dense(64), *layers, L.Dense(10)], name="odd")
    model.layers[0].trainable = False
    return model, noise(2048, 64), classes(2048)


def two_models() -> Any:
    """A layer shared by two models of the process, of which one is trained and the other only
    ran."""
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
        layers = [
            L.Dense(512, "relu", name="below"),
            L.Dense(384, "relu", name="above"),
            L.Dense(10, name="head"),
        ]
        model = keras.Sequential([keras.Input((64,)), *layers], name="mirrored")
    model.layers[0].trainable = False
    return model, noise(2048, 64), classes(2048)


def custom_loop() -> tuple[Any, Any, Any]:
    """A ``GradientTape`` loop under ``tf.function`` whose peak, a large temporary, is when all
    gradients are there."""
    model = keras.Sequential(
        [keras.Input((512,)), *(L.Dense(1024, use_bias=False) for _ in range(3)), L.Dense(10)]
    )
    optimizer = keras.optimizers.Adam()
    x, y = tf.constant(noise(4, 512)), tf.constant(classes(4))

    @tf.function
    def train(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(
                keras.losses.sparse_categorical_crossentropy(y, model(x), from_logits=True)
            )
        gradients = tape.gradient(loss, model.trainable_variables)
        with tf.control_dependencies(gradients):
            large = tf.reduce_sum(tf.random.uniform([16 << 20]))
        with tf.control_dependencies([large]):
            gradients = [tf.identity(gradient) for gradient in gradients]
        optimizer.apply(gradients, model.trainable_variables)
        return loss

    with tempfile.TemporaryDirectory() as directory:
        with tb_memplugin.MemoryRecorder(
            directory, model=model, optimizer=optimizer, trace_steps=[3]
        ) as recorder:
            for step in range(5):
                with recorder.step(step):
                    train(x, y)
        (run,) = tb_memplugin.load(directory).values()
    return model, optimizer, run


MODELS: dict[str, Callable[[], Any]] = {
    **{
        make.__name__: make
        for make in (collision, shared, lstm, transformer, unet, vgg16, convolutions, own_step)
    },
    **{make.__name__: make for make in (rematerialised, odd, two_models, mirrored)},
    "mobilenet": lambda: application("MobileNetV2", 30),
    "efficientnet": lambda: application("EfficientNetB0", 40),
    "vgg16_frozen": lambda: application("VGG16", 5, batch=24),
}
OPTIONS = {
    "xla": {"jit_compile": True},
    "eager": {"run_eagerly": True},
    "steps": {"steps_per_execution": 3},
}
"""Mode to arguments of ``compile``."""


def small(name: str, mode: str) -> tuple[Any, Any, Any, int]:
    """(model, optimizer, run, batch) of a model of this file."""
    if name == "custom_loop":
        return *custom_loop(), 4
    if mode == "mixed":
        keras.mixed_precision.set_global_policy("mixed_float16")
    model, x, y = MODELS[name]()
    options = {"optimizer": "adam", **OPTIONS.get(mode, {})}
    if mode == "accumulation":  # an optimizer makes TensorFlow's devices: only where it is needed
        options["optimizer"] = keras.optimizers.SGD(
            0.1, momentum=0.9, gradient_accumulation_steps=2
        )
    steps = options.get("steps_per_execution", 1)
    return (
        model,
        *fit(model, data={"x": repeated(x, y, 6 * steps)}, traced=STEPS[:1], **options),
        len(x),
    )


def whole(name: str, pipeline: str) -> tuple[Any, Any, Any, int]:
    """As `small`, of a backbone whose first 70 % of layers are frozen, or of a model drawn at
    random."""
    if name.startswith("random:"):
        made = RandomModel(int(name.removeprefix("random:")))
        model, optimizer, batch = made.model, made.optimizer, made.batch
        x, y = made.data(7 * batch - batch // 2)
    else:
        family, side, batch = name.split(":")[0], *map(int, name.split(":")[1:])
        backbone = getattr(keras.applications, family)(
            weights=None, include_top=False, input_shape=(side, side, 3)
        )
        for layer in backbone.layers[: int(0.7 * len(backbone.layers))]:
            layer.trainable = False
        head = [L.GlobalAveragePooling2D(), L.Dense(10)]
        model = keras.Sequential([keras.Input((side, side, 3)), backbone, *head], name="model")
        optimizer, count = keras.optimizers.Adam(), 7 * batch - batch // 2
        x, y = noise(count, side, side, 3), classes(count)
    data: dict[str, Any] = {"x": x, "y": y, "batch_size": batch}
    if pipeline != "arrays":
        slices = tf.data.Dataset.from_tensor_slices((x, y))
        cached = slices.cache().shuffle(len(x)) if pipeline == "cached" else slices
        batches = cached.batch(batch)
        data = {"x": batches.prefetch(tf.data.AUTOTUNE) if pipeline == "cached" else batches}
    return model, *fit(model, optimizer, data, STEPS), batch


def truth(model: Any, optimizer: Any, batch: int) -> dict[str, Any]:
    """By layer path, from Keras: bytes of weights, of trainable ones, of slots, and of one
    output."""
    nodes = walk(model)
    trainable = {id(weight) for weight in model.trainable_weights}

    def size(weights: Any) -> int:
        return sum(weight.numpy().nbytes for weight in weights)

    slots, rest = divmod(
        size(one for one in optimizer.variables if len(one.shape)), size(model.trainable_weights)
    )
    assert rest == 0
    layers: dict[str, Any] = {}
    for path, weights in own_variables(nodes).items():
        trained = size(weight for weight in weights if id(weight) in trainable)
        layers[path] = {
            "weights": size(weights),
            "trainable": trained,
            "slots": slots * trained,
            "output": None,
        }
    for node in nodes:
        try:
            shape, dtype = (
                node.layer.output.shape,
                keras.backend.standardize_dtype(node.layer.output.dtype),
            )
            layers[node.path]["output"] = (
                int(np.prod([size or batch for size in shape])) * np.dtype(dtype).itemsize
            )
        except (AttributeError, ValueError):  # called several times, or subclassed
            pass
    return layers


def main() -> None:
    name, pipeline = sys.argv[1], sys.argv[2:]
    keras.utils.set_random_seed(0)
    model, optimizer, run, batch = (
        whole(name, *pipeline) if pipeline else small(*f"{name}:".split(":")[:2])
    )
    samples = run.samples
    answer = {
        "layers": truth(model, optimizer, batch),
        "batch": batch,
        "limit": int(os.environ["TF_CPU_BFC_MEM_LIMIT_IN_MB"]) << 20,
        "peaks": dict(
            zip(samples.step.tolist(), samples.devices["CPU:0"].peak_bytes.tolist(), strict=True)
        ),
        "notes": run.notes,
        "snapshots": [dataclasses.asdict(snapshot) for snapshot in run.snapshots],
    }
    if pipeline:
        answer["requests"] = [
            {
                "step": one.step,
                "first": one.first,
                "batch": one.batch_size,
                **dataclasses.asdict(reproduce(one)),
            }
            for one in run.requests
        ]
        predicted = Predictor(recorded_program(run.requests, "CPU:0")).predict(RECORDED)
        answer["as_recorded"] = dataclasses.asdict(predicted)
    print("ANSWER " + json.dumps(answer))


if __name__ == "__main__":
    main()
