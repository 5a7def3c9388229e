"""Trains with a seeded leak, or without one, and prints the findings and the counters' last values.

Run as ``python leak_child.py DIRECTORY NAME…`` in a process of its own: the allocator is chosen
when TensorFlow starts.
"""

import collections
import functools
import gc
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tb_memplugin
from tb_memplugin.analysis import answers

STEPS = 2000
history: list[Any] = []
models: list[Any] = []
Action = Callable[[int], Any]


def make_model(width: int = 16, optimizer: str = "adam") -> Any:
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(width), keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    return model


def loop(
    directory: str, action: Action, steps: int, model: Any = None, traced: tuple[int, ...] = ()
) -> None:
    with tb_memplugin.MemoryRecorder(directory, model=model, trace_steps=list(traced)) as recorder:
        for step in range(steps):
            with recorder.step(step):
                action(step)


def held_tensors(directory: str) -> None:
    loop(
        directory,
        lambda step: history.append(tf.random.uniform([64, 1024])),
        60,
        make_model(),
        (20, 55),
    )


def kept_models(directory: str) -> None:
    """A new model at each step that a list keeps."""

    def build(step: int) -> None:
        model = make_model(8192)
        model.optimizer.build(model.trainable_variables)
        models.append(model)

    loop(directory, build, 60)


def rebuilt_models(directory: str) -> None:
    """A new model is trained at each step, and nothing in Python refers to the old ones."""
    x = np.ones((4, 8), "float32")

    def build(step: int) -> None:
        make_model(8192, "sgd").train_on_batch(x, x[:, :1])
        if not step % 8:
            gc.collect()

    loop(directory, build, 48)


def python_scalars(directory: str) -> None:
    weights = tf.Variable(tf.random.normal((64, 64)))

    @tf.function
    def scaled_step(x: Any, scale: int) -> Any:
        for _ in range(8):
            x = tf.tanh(x @ weights) * scale
        return x

    x = tf.ones((8, 64))
    loop(directory, lambda step: scaled_step(x, step), 100)


def changing_shapes(directory: str) -> None:
    weights = tf.Variable(tf.random.normal((64, 64)))

    @tf.function(jit_compile=True)
    def compiled_step(x: Any) -> Any:
        return tf.tanh(x @ weights)

    loop(directory, lambda step: compiled_step(tf.ones((8 + step, 64))), 60)


def without_autotuning() -> tf.data.Options:
    options = tf.data.Options()
    options.autotune.enabled = False
    return options


def dataset_cache(directory: str) -> None:
    """The cache of a dataset without an end, read by a loop that is held up now and then, as on a
    busy machine.

    Without autotuning, TensorFlow adds no prefetching: the cache is then as many batches ahead as
    the step asks for, however long the steps take.
    """
    rows = tf.data.Dataset.range(10**9).map(
        lambda at: tf.zeros((64, 256)) + tf.cast(at, tf.float32)
    )
    batches = iter(rows.cache().batch(2).with_options(without_autotuning()))

    def read(step: int) -> None:
        next(batches)
        if step >= 60 and step % 10 == 0:
            time.sleep(0.05)

    loop(directory, read, 120)


def fit(directory: str) -> None:
    x = np.ones((4 * 500, 8), "float32")
    make_model().fit(
        x,
        x[:, :1],
        batch_size=4,
        epochs=4,
        verbose=0,
        callbacks=[tb_memplugin.MemoryCallback(directory, overhead=0)],
    )


def custom_step() -> tuple[Any, Action]:
    model, optimizer = make_model(), keras.optimizers.Adam()
    optimizer.build(model.trainable_variables)

    @tf.function(reduce_retracing=True)
    def train_step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x, training=True) ** 2)
        optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
        return loss

    return model, train_step


def custom_loop(directory: str) -> None:
    model, train_step = custom_step()
    x = tf.ones((4, 8))
    losses: collections.deque[Any] = collections.deque(maxlen=10)
    loop(directory, lambda step: losses.append(train_step(x)), STEPS, model)


def evaluate_in_between(directory: str) -> None:
    x = np.ones((4 * 250, 8), "float32")
    model = make_model()
    callback = tb_memplugin.MemoryCallback(directory, overhead=0)
    for _ in range(8):
        model.fit(x, x[:, :1], batch_size=4, verbose=0, callbacks=[callback])
        model.evaluate(x[:100], x[:100, :1], batch_size=4, verbose=0, callbacks=[callback])


def varying_shapes(directory: str) -> None:
    model, train_step = custom_step()
    batches = [tf.ones((size, 8)) for size in range(1, 17)]
    loop(directory, lambda step: train_step(batches[step % 16]), STEPS, model)


def filled_cache(directory: str) -> None:
    """A cache that is full after 200 of 2,000 steps; without prefetched batches, as in
    `dataset_cache`."""
    model, train_step = custom_step()
    rows = tf.data.Dataset.range(400).map(lambda at: tf.zeros((512, 8)) + tf.cast(at, tf.float32))
    batches = rows.cache().repeat().batch(2).map(functools.partial(tf.reshape, shape=(1024, 8)))
    batches = iter(batches.with_options(without_autotuning()))
    loop(directory, lambda step: train_step(next(batches)), STEPS, model)


def main(directory: str, names: list[str]) -> None:
    told: dict[str, Any] = {}
    for name in names:
        globals()[name](f"{directory}/{name}")
        history.clear()
        models.clear()
        # what one training leaves to the garbage collector must not shrink in the next one
        gc.collect()
        run = tb_memplugin.load(directory)[name]
        last = {}
        for counters in run.counters:
            for kind, title, count in zip(
                counters.kind, counters.name, counters.count.tolist(), strict=True
            ):
                last[f"{kind} {title}" if title else kind] = count
        told[name] = {
            "findings": [one.sentence for one in run.findings],
            "growing": answers(run, "CPU:0")[1].sentence,
            "counters": last,
            "notes": list(run.notes),
            "in_use": [
                int(run.samples.devices["CPU:0"].in_use_bytes[at]) >> 10
                for at in (0, len(run.samples) // 2, -1)
            ],
        }
    print("ANSWER " + json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
