"""Facts about the ops of functions, of those they call, and of loops, from functions that TensorFlow traced."""

import gc
import re
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tb_memplugin.recorder.heap import SourceLines
from tb_memplugin.recorder.watch import call_notes, hooks, output_bytes
from tb_memplugin.recorder.watch import graphs as module
from tb_memplugin.recorder.watch.graphs import graph_facts
from tb_memplugin.recorder.watch.notes import CallNotes
from tb_memplugin.schema import GraphFacts


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


def test_a_graph_that_cannot_be_read_costs_only_itself_and_one_without_variables_is_forgotten(monkeypatch) -> None:
    layer, read = dense(), module.GraphOps
    graphs = [traced(tf.function(lambda values: layer(values)), tf.ones((size, 3))).graph for size in (4, 5, 6)]

    def fails(graph: Any) -> Any:
        return 1 / 0 if graph is graphs[0] else read(graph)

    def gone(graph: Any) -> Any:
        raise AssertionError("a variable is gone")

    monkeypatch.setattr(module, "GraphOps", fails)
    monkeypatch.setattr(type(graphs[2]), "variables", property(lambda graph: gone(graph) if graph is graphs[2] else ()))
    (facts,) = facts_of(layer)
    assert ops_of(facts, "MatMul")[0].output_shapes == ((5, 2),) and graphs[2] not in call_notes.graphs


def test_large_constants_are_read_with_their_function_and_line() -> None:
    table, small = np.ones((16, 64), np.float32), np.ones(8, np.float32)

    @tf.function
    def project(values: tf.Tensor) -> tf.Tensor:
        text = tf.cast(tf.constant(["x" * 5000]) == "x", tf.float32)
        return values @ table + tf.reduce_sum(small) + len("text") * text

    graph = project.get_concrete_function(tf.ones((4, 16))).graph
    data = tf.data.Dataset.range(3).map(lambda number: tf.gather(table, number))
    mapped = data._map_func._function.graph
    facts = graph_facts({}, lambda item: None, SourceLines(), others=[graph, mapped])
    assert not any(one.root or one.ops for one in facts)
    constant, of_data = (one.constants[0] for one in facts)
    assert [len(one.constants) for one in facts] == [1, 1] and (constant.shape, constant.dtype) == ((16, 64), "float32")
    assert (constant.requested_bytes, constant.function, constant.layer) == (4096, "project", None)
    assert constant.line is not None and constant.line.startswith("tests/unit/recorder/watch/test_graphs.py:")
    # AND constants of a data set's function are of the input
    assert of_data.of_input and not constant.of_input
    # AND the graph is not kept
    reference = weakref.ref(graph)
    del graph, project
    gc.collect()
    assert reference() is None


@pytest.mark.parametrize(
    ("op", "batch", "size"),
    [
        *(("open", 7, 7 * 3 * 4), ("open", None, None), ("caller/open", 7, 7 * 3 * 4)),
        *(("known", None, 5 * 8), ("scalar", 7, 4)),
        *((op, 7, None) for op in (None, "rank", "inner", "none", "nothing")),
    ],
)
def test_bytes_of_an_ops_output_follow_from_its_shape_and_the_batch(op, batch, size) -> None:
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


B = 32
WIDE = np.ones((B, B), np.float32)
"""Weights with as many features as there are examples."""


def result(step: Callable[..., Any], *shapes: tuple[int | None, ...], batch: int | None = B) -> Any:
    """Powers of the batch in the dimensions of what a function returns."""
    specs = [tf.TensorSpec(shape, tf.float32) for shape in shapes]
    concrete = traced(tf.function(step), *specs)
    call_notes.notes(concrete.graph)
    facts = graph_facts({}, lambda item: None, batch_size=batch)
    call_notes.graphs.clear()
    output = concrete.graph.outputs[0].op
    while output.type == "IdentityN":
        output = output.inputs[0].op
    return facts[0].ops[output.name].batch_powers[0]


