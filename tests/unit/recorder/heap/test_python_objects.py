"""Tensors, variables, models and pipelines are found among Python's objects, and kept alive by nothing here."""

import gc
from typing import Any

import keras
import pytest
import tensorflow as tf

from tb_memplugin.recorder.heap.python_objects import Captures, PythonObjects


def found(objects: PythonObjects) -> list[Any]:
    return [tensor for tensor, _ in objects.tensors()]


def contains(items: Any, wanted: Any) -> bool:
    return any(item is wanted for item in items)


# --- captures ---------------------------------------------------------------------------------------------------------


def test_what_a_function_captured_is_a_constant_and_what_a_pipeline_captured_is_data() -> None:
    constant, data, other = tf.constant([1.0]), tf.constant([2]), tf.constant([3.0])
    function = tf.function(lambda: constant + 1).get_concrete_function()
    mapped = tf.data.Dataset.range(2).map(lambda value: value + tf.cast(data[0], tf.int64))
    captures = Captures()
    captures.read([function.graph, mapped._map_func.function.graph, None, object()])
    assert captures.is_constant(constant) and not captures.is_data(constant)
    assert captures.is_data(data) and not captures.is_constant(data)
    assert not captures.is_constant(other) and not captures.is_data(other)
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
    assert captures.is_constant(outside) and len(captures.graphs) == 2
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
    assert captures.is_constant(first) and captures.is_constant(second)
    del graph, first, second
    gc.collect()
    assert list(captures.graphs) == [] and len(captures._constants) == 0


# --- objects ----------------------------------------------------------------------------------------------------------


def test_all_kinds_of_objects_are_found() -> None:
    tensor, variable = tf.constant([1.0]), tf.Variable(1.0)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    module = tf.Module()
    data = tf.data.Dataset.from_tensors(tensor)
    objects = PythonObjects()
    objects.search_all()
    assert contains(found(objects), tensor)
    assert contains(objects.variables.values(), variable)
    assert contains(objects.models(), model) and contains(objects.models(), module)
    assert contains(objects.handles.values(), variable.handle)
    assert id(data._tensors[0]) in objects.dataset_tensors()


def test_tensors_without_plain_bytes_are_left_out() -> None:
    plain, text = tf.constant([1.0]), tf.constant(["a"])
    variant = tf.raw_ops.EmptyTensorList(element_shape=[1], max_num_elements=1, element_dtype=tf.float32)
    handle = tf.Variable(1.0).handle
    objects = PythonObjects()
    objects.add([plain, text, variant, handle])
    assert len(found(objects)) == 1 and found(objects)[0] is plain
    assert contains(objects.handles.values(), handle)


def test_a_known_tensor_keeps_its_facts_and_one_at_its_id_has_none() -> None:
    objects, tensor, other = PythonObjects(), tf.constant([1.0]), tf.constant([2.0])
    objects.add([tensor])
    ((_, known),) = objects.tensors()
    known.held_by = "a list"
    objects.add([tensor])
    assert [again is known for _, again in objects.tensors()] == [True]
    # GIVEN another tensor at the same id
    objects._tensors[id(other)] = known
    objects.add([other])
    assert objects._tensors[id(other)].held_by is None


def test_objects_are_not_kept() -> None:
    objects = PythonObjects()
    tensor, variable = tf.constant([1.0]), tf.Variable(1.0)
    objects.add([tensor])
    objects._remember([variable])
    del tensor, variable
    gc.collect()
    assert found(objects) == [] and objects._tensors == {} and list(objects.variables.values()) == []


def test_all_is_known_only_after_a_search_with_a_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    objects = PythonObjects()
    objects.search_all()
    assert not objects.complete  # nothing says what grows old meanwhile
    objects.watch()
    try:
        assert objects._promotions.misses > 0 and not objects.complete
        objects.search_all()
        assert objects.complete
        objects._promotions.misses += 1
        assert not objects.complete
    finally:
        objects.unwatch()
