"""Trains one model with deterministic ops, as it is or with `remat`, and prints losses, variables
and the peak as JSON.

The peak is the lowest of the steps' peaks from the third step on: in some steps the temporaries of
two ops that run at the same time add up, in others not, whichever way the model is trained.

usage: python remat_child.py MODEL plain|remat [steps] [graph|eager|xla]
"""

import hashlib
import json
import sys
import time

import keras
import numpy as np
import tensorflow as tf

from tb_memplugin import remat
from tb_memplugin.recorder.watch import cut_points

L = keras.layers


def conv():
    tensor = inputs = keras.Input((32, 32, 3))
    for _ in range(6):
        tensor = L.Conv2D(32, 3, padding="same", kernel_regularizer="l2")(tensor)
        tensor = L.Dropout(0.2)(L.ReLU()(L.BatchNormalization()(tensor)))
    outputs = L.Dense(5, dtype="float32", activity_regularizer="l2")(
        L.GlobalAveragePooling2D()(tensor)
    )
    return keras.Model(inputs, outputs)


def mixed():
    keras.mixed_precision.set_global_policy("mixed_float16")
    return conv()


def mlp():
    hidden = [
        layer
        for _ in range(8)
        for layer in (L.Dense(256, "relu", activity_regularizer="l1"), L.Dropout(0.3))
    ]
    return keras.Sequential(
        [keras.Input((256, 32)), *hidden, L.GlobalAveragePooling1D(), L.Dense(5)]
    )


def nested():
    inner = keras.Sequential([keras.Input((32, 32, 32))], name="inner")
    for _ in range(4):
        for layer in (
            L.Conv2D(32, 3, padding="same"),
            L.BatchNormalization(),
            L.ReLU(),
            L.SpatialDropout2D(0.1),
        ):
            inner.add(layer)
    inputs = keras.Input((32, 32, 3))
    tensor = inner(L.Conv2D(32, 3, padding="same")(inputs))
    return keras.Model(inputs, L.Dense(5)(L.GlobalAveragePooling2D()(tensor)))


class Block(L.Layer):
    """A Transformer's block, without a `training` argument: its dropouts inherit it."""

    def __init__(self, **keywords):
        super().__init__(**keywords)
        self.attention, self.drop = L.MultiHeadAttention(2, 16, dropout=0.1), L.Dropout(0.1)
        self.before, self.after = L.LayerNormalization(), L.LayerNormalization()
        self.wide, self.narrow = L.Dense(128, "gelu"), L.Dense(32)

    def build(self, shape):
        self.attention.build(shape, shape)
        for layer in (self.before, self.after, self.wide):
            layer.build(shape)
        self.narrow.build((*shape[:-1], 128))

    def call(self, tensor):
        normal = self.before(tensor)
        tensor = tensor + self.drop(self.attention(normal, normal))
        return tensor + self.drop(self.narrow(self.wide(self.after(tensor))))


def transformer():
    inputs = keras.Input((128,), dtype="int32")
    tensor = L.Embedding(50, 32)(inputs)
    for at in range(4):
        tensor = Block(name=f"block{at}")(tensor)
    return keras.Model(inputs, L.Dense(5)(L.GlobalAveragePooling1D()(tensor)))


class Subclassed(keras.Model):
    def __init__(self):
        super().__init__()
        self.embedding, self.head = L.Embedding(50, 32), L.Dense(5)
        self.blocks = [Block(name=f"block{at}") for at in range(4)]

    def call(self, inputs, training=None):
        tensor = self.embedding(inputs)
        for block in self.blocks:
            tensor = (
                block(tensor, training=training) if block._call_has_training_arg else block(tensor)
            )
        return self.head(tf.reduce_mean(tensor, 1))


def subclassed():
    model = Subclassed()
    model(tf.zeros((2, 128), tf.int32))
    return model


def resnet50():
    return keras.applications.ResNet50(
        weights=None, input_shape=(64, 64, 3), classes=5, classifier_activation=None
    )


def mobilenet_v2():
    return keras.applications.MobileNetV2(
        weights=None, input_shape=(96, 96, 3), classes=5, classifier_activation=None
    )


def kerashub():
    import keras_hub

    backbone = keras_hub.models.BertBackbone(
        50, 4, 2, 32, 128, dropout=0.1, max_sequence_length=128
    )
    inputs = backbone.input
    return keras.Model(inputs, L.Dense(5)(backbone(inputs)["pooled_output"]))


EVERY = {"conv": 4, "mixed": 4, "mlp": 4, "nested": 4, "resnet50": 6, "mobilenet_v2": 9}
"""One cut in so many; of the others, every cut point."""
BATCH = {"resnet50": 8, "mobilenet_v2": 16}


def batches(model, name, steps):
    random = np.random.default_rng(0)
    for _ in range(steps):
        size = BATCH.get(name, 16)
        if name == "kerashub":
            x = {key: random.integers(0, 2, (size, 128)).astype("int32") for key in model.input}
        elif name in ("transformer", "subclassed"):
            x = random.integers(0, 50, (size, 128)).astype("int32")
        else:
            x = random.normal(size=(size, *model.input_shape[1:])).astype("float32")
        yield x, random.integers(0, 5, size)


def main(name, kind, steps="20", mode="graph"):
    if mode != "xla":
        tf.config.experimental.enable_op_determinism()
    keras.utils.set_random_seed(1)
    plain = globals()[name]()
    model = remat(plain, cut_points(plain)[:: EVERY.get(name, 1)]) if kind == "remat" else plain
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, jit_compile=mode == "xla", run_eagerly=mode == "eager")
    losses, times, peaks = [], [], []
    for x, y in batches(plain, name, int(steps)):
        tf.config.experimental.reset_memory_stats("CPU:0")
        start = time.perf_counter()
        losses.append(float(model.train_on_batch(x, y)))
        times.append(time.perf_counter() - start)
        peaks.append(tf.config.experimental.get_memory_info("CPU:0")["peak"])
    arrays = [np.asarray(variable) for variable in plain.variables]
    digests = [hashlib.sha256(array.tobytes()).hexdigest() for array in arrays if array.shape]
    step = sorted(times[2:])[len(times[2:]) // 2]
    print(
        "ANSWER "
        + json.dumps({"losses": losses, "variables": digests, "peak": min(peaks[2:]), "step": step})
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
