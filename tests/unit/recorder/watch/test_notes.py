"""What is noted of calls of layers, tapes and optimizers, traced and eager, and which eager tensors
are input data."""

import contextlib
import gc
import math
import operator
import threading
import time
import types
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.distribute.values import PerReplica

from tb_memplugin.recorder.base import (
    ByIdentity,
)
from tb_memplugin.recorder.watch import (
    batch_notes,
    call_notes,
    data_pipelines,
    datasets,
    hooks,
    note_running_fit,
    running_batch,
)
from tb_memplugin.recorder.watch import notes as noting
from tb_memplugin.recorder.watch.batches import BatchNotes, FunctionInputs
from tb_memplugin.recorder.watch.datasets import DataPipelines
from tb_memplugin.recorder.watch.notes import CallNotes, InputNotes, input_notes
from tb_memplugin.schema import BatchFacts

X = tf.ones((4, 3))


@pytest.fixture(autouse=True)
def observed(monkeypatch: pytest.MonkeyPatch) -> Iterator[InputNotes]:
    """The process's notes while its methods are wrapped."""
    monkeypatch.setattr(batch_notes, "failed", None)
    hooks.acquire()
    yield input_notes
    hooks.release()


def fail() -> Any:
    raise RuntimeError


@pytest.fixture
def window(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the spans on the profile's timeline while a window is open."""
    names: list[str] = []

    @contextlib.contextmanager
    def trace(name: str) -> Iterator[None]:
        names.append(name.removeprefix("tb_memplugin/layer:"))
        yield
        names.append("end")

    monkeypatch.setattr(tf.profiler.experimental, "Trace", trace)
    monkeypatch.setattr(call_notes, "eager_paths", {})
    monkeypatch.setattr(call_notes, "eager_gradients", [])
    return names


def dense(features: int = 2) -> Any:
    layer = keras.layers.Dense(2)
    layer.build((None, features))
    return layer


def traced(function: Any) -> tuple[Any, Any]:
    """The concrete function and the notes on its graph."""
    concrete = tf.function(function).get_concrete_function()
    return concrete, call_notes.graphs.get(concrete.graph)


def test_gradients_are_noted_with_their_variables() -> None:
    layer, table = dense(3), tf.Variable(tf.ones((5, 2)))

    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, [1, 1])) + 0 * tf.reduce_sum(layer.bias.value)
        tape.gradient(loss, {"b": layer.kernel.value, "a": (table, layer.bias.value)})
        return loss

    concrete, notes = traced(step)
    names = [
        (reference() is table, reference() is layer.bias.value)
        for _, _, reference in notes.gradients
    ]
    # THEN a sparse one has two tensors, and a missing one none
    assert names == [(True, False), (True, False), (False, True)]
    assert all(
        name in {op.name for op in concrete.graph.get_operations()}
        for name, _, _ in notes.gradients
    )


@pytest.mark.parametrize("given", [True, False])
def test_an_optimizer_reads_generators_once(given: bool) -> None:
    layer, optimizer = dense(3), keras.optimizers.SGD(1.0)
    variables = layer.trainable_variables
    optimizer.build(variables)

    def step() -> None:
        optimizer.apply(
            (tf.ones(one.shape) for one in variables), (one for one in variables) if given else None
        )

    before = layer.kernel.numpy()
    concrete, notes = traced(step)
    concrete()
    np.testing.assert_allclose(layer.kernel.numpy(), before - 1)
    noted = [reference() for _, _, reference in notes.gradients]
    assert len(noted) == 2 and all(map(operator.is_, noted, variables))


def test_arguments_of_outermost_calls_are_data_and_their_results_are_not() -> None:
    class Named(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any, original: Any) -> Any:
            return x + original

    x, y = tf.ones((4, 3)), tf.ones((4, 3))
    result = Named()(x, original=y)  # an argument may have any name
    assert input_notes.is_input(x) and input_notes.is_input(y) and not input_notes.is_input(result)
    assert tf.function(lambda original: original + 1)(original=1) == 2


