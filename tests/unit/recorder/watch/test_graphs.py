"""Facts about the ops of functions, of those they call, and of loops, from functions that TensorFlow traced."""

import gc
import re
import weakref
from collections.abc import Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tb_memplugin.recorder.heap import SourceLines
from tb_memplugin.recorder.watch import graphs as module
from tb_memplugin.recorder.watch.graphs import _constants_of, graph_facts, output_bytes
from tb_memplugin.recorder.watch.notes import CallNotes, call_notes
from tb_memplugin.recorder.watch.wrappers import hooks
from tb_memplugin.schema.trace import GraphFacts


@pytest.fixture(autouse=True)
def observed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Notes of this test's functions only."""
    monkeypatch.setattr(call_notes, "graphs", CallNotes().graphs)
    hooks.acquire()
    yield
    hooks.release()
    kept.clear()


kept: list[Any] = []


def traced(function: Any, *arguments: Any) -> Any:
    """Trace a function and keep its graph until the test ends."""
    kept.append(function.get_concrete_function(*arguments))
    return kept[-1]


def dense(name: str = "dense") -> Any:
    layer = keras.layers.Dense(2, name=name)
    layer.build((None, 3))
    return layer


def facts_of(*layers: Any) -> tuple[GraphFacts, ...]:
    kernels = {id(layer.kernel.value.handle): (f"{layer.name}/kernel", f"net/{layer.name}") for layer in layers}
    kernels |= {id(layer.kernel.value): owner for layer, owner in zip(layers, kernels.values(), strict=True)}
    return graph_facts({id(layer): f"net/{layer.name}" for layer in layers}, lambda item: kernels.get(id(item)))


def ops_of(facts: GraphFacts, kind: str) -> list[Any]:
    """Facts about the ops whose name contains a text."""
    return [fact for name, fact in facts.ops.items() if kind in name.rpartition("/")[2]]


def test_the_ops_of_a_step_have_their_layer_their_pass_and_their_variable() -> None:
    layer, x = dense(), tf.ones((4, 3))

    @tf.function
    def step(values: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(values) ** 2)
        gradient = tape.gradient(loss, layer.kernel.value)
        layer.kernel.assign_sub(gradient)
        return loss

    traced(step, x)
    (facts,) = facts_of(layer)
    assert facts.root and facts.name == "step" and facts.arguments == {"values"} and facts.callees == {}
    forward = next(fact for fact in ops_of(facts, "MatMul") if fact.pass_name == "forward")
    assert (forward.layer, forward.output_shapes, forward.output_dtypes) == ("net/dense", ((4, 2),), ("float32",))
    gradient = next(fact for fact in facts.ops.values() if fact.is_gradient)
    assert (gradient.pass_name, gradient.gradient_of, gradient.line) == ("backward", "net/dense", None)
    assert gradient.forward_inputs and gradient.gradient_inputs
    assigned = [fact.assigns for name, fact in facts.ops.items() if "Assign" in name]
    assert assigned == ["dense/kernel"]
    # AND the batch is saved for the gradient of the kernel
    assert facts.ops["values"].saved_for_backward


def test_functions_that_a_function_calls_are_read_with_what_they_inherit() -> None:
    layer = dense()

    @tf.function
    def inner(values: Any) -> Any:
        return tf.nn.relu(values, name="inner_relu")

    class Calls(keras.layers.Layer):  # type: ignore[misc]
        def call(self, values: Any) -> Any:
            return inner(values)

    calls = Calls(name="calls")

    @tf.function
    def outer(values: Any) -> Any:
        return calls(layer(values))

    traced(outer, tf.ones((4, 3)))
    found = graph_facts({id(layer): "net/dense", id(calls): "net/calls"}, lambda item: None)
    assert [(one.name, one.root) for one in found] == [("outer", True), ("inner", False)]
    ((label, index),) = next(iter(found[0].callees.values()))
    assert (label, index) == ("", 1) and len(found[0].callees) == 1
    relu = found[1].ops["inner_relu"]
    assert (relu.layer, relu.pass_name) == ("net/calls", "forward") and found[1].arguments == frozenset()


