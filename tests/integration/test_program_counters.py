"""What the counters know of real models, functions and datasets."""

import gc
import pathlib
import time
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from child import run_child

from tb_memplugin.recorder.heap import kept_objects, unreachable
from tb_memplugin.recorder.watch import hooks, input_notes, program_counters
from tb_memplugin.recorder.watch.counters import LiveModels, ProgramCounters
from tb_memplugin.recorder.watch.datasets import DataPipelines, DatasetCaches


def rows(count: int = 8) -> tf.data.Dataset:
    return tf.data.Dataset.range(count).map(lambda at: tf.fill((64, 4), tf.cast(at, tf.float32)))


@pytest.mark.parametrize(
    ("make", "caches", "size"),
    [
        (rows, 0, 0),
        (lambda: rows().cache(), 1, 1024),
        (lambda: rows().cache().batch(2), 1, 2048),
        (lambda: rows().batch(2).cache(), 1, 2048),
        (lambda: rows().batch(2).map(lambda x: x * 2).cache().prefetch(1), 1, 2048),
        (
            lambda: (
                rows().cache().shuffle(4).repeat().batch(3).map(lambda x: tf.cast(x, tf.float64))
            ),
            1,
            3 * 1024,
        ),
        (lambda: tf.data.Dataset.zip(rows().cache(), rows().cache()), 2, 2048),
        (lambda: rows().batch(2).cache().unbatch(), 1, None),
        (lambda: rows().cache().filter(lambda x: x[0, 0] > 0), 1, None),
        (lambda: tf.data.Dataset.from_tensors("a text").cache(), 1, None),
        (lambda: rows().cache("/tmp/a_cache_in_a_file_that_is_never_read"), 0, 0),
    ],
)
def test_the_bytes_that_a_cache_takes_for_each_batch(
    make: Callable[[], Any], caches: int, size: int | None
) -> None:
    known, dataset = DatasetCaches(), make()
    iterator = iter(dataset)
    known.iterated(iterator)
    known.iterated(iterator)
    assert known.now() == (caches, size)
    # A second epoch iterates over the same cache; nothing is kept alive.
    known.iterated(iter(dataset))
    assert known.now() == (caches, size)
    known.iterated(iter(rows().cache()))
    gc.collect()
    assert known.now() == (caches, size)


def make_model(compiled: bool = False) -> Any:
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4, name="dense")])
    if compiled:
        model.compile("adam", "mse")
        model.optimizer.build(model.trainable_variables)
    return model


WEIGHTS = 4 * (8 * 4 + 4)


def test_models_count_with_their_weights_and_slots() -> None:
    models = LiveModels()
    kept = [make_model(), make_model(compiled=True)]
    for model in kept:
        models.note(model)
        models.note(model)
    assert models.due_in() <= 0
    figures = models.figures()
    assert (
        models.built == 2 and figures["models_gone"] == {} and figures["slots_without_model"] == {}
    )
    count, size = figures["models_alive"]["CPU:0"]
    # Adam's slots are twice the weights; its step count and learning rate are scalars.
    assert count == 2 and 4 * WEIGHTS < size <= 4 * WEIGHTS + 16
    del kept[:], model
    gc.collect()
    assert models.due_in() <= 0
    figures = models.figures()
    assert models.built == 2 and figures["models_alive"] == {} and figures["models_gone"] == {}


def test_a_model_inside_another_one_is_no_model_of_its_own() -> None:
    models = LiveModels()
    backbone = make_model()
    models.note(backbone)
    models.figures()
    assert models.built == 1
    whole = keras.Sequential([keras.Input((8,)), backbone, keras.layers.Dense(2)])
    models.note(whole)
    figures = models.figures()
    assert models.built == 1 and figures["models_alive"] == {
        "CPU:0": (1, WEIGHTS + 4 * (4 * 2 + 2))
    }
    # AND neither is the inner model of a sequential one that is noted later
    models, model = LiveModels(), make_model()
    models.note(model)
    models.figures()
    models.note(model._functional)
    figures = models.figures()
    assert models.built == 1 and figures["models_alive"] == {"CPU:0": (1, WEIGHTS)}


def test_variables_that_outlive_their_model_are_counted() -> None:
    models = LiveModels()
    model = make_model(compiled=True)
    models.note(model)
    models.figures()
    optimizer = model.optimizer
    del model
    gc.collect()
    figures = models.figures()
    # The optimizer refers to the weights as well.
    assert (
        figures["models_alive"] == {}
        and figures["models_gone"]["CPU:0"][0] == figures["slots_without_model"]["CPU:0"][0] == 1
    )
    assert (
        figures["models_gone"]["CPU:0"][1] - figures["slots_without_model"]["CPU:0"][1] == WEIGHTS
    )
    del optimizer
    gc.collect()
    assert models.figures()["models_gone"] == {}


