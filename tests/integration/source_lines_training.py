"""Trainings whose lines `test_source_lines.py` looks for by the names at their ends."""

import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tb_memplugin

L = keras.layers
BATCH = 16


class Block(L.Layer):  # type: ignore[misc]
    """A custom layer with two layers and an op of its own."""

    def __init__(self, units: int, **options: Any) -> None:
        super().__init__(name="block", **options)
        self.inner, self.outer = L.Dense(units, name="inner"), L.Dense(units, name="outer")

    def call(self, x: Any) -> Any:
        x = self.inner(x)  # inner
        if True:
            x = tf.math.softplus(x)  # softplus
        return self.outer(x)  # outer


def functional() -> Any:
    """A functional model with the custom layer."""
    inputs = keras.Input((32,))
    x = Block(64)(L.Dense(48, name="first")(inputs))  # made first
    return keras.Model(inputs, L.Dense(10, name="head")(x), name="model")


def data() -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    return random.random((128, 32), np.float32), random.integers(0, 10, 128)


def fit(directory: str, mode: str, source_lines: bool) -> list[float]:
    """`model.fit`: losses."""
    keras.utils.set_random_seed(3)
    model = functional()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    steps = 2 if mode == "steps" else 1
    model.compile(
        "adam",
        loss,
        run_eagerly=mode == "eager",
        jit_compile=mode == "xla",
        steps_per_execution=steps,
    )
    callback = tb_memplugin.MemoryCallback(
        directory,
        trace_steps=[4],
        source_lines=source_lines,
        keep_profile=source_lines and mode == "graph",
    )
    history = model.fit(*data(), BATCH, epochs=2, verbose=0, callbacks=[callback])  # fit
    callback.close()
    return [float(loss) for loss in history.history["loss"]]


def loop(directory: str, mode: str, source_lines: bool) -> list[float]:
    """A training loop: losses."""
    keras.utils.set_random_seed(3)
    model, optimizer = functional(), keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)

    def step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            logits = model(x, training=True)  # model
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits)  # loss
            loss = tf.reduce_mean(each)  # mean
        gradients = tape.gradient(loss, model.trainable_variables)  # gradient
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))  # update
        return loss

    run = step if mode == "eager" else tf.function(step, jit_compile=mode == "xla")
    losses = []
    x, y = data()
    with tb_memplugin.MemoryRecorder(
        directory, model, optimizer, trace_steps=[4], source_lines=source_lines
    ) as recorder:
        for number in range(8):
            rows = slice(number * BATCH, (number + 1) * BATCH)
            with recorder.step(number):
                losses.append(float(run(tf.constant(x[rows]), tf.constant(y[rows]))))
    return losses


class Huge(L.Layer):  # type: ignore[misc]
    """Needs more memory than there is."""

    def call(self, x: Any) -> Any:
        x = tf.reduce_sum(x, axis=-1, keepdims=True)
        return tf.tile(x, [1, 1 << 22])  # huge


def fail(directory: str, mode: str, source_lines: bool) -> list[float]:
    """A training that runs out of memory."""
    model = keras.Sequential([keras.Input((32,)), Huge(name="huge"), L.Dense(1, name="head")])
    model.compile("sgd", "mse", run_eagerly=mode == "eager")
    callback = tb_memplugin.MemoryCallback(directory, source_lines=source_lines)
    x, _ = data()
    try:
        model.fit(x, x[:, :1], BATCH, verbose=0, callbacks=[callback])
    except tf.errors.ResourceExhaustedError:
        callback.close()
        return []
    sys.exit("the training did not run out of memory")


TRAININGS = {"fit": fit, "loop": loop, "fail": fail}