def test_loops_and_branches_have_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = dense()

    @tf.function
    def step(values: Any) -> Any:
        values = layer(values)
        values = tf.while_loop(lambda one: tf.reduce_sum(one) < 5, lambda one: (one + 1,), (values,))[0]
        return tf.cond(tf.reduce_sum(values) > 3, lambda: values * 2, lambda: values * 3)

    traced(step, tf.ones((4, 3)))
    found = facts_of(layer)
    labels = {label for callees in found[0].callees.values() for label, _ in callees}
    assert labels == {"body", "cond", "then", "else"} and len(found) == 5
    indices = sorted(index for callees in found[0].callees.values() for _, index in callees)
    assert indices == [1, 2, 3, 4] and not any(one.root for one in found[1:])
    # AND no more graphs are read than the most
    monkeypatch.setattr(module, "MAX_GRAPHS", 3)
    assert len(facts_of(layer)) == 3


def unrepeatable(step: Any, argument: Any, *layers: Any) -> set[str]:
    traced(tf.function(step), argument)
    graphs = graph_facts({id(layer): layer.name for layer in layers}, lambda item: None)
    return set().union(*(graph.unrepeatable for graph in graphs))


def test_layers_whose_second_pass_may_differ_are_named() -> None:
    layer = dense()

    class Noise(keras.layers.Layer):  # type: ignore[misc]
        def call(self, values: Any) -> Any:
            return tf.nn.dropout(values, 0.5)

    class NoiseInALoop(keras.layers.Layer):  # type: ignore[misc]
        def call(self, values: Any) -> Any:
            return tf.while_loop(lambda v: tf.reduce_sum(v) < 0.0, lambda v: [v + tf.random.normal([])], [values])[0]

    class Reads(keras.layers.Layer):  # type: ignore[misc]
        def call(self, values: Any) -> Any:
            values = tf.while_loop(lambda v: tf.reduce_sum(v) < 0.0, lambda v: [v + layer.bias.value[0]], [values])[0]
            return tf.debugging.check_numerics(values, "")

    seeded, noise, looped, reads = keras.layers.Dropout(0.5), Noise(), NoiseInALoop(), Reads()

    def step(values: Any) -> Any:
        with tf.GradientTape() as tape:
            values = seeded(layer(values), training=True)
            loss = tf.reduce_sum(reads(looped(noise(values)))) + tf.random.uniform([])
        return tape.gradient(loss, layer.kernel.value)

    # THEN they are those that draw from TensorFlow's generator, also in a loop; variables and seeds are repeated
    found = unrepeatable(step, tf.ones((4, 3)), layer, seeded, noise, looped, reads)
    assert found == {noise.name, looped.name}


