"""Which tensors Python holds beside the known variables, and what kind of data each is."""

import gc
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tb_memplugin.recorder.watch.held_tensors import Captures, HeldTensors
from tb_memplugin.recorder.watch.notes import input_notes
from tb_memplugin.recorder.watch.wrappers import hooks
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
    monkeypatch.setattr(HeldTensors, "_search_all", lambda self: searched.append(1))
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


def found(objects: HeldTensors) -> list[Any]:
    return [tensor for known in objects._tensors.values() if (tensor := known.reference()) is not None]


def contains(items: Any, wanted: Any) -> bool:
    return any(item is wanted for item in items)


# --- captures ---------------------------------------------------------------------------------------------------------


def test_what_a_function_captured_is_a_constant_and_what_a_pipeline_captured_is_data() -> None:
    constant, data, other = tf.constant([1.0]), tf.constant([2]), tf.constant([3.0])
    function = tf.function(lambda: constant + 1).get_concrete_function()
    mapped = tf.data.Dataset.range(2).map(lambda value: value + tf.cast(data[0], tf.int64))
    captures = Captures()
    captures.read([function.graph, mapped._map_func.function.graph, None, object()])
    assert captures.category(constant) == "other_state"
    assert captures.category(data) == "inputs"
    assert captures.category(other) is None
    # AND a graph is read with those around it
    assert contains(captures.graphs, function.graph)


def test_captures_of_outer_graphs_are_read_and_tensors_of_graphs_are_none() -> None:
    outside = tf.constant([1.0])
    graphs: list[Any] = []

    @tf.function
    def outer() -> Any:
        inside = outside * 2

        @tf.function
        def inner() -> Any:
            graphs.append(tf.compat.v1.get_default_graph())
            return inside + 1

        return inner()

    outer.get_concrete_function()
    captures = Captures()
    captures.read(graphs[-1:])
    assert captures.category(outside) == "other_state" and len(captures.graphs) == 2
    assert len(captures._constants) == 1


def test_a_graph_that_has_grown_is_read_again_and_not_kept() -> None:
    first, second = tf.constant([1.0]), tf.constant([2.0])
    graph = tf.__internal__.FuncGraph("step")
    captures = Captures()
    with graph.as_default():
        graph.capture(first)
        captures.read([graph])
        graph.capture(second)
        tf.constant(0.0)
    captures.read([graph])
    assert captures.category(first) == captures.category(second) == "other_state"
    del graph, first, second
    gc.collect()
    assert list(captures.graphs) == [] and len(captures._constants) == 0


# --- objects ----------------------------------------------------------------------------------------------------------


def test_all_kinds_of_objects_are_found() -> None:
    tensor, variable = tf.constant([1.0]), tf.Variable(1.0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    module = tf.Module()
    data = tf.data.Dataset.from_tensors(tensor)
    objects = HeldTensors()
    objects._search_all()
    assert contains(found(objects), tensor)
    assert contains(objects._variables.values(), variable)
    assert contains(objects.models(), model) and contains(objects.models(), module)
    assert contains(objects.handles.values(), variable.handle)
    assert contains(objects._datasets.values(), data)


def test_tensors_without_plain_bytes_are_left_out() -> None:
    plain, text = tf.constant([1.0]), tf.constant(["a"])
    variant = tf.raw_ops.EmptyTensorList(element_shape=[1], max_num_elements=1, element_dtype=tf.float32)
    handle = tf.Variable(1.0).handle
    objects = HeldTensors()
    objects._add([plain, text, variant, handle])
    assert len(found(objects)) == 1 and found(objects)[0] is plain
    assert contains(objects.handles.values(), handle)


def test_a_known_tensor_keeps_its_facts_and_one_at_its_id_has_none() -> None:
    objects, tensor, other = HeldTensors(), tf.constant([1.0]), tf.constant([2.0])
    objects._add([tensor])
    known = objects._tensors[id(tensor)]
    objects._add([tensor])
    assert objects._tensors == {id(tensor): known}
    known.held_by = "a list"
    # GIVEN another tensor at the same id
    objects._tensors[id(other)] = known
    objects._add([other])
    assert objects._tensors[id(other)].held_by is None


def test_objects_are_not_kept() -> None:
    objects = HeldTensors()
    tensor, variable = tf.constant([1.0]), tf.Variable(1.0)
    objects._add([tensor])
    objects._remember([variable])
    del tensor, variable
    gc.collect()
    assert found(objects) == [] and list(objects._variables.values()) == []
