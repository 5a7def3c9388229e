"""Which eager tensors are input data: what iterators, training methods and outermost calls are given."""

import gc
import math
import time
import types
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tb_memplugin.recorder.watch import notes as noting
from tb_memplugin.recorder.watch import wrappers
from tb_memplugin.recorder.watch.batches import batch_notes
from tb_memplugin.recorder.watch.notes import InputNotes, input_notes, note_running_fit
from tb_memplugin.recorder.watch.wrappers import hooks


@pytest.fixture
def notes() -> InputNotes:
    notes = InputNotes()
    notes.active = True
    return notes


def eager(value: float = 1.0) -> Any:
    return tf.constant([value, value])


def fail() -> Any:
    raise RuntimeError


# --- notes ------------------------------------------------------------------------------------------------------------


def test_tensors_are_found_at_any_depth_and_not_kept_alive(notes: InputNotes) -> None:
    tensors = [eager(number) for number in range(5)]
    ragged = tf.RaggedTensor.from_row_lengths(eager(), [1, 1])
    notes.data([tensors[0], (tensors[1], {"a": tensors[2], "b": [tensors[3]]}), None, "text", np.ones(2), ragged])
    notes.data(tensors[4])
    assert all(notes.is_input(tensor) for tensor in (*tensors, ragged.values, ragged.row_splits))
    assert len(notes.tensors()) == 7
    assert not notes.is_input(eager())
    del tensors, ragged
    gc.collect()
    assert notes.tensors() == []


@pytest.mark.parametrize(
    ("values", "count"),
    [
        # What is in lists and dicts counts as well as these themselves.
        ([[eager()] for _ in range(50)], 2),
        ([[eager(), eager(), eager()] for _ in range(50)], 3),
        ({number: eager() for number in range(50)}, 4),
        ([eager() for _ in range(50)], 4),
        ([eager() for _ in range(4)], 4),
    ],
)
def test_no_more_values_of_a_call_are_examined_than_the_most(
    notes: InputNotes, monkeypatch: pytest.MonkeyPatch, values: Any, count: int
) -> None:
    monkeypatch.setattr(noting, "MAX_ITEMS", 5)
    notes.data(values)
    assert len(notes.tensors()) == count


def test_a_batch_ages_from_its_last_use_and_a_data_set_when_its_call_ends(notes: InputNotes) -> None:
    batch, data = eager(), eager()
    notes.data(batch)
    notes.data(data, math.inf)
    between = time.perf_counter()
    assert notes.is_input(batch) and not notes.is_input(batch, between)
    notes.arguments([batch, data])  # a step inside of `fit`
    assert notes.is_input(batch, between) and notes.is_input(data, math.inf)
    notes.data(data)
    assert not notes.is_input(data, math.inf)


def test_nothing_is_noted_while_notes_are_not_taken_or_values_cannot_be_examined(
    notes: InputNotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notes, "_tensorflow", fail)
    for made in (notes, InputNotes()):
        tensor = eager()
        made.data(tensor)
        assert made.tensors() == [] and made.begin() is None


def test_a_result_that_is_passed_on_stays_a_result(notes: InputNotes) -> None:
    data, result = eager(), eager()
    notes.arguments([data])
    notes.results([result, data])  # a call that returns its argument
    notes.arguments([data, result])
    assert notes.is_input(data) and not notes.is_input(result)
    # AND what an iterator gives is data in any case
    notes.data(result)
    assert notes.is_input(result)


def test_only_the_first_of_nested_calls_is_the_outermost(notes: InputNotes) -> None:
    assert [notes.begin(), notes.begin()] == [True, False]
    notes.end(False)
    notes.end(True)
    assert notes.begin() is True
    notes.end(True)
    notes.end(None)
    assert notes.begin() is True
    found: list[Any] = []
    tf.function(lambda: found.append(notes.begin()))()
    assert found == [None]  # it is traced