def test_eager_calls_are_spans_while_a_window_is_open(
    window: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer, lines = (
        keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]),
        iter(["train.py:7", None]),
    )
    monkeypatch.setattr(call_notes, "eager_paths", {id(layer): "net/outer"})
    layer(X)
    assert window == ["net/outer", "end"]  # and none of a layer that is not known
    # AND they have the user's line, if that is known
    monkeypatch.setattr(
        call_notes, "eager_lines", SimpleNamespace(calling=lambda layer: next(lines))
    )
    layer(X)
    layer(X)
    assert window[2:] == ["net/outer\x1ftrain.py:7", "end", "net/outer", "end"]


@pytest.mark.parametrize("persistent", [False, True])
def test_eager_backward_passes_and_updates_are_spans(window: list[str], persistent: bool) -> None:
    weight, optimizer = tf.Variable([1.0, 2.0]), keras.optimizers.SGD()
    with tf.GradientTape(persistent=persistent) as tape:
        loss = tf.reduce_sum(weight * weight)
    gradient = tape.gradient(loss, weight)
    assert len(window) == 2 and (window[0] == "(backward)") is not persistent
    # AND the gradient's place is noted
    ((address, size, reference),) = call_notes.eager_gradients  # type: ignore[misc]
    assert address == np.from_dlpack(gradient).ctypes.data and size == 8 and reference() is weight
    del window[:]
    kernel = keras.Variable(1.0)
    optimizer.build([kernel])
    optimizer.apply([tf.constant(1.0)], [kernel])
    assert window == ["(update)", "end"]


@pytest.fixture
def notes() -> InputNotes:
    notes = InputNotes()
    notes.active = True
    return notes


def eager(value: float = 1.0) -> Any:
    return tf.constant([value, value])


def test_tensors_are_found_at_any_depth_and_not_kept_alive(notes: InputNotes) -> None:
    tensors = [eager(number) for number in range(4)]
    ragged = tf.RaggedTensor.from_row_lengths(eager(), [1, 1])
    notes.data(
        [
            tensors[0],
            (tensors[1], {"a": tensors[2], "b": [tensors[3]]}),
            None,
            "text",
            np.ones(2),
            ragged,
        ]
    )
    assert all(notes.is_input(tensor) for tensor in (*tensors, ragged.values, ragged.row_splits))
    assert len(notes.tensors()) == 6 and not notes.is_input(eager())
    del tensors, ragged
    gc.collect()
    assert notes.tensors() == []


@pytest.mark.parametrize(
    ("values", "count"),  # what is in lists and dicts counts as well as these themselves
    [
        ([[eager()] for _ in range(50)], 2),
        ({number: eager() for number in range(50)}, 4),
        ([eager()] * 4, 1),
    ],
)
def test_no_more_values_of_a_call_are_examined_than_the_most(
    notes, monkeypatch, values, count
) -> None:
    monkeypatch.setattr(noting, "MAX_ITEMS", 5)
    notes.data(values)
    assert len(notes.tensors()) == count


def test_a_batch_ages_from_its_last_use_and_a_data_set_when_its_call_ends(
    notes: InputNotes,
) -> None:
    batch, data = eager(), eager()
    notes.data(batch)
    notes.data(data, math.inf)
    between = time.perf_counter()
    assert notes.is_input(batch) and not notes.is_input(batch, between)
    notes.data([batch, data], is_argument=True)  # a step inside of `fit`
    assert notes.is_input(batch, between) and notes.is_input(data, math.inf)
    notes.data(data)
    assert not notes.is_input(data, math.inf)


@tf.function
def at_most_a_half(x: Any) -> None:
    tf.debugging.assert_less(x, 0.5)


def test_what_an_iterator_returns_is_data(observed: InputNotes) -> None:
    seen = [
        (observed.is_input(x), observed.is_input(y))
        for x, y in tf.data.Dataset.from_tensors((eager(), eager()))
    ]
    assert seen == [(True, True)]
    optional = iter(tf.data.Dataset.range(1)).get_next_as_optional()
    assert observed.is_input(optional.get_value())