def test_the_optimizer_of_a_custom_loop_belongs_to_the_model_that_it_updates() -> None:
    models = LiveModels()
    model, optimizer = make_model(), keras.optimizers.SGD(momentum=0.9)
    models.note(model)
    assert models.figures()["models_alive"] == {"CPU:0": (1, WEIGHTS)}
    optimizer.apply(
        [np.zeros(weight.shape, "float32") for weight in model.trainable_variables],
        model.trainable_variables,
    )
    models.applied(optimizer)
    assert models.due_in() <= 0
    size = models.figures()["models_alive"]["CPU:0"][1]
    assert 2 * WEIGHTS < size <= 2 * WEIGHTS + 16


def test_a_model_that_is_not_built_is_counted_when_it_is() -> None:
    models = LiveModels()
    model = keras.Sequential([keras.layers.Dense(4)])
    models.note(model)
    figures = models.figures()
    assert models.built == 0 and figures["models_alive"] == {}
    model(np.ones((1, 8), "float32"))
    assert models.figures()["models_alive"] == {"CPU:0": (1, WEIGHTS)}


def kept_by(counters: ProgramCounters, kind: str) -> dict[str, tuple[int, int | None]]:
    found = kept_objects(counters.kept_kind, counters.kept_bytes, seconds=5.0)
    return {one.holder: (one.number, one.size) for one in found if one.kind == kind}


def kept_histories(counters: ProgramCounters) -> dict[str, tuple[int, int | None]]:
    histories, last = [], make_model()
    for _ in range(3):
        history, model = keras.callbacks.History(), make_model(compiled=True)
        history.set_model(model)
        histories.append(history)
        counters.models.note(model)
    del model, history
    counters.models.note(last)
    counters.values()
    return kept_by(counters, "kept_models")


def test_earlier_models_have_the_list_that_keeps_their_histories() -> None:
    ((holder, kept),) = kept_histories(ProgramCounters()).items()
    name = "attribute `_model` of History in list `histories` in kept_histories() in "
    assert holder.startswith(name)
    # Weights and Adam's slots, beside a step count of 8 bytes and a learning rate of 4.
    assert kept == (3, 3 * (3 * WEIGHTS + 12))


class Scores(keras.metrics.Metric):
    """Keeps all predictions of an epoch in a variable that grows."""

    def __init__(self) -> None:
        super().__init__(name="scores")
        self.kept = tf.Variable(tf.zeros((0, 4)), shape=(None, 4), trainable=False)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self.kept.assign(tf.concat([self.kept, y_pred], 0))

    def result(self) -> Any:
        return tf.reduce_mean(self.kept)


def sizes_of_kept_scores() -> list[tuple[int, int | None] | None]:
    counters, model, sizes = ProgramCounters(), make_model(), []
    model.compile("sgd", "mse", metrics=[Scores()])
    counters.models.note(model)
    for _ in range(2):
        model.train_on_batch(np.zeros((16, 8), "float32"), np.zeros((16, 4), "float32"))
        counters.values()
        sizes.append(kept_by(counters, "kept_tensors").get("attribute `kept` of Scores"))
    return sizes


def test_a_variable_of_a_metric_that_grows_has_its_present_size() -> None:
    # In a process of its own: what earlier tests left is not searched.
    told = run_child(
        "import test_program_counters as here\nanswer({'sizes': here.sizes_of_kept_scores()})"
    )
    batch = 16 * 4 * 4
    assert told["sizes"] == [[1, batch], [1, 2 * batch]]


def test_a_loaded_model_that_was_dropped_waits_for_the_garbage_collector(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tf.Module()
    module.weight = tf.Variable(tf.ones((64, 32)))
    module.serve = tf.function(lambda x: x @ module.weight)
    signature = module.serve.get_concrete_function(tf.TensorSpec((None, 64)))
    tf.saved_model.save(module, str(tmp_path), signatures={"serve": signature})
    monkeypatch.setattr(program_counters, "models", models := LiveModels())
    monkeypatch.setattr(input_notes, "active", True)
    hooks.acquire()
    gc.disable()
    try:
        for _ in range(3):
            served = tf.saved_model.load(str(tmp_path))
            served.signatures["serve"](tf.ones((2, 64)))
        models.figures()
        models.find_unreachable(0.005, unreachable)
        figures = models.figures()
    finally:
        gc.enable()
        hooks.release()
    size = 4 * 64 * 32
    assert models.built == 3 and figures["models_alive"]["CPU:0"] == (1, size)
    assert figures["models_unreachable"]["CPU:0"] == (2, 2 * size) and not figures["models_gone"]
    # THEN that is what the collector frees
    gc.collect()
    figures = models.figures()
    assert figures["models_alive"]["CPU:0"] == (1, size) and not figures["models_unreachable"]
    assert float(served.weight[0, 0]) == 1.0


def test_the_stages_of_a_pipeline_have_the_batches_that_are_ready() -> None:
    pipelines = DataPipelines()
    pipelines.active = True
    iterator = iter(rows(640).batch(8).prefetch(5))
    next(iterator)
    pipelines.note(iterator)
    for _ in range(200):  # until the buffer is full
        stages = pipelines.stages()
        if stages and stages[0][1] == 5:
            break
        time.sleep(0.05)
    name, count, size = stages[0]
    assert (name, count) == ("prefetch(5)", 5) and size >= 5 * 8 * 64 * 4 * 4
