"""Which tensors Python holds beside the known variables, and what kind of data each is."""

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tb_memplugin.recorder.heap.held_tensors import HeldTensors
from tb_memplugin.recorder.heap.python_objects import PythonObjects
from tb_memplugin.recorder.watch.hooks import hooks
from tb_memplugin.recorder.watch.inputs import input_notes
from tb_memplugin.schema.trace import TensorFact

CPU = "CPU:0"


def address_of(tensor: Any) -> int:
    return int(np.from_dlpack(tensor).ctypes.data)


def fact_of(facts: Any, tensor: Any) -> TensorFact | None:
    """The fact about a tensor by its address."""
    address = address_of(tensor)
    assert all(device == CPU for device, _ in facts)
    return next((fact for _, fact in facts if fact.address == address), None)


def make(*shape: int) -> Any:
    """A tensor in memory of its own."""
    return tf.ones(shape) * 3


@pytest.fixture
def notes() -> Iterator[None]:
    hooks.acquire()
    yield
    hooks.release()


def test_a_tensor_has_its_kind_size_shape_and_place() -> None:
    tensor = make(5, 7)
    fact = fact_of(HeldTensors().find({}, []), tensor)
    assert fact == TensorFact("held_tensors", 5 * 7 * 4, address_of(tensor), (5, 7), "float32")


def test_of_several_tensors_at_one_place_the_surest_kind_counts(notes: None) -> None:
    held = make(5)
    alias = tf.raw_ops.Reshape(tensor=held, shape=[5, 1])
    assert address_of(alias) == address_of(held)
    input_notes.data(alias)
    facts = [fact for _, fact in HeldTensors().find({}, []) if fact.address == address_of(held)]
    assert [fact.category for fact in facts] == ["inputs"]


def test_variables_of_no_model_are_told_from_known_ones() -> None:
    own, known = tf.Variable(make(5)), tf.Variable(make(6))
    held = HeldTensors()
    held.find({}, [], known_variables={id(known)})
    found = held.variables_of_no_model()
    assert any(one is own for one in found) and not any(one is known for one in found)


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
    _, new = held.finish([])
    assert fact_of(new, alias) is None


def test_a_tensor_that_the_step_was_fed_with_is_input_data_at_the_end(notes: None) -> None:
    held, tensor, other = HeldTensors(), make(5), make(6)
    before = held.find({}, [])
    input_notes.data(tensor)
    after, _ = held.finish([])
    found = [fact_of(facts, one) for facts, one in ((before, tensor), (after, tensor), (after, other))]
    assert [fact and fact.category for fact in found] == ["held_tensors", "inputs", "held_tensors"]


def test_after_a_missed_object_all_are_searched_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    held, searched = HeldTensors(), []
    held.find({}, [])
    monkeypatch.setattr(PythonObjects, "search_all", lambda self: searched.append(1))
    held.finish([])
    assert searched == []
    held.find({}, [], read_chunks=dict)
    searched.clear()
    held._promotions.misses += 1
    held.finish([])
    assert searched == [1]


def test_tensors_in_reference_cycles_name_the_class_of_the_cycle() -> None:
    class Node:
        def __init__(self, tensor: Any) -> None:
            self.tensor, self.me = tensor, self

    held = HeldTensors()
    held.find({}, [])
    gc.disable()
    try:
        Node(make(512, 512))  # dropped at once, but in a cycle
        facts = [fact for _, fact in held.finish([])[1] if fact.shape == (512, 512)]
    finally:
        gc.enable()
    assert [fact.held_by for fact in facts] == ["a reference cycle of Node (gc.collect() frees it)"]