def test_a_function_that_calls_layers_is_given_data_and_returns_results(
    observed: InputNotes,
) -> None:
    layer = dense()
    step, other = tf.function(lambda x, scale: layer(x) * scale), tf.function(lambda x: x + 1)
    x, scale = tf.ones((4, 2)), tf.constant(3.0)
    for _ in range(2):  # as it is traced and afterwards
        result = step(x, scale=scale)
        assert observed.is_input(x) and observed.is_input(scale) and not observed.is_input(result)
    # AND its result is none when it is passed on
    step(result, scale)
    assert not observed.is_input(result)
    # AND one without layers is given none
    y = tf.ones((4, 2))
    other(y)
    assert (
        not observed.is_input(y)
        and observed.calls_layers(step)
        and not observed.calls_layers(other)
    )


def test_a_function_that_a_layer_calls_is_given_no_data(observed: InputNotes) -> None:
    inner = dense()
    step = tf.function(lambda x: inner(x))
    step(tf.ones((4, 2)))

    class Outer(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            self.between = x + 1
            return step(self.between)

    outer = Outer()
    x = tf.ones((4, 2))
    outer(x)
    assert observed.is_input(x) and not observed.is_input(outer.between)


@pytest.mark.parametrize("handled", [False, True])
def test_the_batch_of_an_outermost_call_that_fails_is_noted(
    observed: InputNotes, handled: bool
) -> None:
    class Careful(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            with pytest.raises(tf.errors.InvalidArgumentError):
                at_most_a_half(x)
            return x

    if handled:
        Careful()(tf.ones((7, 2)))
        assert batch_notes.failed is None
    else:
        with pytest.raises(tf.errors.InvalidArgumentError):
            at_most_a_half(tf.ones((7, 2)))
        assert batch_notes.failed is not None and batch_notes.failed.size == 7
    # AND the next call is an outermost one again
    assert observed.begin() is True
    observed.end(True)


@pytest.mark.parametrize("by_name", [False, True])
def test_what_training_methods_are_given_is_data(observed: InputNotes, by_name: bool) -> None:
    model = keras.Sequential([keras.Input((2,)), dense()])
    model.compile("sgd", "mse", run_eagerly=True)
    given = {"x": tf.ones((4, 2)), "y": tf.ones((4, 2)), "sample_weight": tf.ones(4)}
    model.train_on_batch(**given) if by_name else model.train_on_batch(*given.values())
    assert all(map(observed.is_input, given.values()))
    z = tf.ones((4, 2))
    model.predict_on_batch(z)
    assert observed.is_input(z)


@pytest.mark.parametrize(
    ("module", "found"), [("keras.src.trainers", True), ("tf_keras.engine", True), ("own", False)]
)
def test_the_data_of_a_fit_that_runs_is_noted(notes, monkeypatch, module, found) -> None:
    monkeypatch.setattr(noting, "input_notes", notes)
    package = types.ModuleType(module)
    package.note = note_running_fit  # type: ignore[attr-defined]
    exec(
        "def fit(x, y=None, validation_data=None):\n    other = x + 1\n    note()\n    "
        "return "
        "other\n",
        vars(package),
    )
    exec("def train(x):\n    note()\n", vars(package))
    x, validation, z = eager(), (eager(), eager()), eager()
    other = package.fit(x, validation_data=validation)
    assert [notes.is_input(one) for one in (x, *validation, other)] == [found] * 3 + [False]
    package.train(z)
    assert not notes.is_input(z)
    # AND a stack that cannot be read changes nothing
    monkeypatch.setattr(noting, "running_functions", fail)
    note_running_fit()


def test_a_forked_child_takes_no_more_notes_of_the_window() -> None:
    notes = CallNotes()
    notes.eager_paths, notes.eager_gradients = {1: "net"}, []
    held = notes._lock
    with held:  # by a thread that does not exist in the child
        notes.abandon()
        assert notes.notes(tf.Graph()).spans == []
    assert (notes.eager_paths, notes.eager_lines, notes.eager_gradients) == (None, None, None)


def test_notes_go_with_their_graph_and_a_call_that_fails_ends() -> None:
    layer = keras.Sequential([dense(3)])
    concrete, notes = traced(lambda: layer(X))
    call_notes.forget(concrete.graph)
    reference = weakref.ref(concrete.graph)
    assert concrete.graph not in call_notes.graphs and notes.spans
    del concrete
    gc.collect()
    assert reference() is None
    with pytest.raises(ValueError, match="x"):
        tf.function(lambda: layer(tf.ones((1, 1, 7))))()
    assert call_notes.of_thread.stack == []


FLOAT = "float32"


def batch_window(*models: Any) -> BatchNotes:
    notes = BatchNotes()
    notes.begin(models)
    return notes


def facts_of(values: Any) -> BatchFacts:
    """What a window knows in which a call was given some values."""
    notes = batch_window()
    notes.given(values)
    return notes.end()


def pairs(size: int, remainder: bool = False) -> Any:
    x, y = np.ones((10, 3), np.float32), np.ones(10, np.int64)
    return tf.data.Dataset.from_tensor_slices((x, y)).batch(size, drop_remainder=remainder)


BROKEN = type("Broken", (), {"shape": property(lambda self: fail())})()


@pytest.mark.parametrize(
    ("values", "size", "components"),
    [
        ([(tf.ones((8, 3)),), {}], 8, [((8, 3), FLOAT)]),
        ([(tf.ones((8, 3)), tf.ones((8,), tf.int32)), {}], 8, [((8, 3), FLOAT), ((8,), "int32")]),
        ([(), {"x": np.ones((5, 2), np.float16)}], 5, [((5, 2), "float16")]),
        # If a layer's arguments differ, its first one is the input.
        ([(tf.ones((2, 3)), tf.ones((8, 3)))], 2, [((2, 3), FLOAT), ((8, 3), FLOAT)]),
        (
            [({"a": tf.ones((2, 3)), "b": tf.ones((8, 3))},)],
            None,
            [((2, 3), FLOAT), ((8, 3), FLOAT)],
        ),
        # Neither scalars nor variables nor other objects belong to it, nor what cannot be read.
        (
            [(tf.constant(1.0), tf.Variable(tf.ones(7)), "x", None, object(), 5, BROKEN), {}],
            None,
            [],
        ),
        ([(tf.ones((0, 3)),)], None, [((0, 3), FLOAT)]),
        ([(tf.ones((2, 1)), BROKEN)], 2, [((2, 1), FLOAT)]),
        # Replicas have their parts.
        *(
            (
                [(PerReplica((tf.ones((8, 3)), tf.ones((of, 3)))),), {}],
                size,
                [((8, 3), FLOAT), ((of, 3), FLOAT)],
            )
            for of, size in ((8, 8), (7, None))
        ),
        # A specification of unknown rank is left out.
        (
            [
                tf.data.Dataset.from_generator(
                    list, output_signature=tf.TensorSpec(None, tf.float32)
                )
            ],
            None,
            [],
        ),
        # No more than a hundred tensors are examined.
        ([[tf.ones(2)] * 150], 2, [((2,), FLOAT)] * 100),
    ],
)
def test_a_batch_is_what_the_call_was_given(values: Any, size: int | None, components: Any) -> None:
    assert facts_of(values) == BatchFacts(size, tuple(components))


@pytest.mark.parametrize("iterates", [False, True])
@pytest.mark.parametrize(("remainder", "first"), [(False, -1), (True, 4)])
def test_an_iterator_gives_what_its_data_set_makes(
    iterates: bool, remainder: bool, first: int
) -> None:
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


def test_the_call_that_takes_gradients_counts_and_a_size_that_the_program_names_is_believed() -> (
    None
):
    notes = batch_window()
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
        # Either of joined dimensions may be the batch; a label for each sequence says which one it
        # is.
        (ROLLOUT, [(1280, 32)], None),
        (ROLLOUT, [(20, 64, 32)], 20),
        ((tf.ones((20, 64, 32)), tf.ones(20)), [(1280, 32)], 20),
        # The model is given one time step of all examples after the other, or both.
        (ROLLOUT, [(64, 32)], 64),
        ((tf.ones((16, 64, 32)),), [(64, 32)], None),
        # A state of 16 numbers is one example.
        ((tf.ones(16), tf.ones(16)), [(1, 16)], None),
    ],
)
def test_a_function_has_the_batch_that_its_model_is_given(
    values: Any, inputs: Any, size: int | None
) -> None:
    notes, known = batch_window(), FunctionInputs()
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
def test_an_open_batch_is_as_large_as_keras_counts(
    kind, executions, replicas, given, examples, size
) -> None:
    trained = model(kind, steps_per_execution=executions)
    trained._distribute_strategy = SimpleNamespace(num_replicas_in_sync=replicas)
    trained._loss_tracker.count.assign(10.0)
    notes = batch_window(model(), trained, keras.Sequential(), type("Other", (), {})())
    if given is not None:
        notes.given([given])
    trained._loss_tracker.count.assign_add(examples)
    assert notes.end().size == size


