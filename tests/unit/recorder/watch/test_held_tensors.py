"""Which tensors Python holds beside the known variables, and what kind of data each is."""

import gc
import threading
import time
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tb_memplugin.recorder.base import Faults
from tb_memplugin.recorder.watch import HeldTensors, LayerWatch, hooks, input_notes
from tb_memplugin.schema import (
    DATA_SET,
    TensorFact,
)

CPU = "CPU:0"


def address_of(tensor: Any) -> int:
    return int(np.from_dlpack(tensor).ctypes.data)


def fact_of(facts: Any, tensor: Any) -> TensorFact | None:
    """The fact about a tensor by its address."""
    address = address_of(tensor)
    assert all(device == CPU for device, _ in facts)
    return next((fact for _, fact in facts if fact.address == address), None)


kept: list[Any] = []


def make(*shape: int) -> Any:
    """A tensor in memory of its own, which the program can reach."""
    kept.append(tf.ones(shape) * 3)
    return kept[-1]


@pytest.fixture(autouse=True)
def clear_kept() -> Iterator[None]:
    yield
    kept.clear()


@pytest.fixture
def notes() -> Iterator[None]:
    hooks.acquire()
    yield
    hooks.release()


def test_a_tensor_has_its_kind_size_shape_and_place() -> None:
    tensor = make(5, 7)
    fact = fact_of(HeldTensors().find({}, []), tensor)
    assert fact == TensorFact("held_tensors", 5 * 7 * 4, address_of(tensor), (5, 7), "float32")


def test_a_variable_is_known_by_its_own_handle_without_asking_its_class() -> None:
    asked: list[Any] = []
    variable = tf.Variable(tf.zeros([300]))
    variable.__class__ = type("Odd", (type(variable),), {"handle": property(asked.append)})
    kept.append(variable)
    held = HeldTensors()
    held.find({}, [])
    assert any(one is variable for one in held.variables()) and not asked


def test_zeros_that_tensorflow_keeps_for_gradients_are_no_object_of_the_program() -> None:
    # GIVEN a gradient with a part that nothing reads: TensorFlow makes zeros for it and keeps them
    parts = make(2, 1237)
    with tf.GradientTape() as tape:
        tape.watch(parts)
        first, _ = tf.unstack(parts)
        loss = tf.reduce_sum(first)
    tape.gradient(loss, parts)
    # THEN they are known, with TensorFlow as holder
    facts = [fact for _, fact in HeldTensors().find({}, []) if fact.shape == (1237,)]
    zeros = [one for one in facts if one.category == "other_state"]
    assert [(one.requested_bytes, one.held_by) for one in zeros] == [
        (4 * 1237, "TensorFlow's own cache of zeros")
    ]


def test_of_several_tensors_at_one_place_the_surest_kind_counts(notes: None) -> None:
    held = make(5)
    alias = tf.raw_ops.Reshape(tensor=held, shape=[5, 1])
    assert address_of(alias) == address_of(held)
    kept.append(alias)
    input_notes.data(alias)
    facts = [fact for _, fact in HeldTensors().find({}, []) if fact.address == address_of(held)]
    assert [fact.category for fact in facts] == ["inputs"]


def test_tensors_that_are_new_at_the_end_are_told_from_those_at_the_start() -> None:
    held = HeldTensors()
    before = make(5)
    held.find({}, [])
    after, known = make(6), make(7)
    at_start, new = held.finish([address_of(known)])
    assert fact_of(at_start, before) is not None and fact_of(new, before) is None
    assert fact_of(new, after) is not None and fact_of(new, known) is None
    # AND a new tensor at the place of one that still lives is the same memory
    held.find({}, [])
    alias = tf.raw_ops.Reshape(tensor=before, shape=[5, 1])
    kept.append(alias)
    _, new = held.finish([])
    assert fact_of(new, alias) is None


def test_a_tensor_that_the_step_was_fed_with_is_input_data_at_the_end(notes: None) -> None:
    held, tensor, other = HeldTensors(), make(5), make(6)
    before = held.find({}, [])
    input_notes.data(tensor)
    after, _ = held.finish([])
    found = [
        fact_of(facts, one) for facts, one in ((before, tensor), (after, tensor), (after, other))
    ]
    assert [fact and fact.category for fact in found] == ["held_tensors", "inputs", "held_tensors"]


class Slow:
    """Gives up the GIL while its owner is cleared, so that other threads meet half-collected
    objects."""

    def __del__(self) -> None:
        time.sleep(0.02)