def test_a_layer_that_changes_its_trainable_weight_in_the_forward_pass_is_named() -> None:
    normed = keras.layers.SpectralNormalization(keras.layers.Dense(3))
    statistics, words = keras.layers.BatchNormalization(), keras.layers.Embedding(5, 3)
    for layer, shape in ((normed, (None, 3)), (statistics, (None, 3)), (words, (None,))):
        layer.build(shape)

    def step(tokens: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(statistics(normed(words(tokens), training=True), training=True) ** 2)
        normed.layer.bias.assign_sub(tape.gradient(loss, normed.layer.bias.value))
        return loss

    assert unrepeatable(step, tf.constant([1, 2]), normed, statistics, words) == {normed.name}


def test_graphs_whose_variables_are_gone_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = dense()
    concrete = tf.function(lambda values: layer(values)).get_concrete_function(tf.ones((4, 3)))
    monkeypatch.setattr(module, "_can_run", lambda graph: False)
    assert facts_of(layer) == () and concrete.graph not in call_notes.graphs

    class Graph:
        @property
        def variables(self) -> Any:
            raise AssertionError("a variable is gone")

    monkeypatch.undo()
    assert not module._can_run(Graph()) and module._can_run(object())


def test_a_graph_that_cannot_be_read_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = dense()
    kept = [tf.function(lambda values: layer(values)).get_concrete_function(tf.ones((size, 3))) for size in (4, 5)]
    read = module.GraphOps

    def fails(graph: Any) -> Any:
        if graph is kept[0].graph:
            raise RuntimeError
        return read(graph)

    monkeypatch.setattr(module, "GraphOps", fails)
    (facts,) = facts_of(layer)
    assert ops_of(facts, "MatMul")[0].output_shapes == ((5, 2),)


@pytest.mark.parametrize(
    ("op", "batch", "size"),
    [
        *(("open", 7, 7 * 3 * 4), ("open", None, None), ("caller/open", 7, 7 * 3 * 4)),
        *(("known", None, 5 * 8), ("scalar", 7, 4)),
        *((op, 7, None) for op in (None, "rank", "inner", "none", "nothing")),
    ],
)
def test_bytes_of_an_ops_output_follow_from_its_shape_and_the_batch(
    op: str | None, batch: int | None, size: int | None
) -> None:
    @tf.function
    def step(values: Any, unknown: Any, two: Any) -> None:
        tf.identity(values, name="open")
        tf.fill([5], tf.constant(1.0, tf.float64), name="known")
        tf.reduce_sum(values, name="scalar")
        tf.identity(unknown, name="rank")
        tf.identity(two, name="inner")
        tf.no_op(name="none")

    specs = [tf.TensorSpec(shape, tf.float32) for shape in ((None, 3), None, (2, None))]
    concrete = step.get_concrete_function(*specs)
    call_notes.notes(concrete.graph)
    assert output_bytes(op, batch) == size


SAVED = ("net/dense", True, 0)


def fact_like(facts: GraphFacts, pattern: str) -> Any:
    return next(fact for name, fact in facts.ops.items() if re.fullmatch(pattern, name))


def test_a_gradient_that_another_tape_differentiates_is_part_of_the_forward_pass() -> None:
    layer, x = dense(), tf.ones((4, 3))

    @tf.function
    def step(values: Any) -> Any:
        with tf.GradientTape() as tape:
            with tf.GradientTape() as inner:
                inner.watch(values)
                score = tf.nn.tanh(layer(values))
            loss = tf.reduce_sum(inner.gradient(score, values) ** 2)
        return tape.gradient(loss, layer.kernel.value)

    traced(step, x)
    (facts,) = facts_of(layer)
    assert facts.ops["gradient_tape/TanhGrad"].pass_name == "forward"
    # What the outer pass reads of it is saved, as are the layer's results.
    product = fact_like(facts, r"gradient_tape/dense\w*/MatMul/MatMul")
    assert (product.pass_name, product.layer, product.saved_for_backward, product.read_late) == ("forward", *SAVED)
    outer = fact_like(facts, r"gradient_tape/gradient_tape/dense\w*/MatMul/MatMul_1")
    assert (outer.pass_name, outer.layer, outer.read_late) == ("backward", "net/dense", None)


def test_gradients_that_nobody_differentiates_stay_backward_passes() -> None:
    layer, x = dense(), tf.ones((4, 3))

    @tf.function
    def step(values: Any) -> Any:
        with tf.GradientTape() as first:
            score = tf.reduce_sum(layer(values) ** 2)
        before = first.gradient(score, layer.kernel.value)
        with tf.GradientTape() as second:  # its target depends on the gradient, which no tape recorded
            loss = tf.reduce_sum((layer(values) + tf.reduce_sum(before)) ** 2)
        return second.gradient(loss, layer.kernel.value)

    traced(step, x)
    (facts,) = facts_of(layer)
    products = [fact for name, fact in facts.ops.items() if "gradient_tape/dense" in name and "/MatMul/" in name]
    assert len(products) == 2 and {fact.pass_name for fact in products} == {"backward"}
    assert all(fact.is_gradient and fact.read_late is None for fact in products)
    assert all(fact.read_late is None for fact in facts.ops.values())


def test_large_constants_are_read_with_their_function_and_line() -> None:
    table, small = np.ones((16, 64), np.float32), np.ones(8, np.float32)

    @tf.function
    def project(values: tf.Tensor) -> tf.Tensor:
        return (
            values @ table + tf.reduce_sum(small) + len("text") * tf.cast(tf.constant(["x" * 5000]) == "x", tf.float32)
        )

    graph = project.get_concrete_function(tf.ones((4, 16))).graph
    assert [(one.shape, one.dtype, one.requested_bytes) for one in _constants_of(graph).values()] == [
        ((16, 64), "float32", 4096)
    ]
    # Graphs of other tests that are still alive are read, too; the other graphs come last.
    facts = graph_facts({}, lambda item: None, SourceLines(), others=[graph])[-1]
    assert not facts.root and not facts.ops
    (constant,) = facts.constants
    assert (constant.requested_bytes, constant.function, constant.layer) == (4096, "project", None)
    assert constant.line is not None and constant.line.startswith("tests/unit/recorder/watch/test_graphs.py:")
    assert not constant.of_input
    # AND the graph is not kept
    reference = weakref.ref(graph)
    del graph, project
    gc.collect()
    assert reference() is None
    # AND constants of a data set's function are of the input
    data = tf.data.Dataset.range(3).map(lambda number: tf.gather(table, number))
    facts = graph_facts({}, lambda item: None, None, others=[data._map_func._function.graph])[-1]
    assert [constant.of_input for constant in facts.constants] == [True]