KERAS = "keras.src.trainer"


def running(module: str, size: Any, call: Any, end: int = 0, replicas: int = 1, **says: Any) -> Any:
    """Call a function below a method that trains on data with a batch size, in the first of two
    steps."""
    package = types.ModuleType(module)
    package.call = call  # type: ignore[attr-defined]
    exec("def fit(self, epoch_iterator, end_step):\n    return call()\n", vars(package))
    adapter = None if size is None else SimpleNamespace(batch_size=size, **says)
    strategy = SimpleNamespace(num_replicas_in_sync=replicas)
    trainer = SimpleNamespace(distribute_strategy=strategy)
    return package.fit(trainer, SimpleNamespace(data_adapter=adapter, num_batches=2), end)


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
        # Replicas share the batch.
        (KERAS, 32, 0, {"replicas": 4}, 8),
        (KERAS, 32, 1, {"replicas": 4, "has_partial_batch": True, "partial_batch_size": 7}, 2),
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


def test_without_iterators_or_with_too_many_the_bytes_are_unknown(pipelines, monkeypatch) -> None:
    assert pipelines.buffered_bytes() is None
    iterators = [iter(cached()) for _ in range(2)]
    for iterator in iterators:
        pipelines.note(iterator)
    monkeypatch.setattr(datasets, "MAX_ITERATORS", 2)
    assert pipelines.buffered_bytes() == 0
    monkeypatch.setattr(datasets, "MAX_ITERATORS", 1)
    assert pipelines.buffered_bytes() is None
    # AND iterators that are gone do not count
    del iterator, iterators[1]
    assert pipelines.buffered_bytes() == 0


