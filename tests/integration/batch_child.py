"""Feeds a step in several ways, each recorded into a run of its own below a directory.

usage: python batch_child.py DIRECTORY
"""

import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tb_memplugin


def r(*shape: int) -> Any:
    return tf.constant(np.random.rand(*shape).astype("float32"))


rows = (np.random.rand(400, 32).astype("float32"), np.random.rand(400, 4).astype("float32"))
data = (
    tf.data.Dataset.from_tensor_slices(rows)
    .repeat()
    .batch(32)
    .map(lambda x, y: (2 * x, y))
    .prefetch(1)
)
iterator = iter(data)
model = keras.Sequential([keras.Input((32,)), keras.layers.Dense(4)])
optimizer = keras.optimizers.SGD(0.01)
optimizer.build(model.trainable_variables)


def learn(x: Any, y: Any) -> None:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x) - y) ** 2)
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)


learn_pairs = tf.function(learn)


@tf.function
def learn_boxes(x: Any, boxes: Any) -> None:
    learn(x, tf.stack([tf.reduce_mean(box, 0) for box in boxes]))


@tf.function
def learn_rollout(x: Any, y: Any) -> None:
    learn(tf.reshape(x, (-1, 32)), tf.reshape(y, (-1, 4)))


@tf.function
def learn_three() -> None:
    for x, y in data.take(3):
        learn(x, y)


@tf.function
def learn_next(iterator: Any) -> None:
    for _ in tf.range(3):
        x, y = next(iterator)
        learn(x, y)


@tf.function
def learn_state(state: Any) -> None:
    learn(state[None], tf.zeros((1, 4)))


def learn_each(*sizes: int) -> None:
    for size in sizes:
        learn_pairs(r(size, 32), r(size, 4))


def rollout() -> None:
    learn_rollout(r(20, 64, 32), r(20, 64, 4))


LOOPS: Any = {
    "policy": (lambda: (model(r(1, 32)), learn_each(256)), {}, {}),
    "boxes": (lambda: learn_boxes(r(8, 32), [r(6, 4)] * 8), {}, {}),
    "rollout": (rollout, {}, {}),
    "named": (rollout, {"batch_size": 64}, {}),
    "step": (rollout, {}, {"batch_size": 32}),
    "closure": (learn_three, {}, {}),
    "iterator": (lambda: learn_next(iterator), {}, {}),
    "eager": (lambda: learn(r(16, 32), r(16, 4)), {}, {}),
    "micro": (lambda: learn_each(16, 16, 16), {}, {}),
    "state": (lambda: learn_state(r(32)), {}, {}),
    "two": (lambda: learn_each(16, 24), {}, {}),
}
for name, (step, of_recorder, of_step) in LOOPS.items():
    directory = f"{sys.argv[1]}/{name}"
    with tb_memplugin.MemoryRecorder(
        directory, model, optimizer, trace_steps=[2], **of_recorder
    ) as recorder:
        for number in range(4):
            with recorder.step(number, **of_step):
                step()


class Batches(keras.utils.PyDataset):  # type: ignore[misc]
    """Batches whose size the data does not state, of rows or of unions of graphs."""

    def __init__(self, graphs: int = 0) -> None:
        super().__init__()
        self._graphs = graphs

    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int) -> Any:
        nodes = 24 if not self._graphs else 41 + number
        graphs = self._graphs or nodes
        owners = np.sort(np.arange(nodes) % graphs).astype("int32")
        return (np.ones((nodes, 32), "float32"), owners), np.ones((graphs, 4), "float32")


class Own(keras.Model):  # type: ignore[misc]
    """Trains with a step of its own, on sums over the nodes of each graph."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes, self.graphs = keras.layers.Dense(64), keras.layers.Dense(4)

    def call(self, inputs: Any) -> Any:
        values, owners = inputs
        return self.graphs(tf.math.segment_sum(self.nodes(values), owners))

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((self(x) - y) ** 2)
        self.optimizer.apply(
            tape.gradient(loss, self.trainable_variables), self.trainable_variables
        )
        return {"loss": loss}


for name, graphs, named in (("rows", 0, None), ("graphs", 5, None), ("graphs_named", 5, 5)):
    own = Own()
    own.compile("sgd", jit_compile=False)
    callback = tb_memplugin.MemoryCallback(
        f"{sys.argv[1]}/{name}", trace_steps=[2], batch_size=named
    )
    own.fit(Batches(graphs), verbose=0, callbacks=[callback])
    callback.close()
print("ANSWER {}")