@pytest.mark.parametrize("first", [B, None])
@pytest.mark.parametrize(
    ("step", "powers"),
    [
        (lambda x: tf.matmul(x, WIDE), (1, 0)),
        (lambda x: tf.nn.relu(x) + tf.ones(B), (1, 0)),
        (lambda x: tf.matmul(x, x, transpose_b=True), (1, 1)),
        (lambda x: tf.matmul(x, x, transpose_a=True), (0, 0)),
        (lambda x: tf.einsum("ai,bi->ab", x, x), (1, 1)),
        (lambda x: tf.einsum("ai,ij->aj", x, WIDE), (1, 0)),
        (lambda x: tf.transpose(x), (0, 1)),
        (lambda x: tf.reduce_sum(x, 0), (0,)),
        (lambda x: tf.reduce_sum(x, 1), (1,)),
        (lambda x: tf.reduce_mean(x, 0, keepdims=True), (0, 0)),
        (lambda x: tf.concat([x, x], 0), (1, 0)),
        (lambda x: tf.concat([x, x], 1), (1, 0)),
        (lambda x: tf.reshape(x, (-1, 4, B // 4)), (1, 0, 0)),
        (lambda x: tf.reshape(x, (-1, 1)), (1, 0)),
        (lambda x: x[:, :1] * tf.ones((1, B)), (1, 0)),
        (lambda x: tf.reshape(tf.matmul(x, x, transpose_b=True), (-1,)), (2,)),
    ],
)
def test_a_layer_as_wide_as_the_batch_is_told_from_it(step, powers, first) -> None:
    assert result(step, (first, B)) == powers


def logits(x: Any, y: Any) -> Any:
    z = tf.concat([x, y], 0)
    return tf.matmul(z, z, transpose_b=True)


def joined(x: Any) -> Any:
    return tf.reshape(x, (-1, 7))


@pytest.mark.parametrize(
    ("step", "shapes", "powers"),
    [
        # Views and their products hold the batch in both dimensions.
        *((logits, ((first, 48), (first, 48)), (1, 1)) for first in (B, None)),
        # Time steps are no examples: twice as many, fixed or open; joined with them, and next to them.
        *((joined, ((B, time, 7),), (1, 0)) for time in (2 * B, None)),
        *((tf.nn.relu, ((B, time, 7),), (1, 0, 0)) for time in (2 * B, None)),
        (tf.nn.relu, ((2 * B, B, 7),), (0, 1, 0)),  # the program names its batch
        (lambda x: tf.boolean_mask(x, x[:, 0] > 0), ((B, 5),), (1, 0)),
    ],
)
def test_where_the_batch_is_among_other_sizes(step: Any, shapes: Any, powers: tuple[int, ...]) -> None:
    assert result(step, *shapes) == powers


def test_a_size_that_the_program_writes_down_is_unknown_beside_an_open_batch() -> None:
    def noise(x: Any) -> Any:
        return tf.random.normal((B, 100)) + tf.reduce_sum(x)

    def seeded(x: Any) -> Any:
        return tf.random.stateless_normal((B, 100), (1, 2)) + tf.reduce_sum(x)

    assert result(seeded, (None, 4)) == result(noise, (None, 4)) == (None, 0)
    assert result(seeded, (B, 4)) == (1, 0)
    assert result(noise, (B, 4)) == (1, 0)  # all of this function is for one batch size
    # AND one that meets the batch is as large
    assert result(lambda x: x * tf.random.normal((B, 4)), (None, 4)) == (1, 0)


def gradient(forward: Callable[[Any], Any], variable: Any = None) -> Callable[[Any], Any]:
    """A step with the gradient for a variable, or for its examples."""

    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(forward(x))
        return tape.gradient(loss, x if variable is None else variable)

    return step


def test_gradients_of_weights_do_not_hold_it_and_those_of_examples_do() -> None:
    kernel, image = tf.Variable(WIDE), tf.Variable(np.ones((3, 3, B, B), np.float32))
    assert result(gradient(lambda x: tf.matmul(x, kernel) ** 2, kernel), (B, B)) == (0, 0)
    convolved = gradient(lambda x: tf.nn.conv2d(x, image, 1, "SAME") ** 2, image)
    assert result(convolved, (B, 8, 8, B)) == (0, 0, 0, 0)
    assert result(gradient(lambda x: tf.add_n([x[row] ** 2 for row in range(3)])), (B, 4)) == (1, 0)
    for first in (B, None):  # of a mean
        powers = result(gradient(lambda x: tf.nn.moments(x, (0, 1, 2))[1] ** 2), (first, 8, 8, 3))
        assert powers is None or (powers[0] != 0 and not any(powers[1:]))


def test_what_is_drawn_for_each_example_is_as_open_as_they_are() -> None:
    kernel = tf.Variable(np.ones((4, 4, 3, 8), np.float32))

    def generate(x: Any) -> Any:
        drawn = tf.reshape(tf.random.normal((tf.shape(x)[0], 7 * 7 * 8)), (-1, 7, 7, 8))
        return tf.nn.conv2d_transpose(drawn, kernel, (tf.shape(x)[0], 14, 14, 3), 2)

    assert result(generate, (None, 5)) == (None, 0, 0, 0)
    assert result(generate, (4, 5), batch=4) == (1, 0, 0, 0)


def test_what_a_loop_collects_holds_it() -> None:
    layer = keras.layers.SimpleRNN(8, return_sequences=True)
    layer.build((None, 5, 3))
    assert result(layer, (B, 5, 3)) == (1, 0, 0)
    assert result(layer, (None, 5, 3)) == (None, 0, 0)


def test_without_a_batch_size_open_dimensions_are_followed() -> None:
    assert result(lambda x: tf.matmul(x, WIDE), (None, B), batch=None) == (1, 0)
