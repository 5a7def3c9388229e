"""Trains one small model that holds tensors in some way, and prints what the run says of it.

Run as ``python held_child.py SCENARIO DIRECTORY``, in a process of its own: the allocator is chosen
when TensorFlow starts.
"""

import dataclasses
import json
import sys
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

import tb_memplugin

WIDTH, BATCH = 512, 256
history: list[Any] = []


def make_model() -> Any:
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(WIDTH, "tanh", name=f"hidden_{at}") for at in range(4)]
    return keras.Sequential([keras.Input((WIDTH,)), *layers], name="net")


def steps(directory: str, model: Any, action: Callable[[int], Any], count: int = 60) -> None:
    with tb_memplugin.MemoryRecorder(directory, model=model, trace_steps=[10, 30, 50]) as recorder:
        for step in range(count):
            with recorder.step(step):
                action(step)


def results_in_a_list(directory: str) -> None:
    """Results of an eager model, which have the shape of its outputs and of its inputs."""
    model, x = make_model(), tf.random.uniform([BATCH, WIDTH])
    steps(directory, model, lambda step: history.append(model(x)))


def fit_on_tensors(directory: str) -> None:
    """Data tensors that ``fit`` is given, and a callback that keeps a tensor of each step."""
    model = make_model()
    model.compile("sgd", "mse")
    data = [tf.random.uniform([60 * 32, WIDTH]) for _ in range(4)]

    class Keeper(keras.callbacks.Callback):
        def __init__(self) -> None:
            super().__init__()
            self.kept: list[Any] = []

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.kept.append(tf.random.uniform([BATCH, WIDTH]))

    recording = tb_memplugin.MemoryCallback(directory, trace_steps=[10, 30, 50])
    model.fit(
        data[0],
        data[1],
        validation_data=data[2:],
        batch_size=32,
        shuffle=False,
        verbose=0,
        callbacks=[Keeper(), recording],
    )


def loop(directory: str, dataset: Any, step_function: Callable[[Any], Any], model: Any) -> None:
    batches = iter(dataset)

    def step(number: int) -> None:
        held["batch"] = next(batches)
        step_function(held["batch"])

    held: dict[str, Any] = {}
    steps(directory, model, step)


def batch_of_a_loop(directory: str) -> None:
    """A batch from tensors that stays in a variable of the loop until the next one."""
    model, x = make_model(), tf.random.uniform([60 * BATCH, WIDTH])
    loop(directory, tf.data.Dataset.from_tensor_slices(x).batch(BATCH), tf.function(model), model)


def batches_of_a_dataset(directory: str) -> None:
    """Batches that are kept after their step; all but the last ones are held tensors."""
    model, x = make_model(), tf.random.uniform([60 * BATCH, WIDTH])
    batches, train = iter(tf.data.Dataset.from_tensor_slices(x).batch(BATCH)), tf.function(model)

    def step(_: int) -> None:
        history.append(next(batches))
        train(history[-1])

    steps(directory, model, step)


def captured_constant(directory: str) -> None:
    model, x = make_model(), tf.random.uniform([BATCH, WIDTH])
    table = tf.random.uniform([4 * BATCH, WIDTH])

    @tf.function
    def predict(x: Any) -> Any:
        return model(x) + table[:BATCH]

    steps(directory, model, lambda step: predict(x))


def tape(directory: str, eager: bool, persistent: bool, inside: bool = False) -> None:
    """A step with a tape, which computes gradients of two losses where it is persistent."""
    model, optimizer = make_model(), keras.optimizers.SGD(0.01)
    optimizer.build(model.trainable_variables)
    x = tf.random.uniform([8 * BATCH, WIDTH])

    def gradients(tape: Any, losses: list[Any]) -> Any:
        found = [tape.gradient(loss, model.trainable_variables) for loss in losses]
        return [tf.add_n(terms) for terms in zip(*found, strict=True)]

    def step(x: Any) -> None:
        with tf.GradientTape(persistent=persistent) as tape:
            result = model(x, training=True)
            losses = [tf.reduce_mean(result * result), tf.reduce_sum(result)][: 1 + persistent]
            found = gradients(tape, losses) if inside else None
        optimizer.apply(found or gradients(tape, losses), model.trainable_variables)

    run = step if eager else tf.function(step)
    with tb_memplugin.MemoryRecorder(
        directory, model=model, optimizer=optimizer, trace_steps=[1, 3]
    ) as recorder:
        for number in range(5):
            with recorder.step(number):
                run(x)


SCENARIOS: dict[str, Callable[[str], None]] = {
    "results_in_a_list": results_in_a_list,
    "fit_on_tensors": fit_on_tensors,
    "batch_of_a_loop": batch_of_a_loop,
    "batches_of_a_dataset": batches_of_a_dataset,
    "captured_constant": captured_constant,
    "tape_graph": lambda directory: tape(directory, eager=False, persistent=False),
    "persistent_eager": lambda directory: tape(directory, eager=True, persistent=True),
    "persistent_graph": lambda directory: tape(directory, eager=False, persistent=True),
    "persistent_inside": lambda directory: tape(
        directory, eager=False, persistent=True, inside=True
    ),
    "persistent_eager_inside": lambda directory: tape(
        directory, eager=True, persistent=True, inside=True
    ),
}


def main() -> None:
    SCENARIOS[sys.argv[1]](sys.argv[2])
    (run,) = tb_memplugin.load(sys.argv[2]).values()
    snapshots = []
    for snapshot in run.snapshots:
        categories: dict[str, int] = {}
        for row in snapshot.ledger:
            categories[row.category] = categories.get(row.category, 0) + row.bytes
        saved = sum(row.bytes for row in snapshot.saved_for_backward)
        held = [group for group in snapshot.held_tensors if group.category == "held_tensors"]
        groups = [dataclasses.asdict(group) for group in held]
        snapshots.append(
            {"step": snapshot.step, "categories": categories, "saved": saved, "groups": groups}
        )
    print(
        "ANSWER "
        + json.dumps(
            {
                "snapshots": snapshots,
                "findings": [one.sentence for one in run.findings],
                "notes": run.notes,
            }
        )
    )


main()
