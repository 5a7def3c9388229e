"""The batch of a step, from its call, an iterator's specification or Keras's count; and bytes in buffers."""

import threading
import types
import weakref
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.distribute.values import PerReplica

from tb_memplugin.recorder.watch import batches, data_pipelines, hooks, running_batch
from tb_memplugin.recorder.watch.batches import BatchNotes, DataPipelines, FunctionInputs
from tb_memplugin.schema import BatchFacts

FLOAT = "float32"


def window(*models: Any) -> BatchNotes:
    notes = BatchNotes()
    notes.begin(models)
    return notes


def facts_of(values: Any) -> BatchFacts:
    """What a window knows in which a call was given some values."""
    notes = window()
    notes.given(values)
    return notes.end()


def pairs(size: int, remainder: bool = False) -> Any:
    x, y = np.ones((10, 3), np.float32), np.ones(10, np.int64)
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(size, drop_remainder=remainder)


class Broken:
    @property
    def shape(self) -> Any:
        raise RuntimeError


BROKEN = Broken()


@pytest.mark.parametrize(
    ("values", "size", "components"),
    [
        ([(tf.ones((8, 3)),), {}], 8, [((8, 3), FLOAT)]),
        ([(tf.ones((8, 3)), tf.ones((8,), tf.int32)), {}], 8, [((8, 3), FLOAT), ((8,), "int32")]),
        ([(), {"x": np.ones((5, 2), np.float16)}], 5, [((5, 2), "float16")]),
        # If a layer's arguments differ, its first one is the input.
        ([(tf.ones((2, 3)), tf.ones((8, 3)))], 2, [((2, 3), FLOAT), ((8, 3), FLOAT)]),
        ([({"a": tf.ones((2, 3)), "b": tf.ones((8, 3))},)], None, [((2, 3), FLOAT), ((8, 3), FLOAT)]),
        # Neither scalars nor variables nor other objects belong to it, nor what cannot be read.
        ([(tf.constant(1.0), tf.Variable(tf.ones(7)), "x", None, object(), 5, BROKEN), {}], None, []),
        ([(tf.ones((0, 3)),)], None, [((0, 3), FLOAT)]),
        ([(tf.ones((2, 1)), BROKEN)], 2, [((2, 1), FLOAT)]),
        # Replicas have their parts.
        *(
            ([(PerReplica((tf.ones((8, 3)), tf.ones((of, 3)))),), {}], size, [((8, 3), FLOAT), ((of, 3), FLOAT)])
            for of, size in ((8, 8), (7, None))
        ),
        # A specification of unknown rank is left out.
        ([tf.data.Dataset.from_generator(list, output_signature=tf.TensorSpec(None, tf.float32))], None, []),
        # No more than a hundred tensors are examined.
        ([[tf.ones(2)] * 150], 2, [((2,), FLOAT)] * 100),
    ],
)
def test_a_batch_is_what_the_call_was_given(values: Any, size: int | None, components: Any) -> None:
    assert facts_of(values) == BatchFacts(size, tuple(components))


@pytest.mark.parametrize("iterates", [False, True])
@pytest.mark.parametrize(("remainder", "first"), [(False, -1), (True, 4)])
def test_an_iterator_gives_what_its_data_set_makes(iterates: bool, remainder: bool, first: int) -> None:
    data = pairs(4, remainder)
    expected = (((first, 3), FLOAT), ((first,), "int64"))
    assert facts_of([(iter(data) if iterates else data,), {}]) == BatchFacts(4, expected)


def test_the_calls_of_a_window_must_agree_and_none_outside_of_it_counts() -> None:
    notes = BatchNotes()
    notes.given([(tf.ones((2, 1)),), {}])
    for sizes, expected in (((3, 3), 3), ((3, 4), None), ((), None)):
        notes.begin([])
        notes.given([(), {}])
        for size in sizes:
            notes.given([(tf.ones((size, 1)),), {}])
        assert notes.end().size == expected and not notes.active


def test_the_call_that_takes_gradients_counts_and_a_size_that_the_program_names_is_believed() -> None:
    notes = window()
    notes.given([(tf.ones((1, 3)),), {}])  # a policy acts
    with tf.GradientTape():
        notes.given([(tf.ones((9, 3)),), {}])
    assert notes.end() == BatchFacts(9, (((9, 3), FLOAT),))
    assert notes.end(64) == BatchFacts(64, (((9, 3), FLOAT),))