def test_a_full_cache_counts_once_with_the_bytes_of_its_elements_but_not_without_a_model(
    pipelines,
) -> None:
    data, options, iterators = cached(), tf.data.Options(), []
    for _ in range(2):
        iterators.append(iter(data))
        pipelines.note(iterators[-1])
        if len(iterators) == 1:
            assert pipelines.buffered_bytes() == 0
        list(iterators[-1])
        found = pipelines.buffered_bytes()
        # and what describes them
        assert found is not None and 4096 <= found < 4096 + 512 * len(iterators)
    options.autotune.enabled = False
    iterators.append(iter(data.with_options(options)))
    pipelines.note(iterators[-1])
    assert pipelines.buffered_bytes() is None


def test_iterators_are_noted_as_they_are_made_eagerly_and_a_fault_stops_only_the_notes(
    monkeypatch,
) -> None:
    data, found = cached(), []

    @tf.function
    def step() -> Any:
        inside = iter(data)
        found.append(data_pipelines.buffered_bytes())
        return next(inside)

    monkeypatch.setattr(data_pipelines, "_iterators", ByIdentity())
    iterator = iter(data)
    step()
    assert found == [None] and list(data_pipelines._iterators) == [iterator]
    monkeypatch.setattr(data_pipelines, "note", None)
    assert next(iter(data)) is not None and not data_pipelines.active