# --- wrapped methods --------------------------------------------------------------------------------------------------


@pytest.fixture
def observed(monkeypatch: pytest.MonkeyPatch) -> Iterator[InputNotes]:
    """The process's notes while its methods are wrapped."""
    monkeypatch.setattr(batch_notes, "failed", None)
    hooks.acquire()
    yield input_notes
    hooks.release()


def dense() -> Any:
    layer = keras.layers.Dense(2)
    layer.build((None, 2))
    return layer


@tf.function
def at_most_a_half(x: Any) -> None:
    tf.debugging.assert_less(x, 0.5)


def test_what_an_iterator_returns_is_data(observed: InputNotes) -> None:
    seen = [(observed.is_input(x), observed.is_input(y)) for x, y in tf.data.Dataset.from_tensors((eager(), eager()))]
    assert seen == [(True, True)]
    optional = iter(tf.data.Dataset.range(1)).get_next_as_optional()
    assert observed.is_input(optional.get_value())


def test_a_function_that_calls_layers_is_given_data_and_returns_results(observed: InputNotes) -> None:
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
    assert not observed.is_input(y) and observed.calls_layers(step) and not observed.calls_layers(other)


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
def test_the_batch_of_an_outermost_call_that_fails_is_noted(observed: InputNotes, handled: bool) -> None:
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


def test_functions_that_are_called_and_iterators_that_they_read_are_counted(
    observed: InputNotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[Any] = []
    counted: list[Any] = []
    monkeypatch.setattr(wrappers.program_counters.datasets, "iterated", noted.append)
    monkeypatch.setattr(wrappers.program_counters.functions, "called", lambda function, *_: counted.append(function))
    iterator, inner = iter(tf.data.Dataset.range(3)), tf.function(lambda x: x + 1)
    outer = tf.function(lambda source, other: (next(source), inner(other)))
    outer(iterator, eager())
    assert any(one is iterator for one in noted) and not any(hasattr(one, "numpy") for one in noted)
    # AND a function that is called while another one is traced does not count
    assert len(counted) == 1 and counted[0] is outer


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


@pytest.mark.parametrize("active", [False, True])
@pytest.mark.parametrize(
    ("wrapper", "counter"),
    [
        (wrappers.next_element, "datasets.iterated"),
        (wrappers.makes_model, "models.note"),
        (wrappers.takes_data, "models.note"),
    ],
)
def test_a_wrapper_counts_while_notes_are_taken(
    monkeypatch: pytest.MonkeyPatch, active: bool, wrapper: Any, counter: str
) -> None:
    counted: list[Any] = []
    owner, name = counter.split(".")
    monkeypatch.setattr(getattr(wrappers.program_counters, owner), name, counted.append)
    monkeypatch.setattr(input_notes, "active", active)
    made = InputNotes()  # any object
    wrapper(lambda self: None, made)
    assert [one is made for one in counted] == [True] * active


@pytest.mark.parametrize(("module", "found"), [("keras.src.trainers", True), ("tf_keras.engine", True), ("own", False)])
def test_the_data_of_a_fit_that_runs_is_noted(
    notes: InputNotes, monkeypatch: pytest.MonkeyPatch, module: str, found: bool
) -> None:
    monkeypatch.setattr(noting, "input_notes", notes)
    code = """
def fit(x, y=None, validation_data=None):
    other = x + 1
    note()
    return other

def train(x):
    note()
"""
    package = types.ModuleType(module)
    package.note = note_running_fit  # type: ignore[attr-defined]
    exec(code, vars(package))
    x, validation, z = eager(), (eager(), eager()), eager()
    other = package.fit(x, validation_data=validation)
    assert [notes.is_input(one) for one in (x, *validation, other)] == [found] * 3 + [False]
    package.train(z)
    assert not notes.is_input(z)
    # AND a stack that cannot be read changes nothing
    monkeypatch.setattr(noting, "running_functions", fail)
    note_running_fit()