ROLLOUT = (tf.ones((20, 64, 32)), tf.ones((20, 64, 4)))
BOXES = (tf.ones((8, 32, 32, 3)), [tf.ones((6, 4))] * 8)


@pytest.mark.parametrize(
    ("values", "inputs", "size"),
    [
        (BOXES, [(8, 32, 32, 3)], 8),
        (BOXES, [], None),
        # Patches of images, and a table beside the batch.
        ((tf.ones((8, 32, 32, 3)), tf.ones(8)), [(8 * 64, 48)], 8),
        ((tf.ones((8, 32)), tf.ones(4)), [(8, 32), (3, 32)], 8),
        # Either of joined dimensions may be the batch; a label for each sequence says which one it is.
        (ROLLOUT, [(1280, 32)], None),
        (ROLLOUT, [(20, 64, 32)], 20),
        ((tf.ones((20, 64, 32)), tf.ones(20)), [(1280, 32)], 20),
    ],
)
def test_a_function_has_the_batch_that_its_model_is_given(values: Any, inputs: Any, size: int | None) -> None:
    notes, known = window(), FunctionInputs()
    known.model_inputs.update(inputs)
    notes.given([values, {}], tf.function(lambda: None), known)
    assert notes.end().size == size


def test_a_data_set_decides_between_candidates() -> None:
    notes, known, data = BatchNotes(), FunctionInputs(), iter(pairs(4))
    known.model_inputs.add((12, 1))
    notes.iterated(data)
    for size, expected in ((4, 4), (5, None)):
        notes.begin([])
        notes.given([(tf.ones((size, 3, 1)),), {}], tf.function(lambda: None), known)
        known.model_inputs.add((15, 1))
        assert notes.end().size == expected