def test_a_tensor_that_only_garbage_refers_to_is_not_read() -> None:
    """Reading an attribute of a tensor that a collection on another thread has cleared crashes the
    process."""

    def collects() -> None:
        while not stop.is_set():
            node = SimpleNamespace()
            node.tensor, node.slow = tf.constant([1.0] * 37), np.array([Slow()])
            node.me = node
            del node
            gc.collect()

    stop, thread = threading.Event(), None
    try:
        thread = threading.Thread(target=collects)
        thread.start()
        held, end = HeldTensors(), time.monotonic() + 3
        while time.monotonic() < end:
            held.find({}, [])
            held.finish([])
    finally:
        stop.set()
        thread.join()
    assert not any(fact.shape == (37,) for _, fact in held.find({}, []))


def test_what_a_function_captured_is_a_constant_and_what_a_pipeline_captured_is_data() -> None:
    constant, data, other, listed = make(1), tf.constant([2]) * 1, make(3), make(4)
    inside: list[Any] = []

    @tf.function
    def outer() -> Any:
        doubled = constant * 2

        @tf.function
        def inner() -> Any:
            inside.append(tf.compat.v1.get_default_graph())
            return doubled + 1

        return inner()

    outer.get_concrete_function()
    mapped = tf.data.Dataset.range(2).map(lambda value: value + tf.cast(data[0], tf.int64))
    dataset = tf.data.Dataset.from_tensors(listed)
    kept.append(dataset.repeat())
    held = HeldTensors()
    facts = held.find({}, [], [inside[-1], mapped._map_func.function.graph, None, object()])
    found = [fact_of(facts, one) for one in (constant, data, other, dataset._tensors[0])]
    # THEN a graph is read with those around it
    assert [fact and fact.category for fact in found] == [
        "other_state",
        "inputs",
        "held_tensors",
        "inputs",
    ]
    assert found[0] is not None and found[0].held_by == "captured by function `outer`"
    assert found[3] is not None and found[3].held_by == DATA_SET


def test_a_graph_that_has_grown_is_read_again_and_not_kept() -> None:
    first, second, graph = make(1), make(2), tf.__internal__.FuncGraph("step")
    held = HeldTensors()
    for tensor in (first, second):
        with graph.as_default():
            graph.capture(tensor)
        fact = fact_of(held.find({}, [], [graph]), tensor)
        assert fact is not None and fact.category == "other_state"
    reference = weakref.ref(graph)
    del graph
    gc.collect()
    assert reference() is None


def test_a_known_tensor_keeps_its_facts_and_is_not_kept_itself() -> None:
    held, tensor = HeldTensors(), make(1)
    held._add([tensor])
    known = held._tensors.get(tensor)
    held._add([tensor])
    assert held._tensors.items() == [(tensor, known)]
    reference = weakref.ref(tensor)
    kept.clear()
    del tensor
    assert reference() is None and len(held._tensors) == 0


def test_weights_of_layers_that_no_model_has_yet_are_theirs_while_one_is_built() -> None:
    # GIVEN what a failure finds between the layers of a functional model, one of which contains
    # another
    import keras

    first, second = keras.layers.Dense(32, name="first"), keras.layers.Dense(8, name="second")
    around = keras.layers.TimeDistributed(second, name="around")
    kept[:] = [around(first(keras.Input((5, 64)))), first, around]

    def found(**how: Any) -> dict[str | None, int]:
        facts, paths = LayerWatch(Faults()).look(CPU, **how)
        assert not how or paths[id(first)] == "first"
        weights = [fact for fact in facts.variables if fact.role == "weights" and fact.end_address]
        return {
            one.layer: sum(fact.requested_bytes for fact in weights if fact.layer == one.layer)
            for one in weights
        }

    names = {"first": 4 * (64 * 32 + 32), "around/second": 4 * (32 * 8 + 8)}
    assert names.items() <= found(building=True).items()
    assert not names.keys() & found().keys()


@pytest.mark.parametrize(
    ("parts", "strategy", "scope", "found"),
    [
        *((1, {"num_replicas_in_sync": count}, 1, count > 1) for count in (1, 2)),
        *((parts, {"num_replicas_in_sync": count}, 1, True) for parts, count in ((2, 1), (4, 4))),
        *((parts, {}, 1, parts > 1) for parts in (1, 2)),
        # Without a model, the scope of the loop tells; a strategy that says no number of replicas
        # is none.
        *((0, {}, scope, scope > 1) for scope in (1, 2)),
        (1, {"other": 2}, 2, False),
    ],
)
def test_replicas_are_known_by_the_strategy_and_by_the_variables(
    parts, strategy, scope, found, monkeypatch
) -> None:
    part, watch = SimpleNamespace(handle=object()), LayerWatch(Faults())
    model = SimpleNamespace(
        variables=[part, SimpleNamespace(values=(part,) * parts) if parts > 1 else part]
    )
    if strategy:
        model.distribute_strategy = SimpleNamespace(**strategy)
    monkeypatch.setattr(watch, "_model", lambda: model if parts else None)
    monkeypatch.setattr(
        tf.distribute, "get_strategy", lambda: SimpleNamespace(num_replicas_in_sync=scope)
    )
    assert watch.replicated is found
