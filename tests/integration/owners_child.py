"""Records small programs whose bytes were without an owner, and prints for each its ledger and what it has to be.

Run as ``python owners_child.py DIRECTORY``, in a process of its own: the allocator is chosen when TensorFlow starts.
The truth is a formula: elements × size of the dtype.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tb_memplugin

L = keras.layers


def net(name: str) -> Any:
    return keras.Sequential([keras.Input((256,)), L.Dense(512, name="wide"), L.Dense(1, name="out")], name=name)


def record(name: str, model: Any, step: Callable[[], Any]) -> dict[str, Any]:
    """Categories and layers of the last traced step, its groups of tensors, and the bytes saved."""
    with tb_memplugin.MemoryRecorder(os.path.join(sys.argv[1], name), model=model, trace_steps=[2, 3]) as recorder:
        for number in range(5):
            with recorder.step(number):
                step()
    snapshot = tb_memplugin.load(sys.argv[1])[name].snapshots[-1]
    rows = [(row.layer, row.category, row.bytes) for row in snapshot.ledger]
    groups = [(group.held_by, group.category, group.bytes, group.line is not None) for group in snapshot.held_tensors]
    assert sum(size for *_, size in rows) == snapshot.in_use_bytes
    weights = sum(
        size for layer, category, size in rows if category == "weights" and (layer or "").startswith(f"{name}/")
    )
    assert weights == 4 * model.count_params()
    return {"rows": rows, "groups": groups, "saved": sum(row.bytes for row in snapshot.saved_for_backward)}


def update(model: Any, gradients: Any) -> None:
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        variable.assign_sub(0.01 * gradient)


def buffer() -> Any:
    model, rows = net("buffer"), tf.Variable(tf.zeros((20_000, 256)), name="replay")

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(tf.gather(rows, tf.range(32))) ** 2)
        update(model, tape.gradient(loss, model.trainable_variables))

    def whole() -> None:
        rows.scatter_nd_update([[3]], [np.ones(256, np.float32)])
        step()

    return record("buffer", model, whole)


def constants() -> Any:
    model, matrix = net("constants"), np.ones((128, 256), np.float32)

    @tf.function
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(tf.random.normal((32, 128)) @ matrix) ** 2)
        update(model, tape.gradient(loss, model.trainable_variables))

    return record("constants", model, step)


def penalty() -> Any:
    model = keras.Sequential([keras.Input((64,)), L.Dense(512, "tanh", name="a"), L.Dense(1, name="b")], name="penalty")

    @tf.function
    def step() -> Any:
        x = tf.random.normal((32, 64))
        with tf.GradientTape() as tape:
            with tf.GradientTape() as inner:
                inner.watch(x)
                score = model(x)
            loss = tf.reduce_mean(inner.gradient(score, x) ** 2)
        kernel = model.layers[0].kernel
        kernel.assign_sub(0.01 * tape.gradient(loss, kernel.value))

    return record("penalty", model, step)


def examples() -> Any:
    model = net("examples")

    def gradients(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(x[None]) ** 2)
        return tape.gradient(loss, model.trainable_variables)

    @tf.function
    def step() -> Any:
        per_example = tf.vectorized_map(gradients, tf.random.normal((16, 256)))
        update(model, [tf.reduce_mean(tf.abs(one) * one, 0) for one in per_example])

    return record("examples", model, step)


def loop() -> Any:
    """An eager loop that keeps its last gradients in a variable."""
    model, kept, optimizer = net("loop"), {}, keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)
    x = tf.ones((8, 256))

    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x) ** 2)
        kept["gradients"] = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(kept["gradients"], model.trainable_variables)

    return record("loop", model, step)


if __name__ == "__main__":
    print("ANSWER " + json.dumps({one.__name__: one() for one in (buffer, constants, penalty, examples, loop)}))