def model(kind: Any = keras.Sequential, **compiled: Any) -> Any:
    made = kind([keras.Input((3,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse", run_eagerly=True, **compiled)
    return made


class Own(keras.Sequential):  # type: ignore[misc]
    """A model whose own step may count something else."""

    def train_step(self, data: Any) -> Any:
        return {}


@pytest.mark.parametrize(
    ("kind", "executions", "replicas", "given", "examples", "size"),
    [
        (keras.Sequential, 1, 1, pairs(4), 6.0, 6),
        (keras.Sequential, 2, 1, pairs(4), 6.0, 3),
        (keras.Sequential, 1, 3, None, 6.0, 2),
        (keras.Sequential, 1, 1, (tf.ones((9, 3)),), 6.0, 9),  # a known size is not counted
        (Own, 1, 1, None, 6.0, None),
        *((keras.Sequential, 2, 1, None, examples, None) for examples in (0.0, 5.0, -4.0)),
    ],
)
def test_an_open_batch_is_as_large_as_keras_counts(kind, executions, replicas, given, examples, size) -> None:
    trained = model(kind, steps_per_execution=executions)
    trained._distribute_strategy = SimpleNamespace(num_replicas_in_sync=replicas)
    trained._loss_tracker.count.assign(10.0)
    notes = window(model(), trained, keras.Sequential(), type("Other", (), {})())
    if given is not None:
        notes.given([given])
    trained._loss_tracker.count.assign_add(examples)
    assert notes.end().size == size


KERAS = "keras.src.trainer"


def running(module: str, size: Any, call: Any, end: int = 0, **says: Any) -> Any:
    """Call a function below a method that trains on data with a batch size, in the first of two steps."""
    package = types.ModuleType(module)
    package.call = call  # type: ignore[attr-defined]
    exec("def fit(epoch_iterator, end_step):\n    return call()\n", vars(package))
    adapter = None if size is None else SimpleNamespace(batch_size=size, **says)
    return package.fit(SimpleNamespace(data_adapter=adapter, num_batches=2), end)


@pytest.mark.parametrize(
    ("module", "given", "end", "says", "size"),
    [
        (KERAS, 32, 0, {}, 32),
        *((KERAS, given, 0, {}, None) for given in (0, "32", None)),
        ("own", 32, 0, {}, None),
        # The last batch may be smaller.
        (KERAS, 32, 1, {"has_partial_batch": True, "partial_batch_size": 7}, 7),
        (KERAS, 32, 0, {"has_partial_batch": True, "partial_batch_size": 7}, 32),
        (KERAS, 32, 1, {"has_partial_batch": False}, 32),
        (KERAS, 32, 1, {"has_partial_batch": None, "partial_batch_size": None}, None),
        # Keras looks at the first batches of a generator.
        (KERAS, 0, 0, {"_first_batches": [(np.ones((6, 3)), np.ones(6))]}, 6),
    ],
)
def test_the_batch_of_a_training_method_is_that_of_its_data(module, given, end, says, size) -> None:
    thread = threading.get_ident()
    assert running(module, given, lambda: running_batch(thread), end, **says) == BatchFacts(size)
    assert running_batch(thread) == BatchFacts()


def test_a_failed_call_has_the_batch_that_it_was_given_or_that_of_its_training() -> None:
    notes = BatchNotes()
    notes.given([(tf.ones((9, 3)),), {}], failed=True)
    assert notes.failed == BatchFacts(9, (((9, 3), FLOAT),))
    running(KERAS, 32, lambda: notes.given([(pairs(4),), {}], failed=True))
    assert notes.failed == BatchFacts(32, (((-1, 3), FLOAT), ((-1,), "int64")))
    running(KERAS, 32, lambda: notes.given([(tf.ones((9, 3)),), {}], failed=True))
    assert notes.failed is not None and notes.failed.size == 9


@pytest.fixture
def pipelines() -> DataPipelines:
    made = DataPipelines()
    made.active = True
    return made


def cached() -> Any:
    """A dataset that caches four batches of 1 KiB."""
    return tf.data.Dataset.from_tensor_slices(np.zeros((4, 256), np.float32)).cache()


def test_a_full_cache_has_the_bytes_of_its_elements(pipelines: DataPipelines) -> None:
    iterator = iter(cached())
    pipelines.note(iterator)
    assert pipelines.buffered_bytes() == 0
    list(iterator)
    found = pipelines.buffered_bytes()
    assert found is not None and 4096 <= found < 4096 + 512  # and what describes them


def test_without_iterators_or_with_too_many_the_bytes_are_unknown(pipelines, monkeypatch) -> None:
    assert pipelines.buffered_bytes() is None
    iterators = [iter(cached()) for _ in range(2)]
    for iterator in iterators:
        pipelines.note(iterator)
    monkeypatch.setattr(batches, "MAX_ITERATORS", 2)
    assert pipelines.buffered_bytes() == 0
    monkeypatch.setattr(batches, "MAX_ITERATORS", 1)
    assert pipelines.buffered_bytes() is None
    # AND iterators that are gone do not count
    del iterator, iterators[1]
    assert pipelines.buffered_bytes() == 0


def test_a_cache_that_iterators_share_counts_once_and_without_a_model_nothing_is_known(pipelines) -> None:
    data = cached()
    iterators = [iter(data) for _ in range(2)]
    for iterator in iterators:
        pipelines.note(iterator)
        list(iterator)
    found = pipelines.buffered_bytes()
    assert found is not None and 4096 <= found < 2 * 4096
    options = tf.data.Options()
    options.autotune.enabled = False
    iterators.append(iter(data.with_options(options)))
    pipelines.note(iterators[-1])
    assert pipelines.buffered_bytes() is None


def test_iterators_are_noted_as_they_are_made_eagerly_and_a_fault_stops_only_the_notes(monkeypatch) -> None:
    data, found = cached(), []

    @tf.function
    def step() -> Any:
        inside = iter(data)
        found.append(data_pipelines.buffered_bytes())
        return next(inside)

    hooks.acquire()
    try:
        monkeypatch.setattr(data_pipelines, "_iterators", weakref.WeakValueDictionary())
        iterator = iter(data)
        step()
        assert found == [None] and list(data_pipelines._iterators.values()) == [iterator]
        monkeypatch.setattr(data_pipelines, "note", None)
        assert next(iter(data)) is not None and not data_pipelines.active
    finally:
        hooks.release()
