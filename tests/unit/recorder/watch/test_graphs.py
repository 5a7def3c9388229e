"""Facts about the ops of functions, of those they call, and of loops, from functions that
TensorFlow traced."""

import functools
import gc
import re
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from collective_cases import all_reduce

from tb_memplugin.recorder.heap import SourceLines, frames
from tb_memplugin.recorder.watch import call_notes, hooks, output_bytes
from tb_memplugin.recorder.watch import graphs as module
from tb_memplugin.recorder.watch.graphs import graph_facts
from tb_memplugin.recorder.watch.notes import CallNotes, Span
from tb_memplugin.schema import GraphFacts, OpFact


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
    kept.append(tf.function(function).get_concrete_function(*arguments))
    return kept[-1]


def dense(name: str = "dense") -> Any:
    layer = keras.layers.Dense(2, name=name)
    layer.build((None, 3))
    return layer


def facts_of(*layers: Any) -> tuple[GraphFacts, ...]:
    kernels = {
        id(layer.kernel.value.handle): (f"{layer.name}/kernel", f"net/{layer.name}")
        for layer in layers
    }
    kernels |= {
        id(layer.kernel.value): owner for layer, owner in zip(layers, kernels.values(), strict=True)
    }
    return graph_facts(
        {id(layer): f"net/{layer.name}" for layer in layers}, lambda item: kernels.get(id(item))
    )


def ops_of(facts: GraphFacts, kind: str) -> list[Any]:
    """Facts about the ops whose name contains a text."""
    return [fact for name, fact in facts.ops.items() if kind in name.rpartition("/")[2]]


def test_the_ops_of_a_step_have_their_layer_their_pass_and_their_variable() -> None:
    layer, x = dense(), tf.ones((4, 3))

    def step(values: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(values) ** 2)
        gradient = tape.gradient(loss, layer.kernel.value)
        layer.kernel.assign_sub(gradient)
        return loss

    traced(step, x)
    (facts,) = facts_of(layer)
    assert (
        facts.root
        and facts.name == "step"
        and facts.arguments == {"values"}
        and facts.callees == {}
    )
    forward = next(fact for fact in ops_of(facts, "MatMul") if fact.pass_name == "forward")
    assert (forward.layer, forward.output_shapes, forward.output_dtypes) == (
        "net/dense",
        ((4, 2),),
        ("float32",),
    )
    gradient = next(fact for fact in facts.ops.values() if fact.is_gradient)
    assert (gradient.pass_name, gradient.gradient_of, gradient.line) == (
        "backward",
        "net/dense",
        None,
    )
    assert gradient.forward_inputs and gradient.gradient_inputs
    assigned = [fact.assigns for name, fact in facts.ops.items() if "Assign" in name]
    assert assigned == ["dense/kernel"]
    # AND the batch is saved for the gradient of the kernel
    assert facts.ops["values"].saved_for_backward


def test_what_only_reads_a_variable_assigns_nothing() -> None:
    table = tf.Variable(tf.ones((5, 3)))

    def step(rows: Any) -> Any:
        read = tf.gather(table, rows), tf.gather_nd(table, rows[:, None]), table + 1.0
        table.scatter_sub(tf.IndexedSlices(read[0], rows))
        return read[1], read[2]

    kept.append(graph := traced(step, tf.constant([1, 4])).graph)
    call_notes.notes(graph)
    (facts,) = graph_facts({}, lambda item: ("table", None) if item is table.handle else None)
    assert [name for name, fact in facts.ops.items() if fact.assigns] == ["ResourceScatterSub"]


def test_the_gradient_of_a_called_function_is_of_the_layer_that_called_it() -> None:
    class Calls(keras.layers.Layer):
        def call(self, values: Any) -> Any:
            return tf.function(lambda one: tf.tanh(one) * one)(values)

    layer, after = Calls(name="calls"), dense("after")

    def step(values: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(values)
            loss = tf.reduce_sum(after(layer(values)))
        return tape.gradient(loss, values)

    traced(step, tf.ones((4, 3)))
    root = graph_facts({id(layer): "calls", id(after): "after"}, lambda item: None)[0]
    layers = {root.ops[name].pass_name: root.ops[name].layer for name in root.callees}
    assert layers == {"forward": "calls", "backward": "calls"}


def test_packed_gradients_and_their_sums_over_replicas_are_known() -> None:
    layer = dense()

    def step(values: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(layer(values))
        gradients = tape.gradient(loss, [layer.kernel.value, layer.bias.value])
        packed = tf.concat([tf.reshape(one, [-1]) for one in gradients], axis=0)
        summed = all_reduce(packed)
        return tf.split(summed, [6, 2]), tf.split(packed, [6, 2]), tf.concat([values, values], 0)

    traced(step, tf.TensorSpec((4, 3)))
    (facts,) = facts_of(layer)
    sent = {name for name, fact in facts.ops.items() if fact.communicates}
    assert sent == {"concat", "CollectiveReduceV2"}
    assert (facts.ops["split"].is_gradient, facts.ops["split_1"].is_gradient) == (True, False)


def test_functions_that_a_function_calls_are_read_with_what_they_inherit() -> None:
    layer = dense()

    @tf.function
    def inner(values: Any) -> Any:
        return tf.nn.relu(values, name="inner_relu")

    calls = keras.layers.Lambda(lambda values: inner(values), name="calls")

    def outer(values: Any) -> Any:
        return calls(layer(values))

    traced(outer, tf.ones((4, 3)))
    found = graph_facts({id(layer): "net/dense", id(calls): "net/calls"}, lambda item: None)
    assert [(one.name, one.root) for one in found] == [("outer", True), ("inner", False)]
    ((label, index),) = next(iter(found[0].callees.values()))
    assert (label, index) == ("", 1) and len(found[0].callees) == 1
    relu = found[1].ops["inner_relu"]
    assert (relu.layer, relu.pass_name) == ("net/calls", "forward") and found[
        1
    ].arguments == frozenset()


def test_loops_and_branches_have_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = dense()

    def step(values: Any) -> Any:
        values = layer(values)
        values = tf.while_loop(
            lambda one: tf.reduce_sum(one) < 5, lambda one: (one + 1,), (values,)
        )[0]
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


def test_layers_whose_second_pass_may_differ_are_named() -> None:
    layer = dense()

    def loop(body: Any) -> Any:
        return lambda values: tf.while_loop(
            lambda v: tf.reduce_sum(v) < 0.0, lambda v: [body(v)], [values]
        )[0]

    reading = loop(lambda v: v + layer.bias.value[0])
    noise = keras.layers.Lambda(lambda values: tf.nn.dropout(values, 0.5), name="noise")
    looped = keras.layers.Lambda(loop(lambda v: v + tf.random.normal([])), name="looped")
    reads = keras.layers.Lambda(
        lambda values: tf.debugging.check_numerics(reading(values), ""), name="reads"
    )
    seeded = keras.layers.Dropout(0.5)

    def step(values: Any) -> Any:
        with tf.GradientTape() as tape:
            values = seeded(layer(values), training=True)
            loss = tf.reduce_sum(reads(looped(noise(values)))) + tf.random.uniform([])
        return tape.gradient(loss, layer.kernel.value)

    # THEN they are those that draw from TensorFlow's generator, also in a loop; variables and seeds
    # are repeated
    traced(step, tf.ones((4, 3)))
    graphs = graph_facts(
        {id(one): one.name for one in (layer, seeded, noise, looped, reads)}, lambda item: None
    )
    assert set().union(*(graph.unrepeatable for graph in graphs)) == {"noise", "looped"}


def test_a_graph_that_cannot_be_read_costs_only_itself_and_one_without_variables_is_forgotten(
    monkeypatch,
) -> None:
    layer, read = dense(), module.GraphOps
    graphs = [traced(lambda values: layer(values), tf.ones((size, 3))).graph for size in (4, 5, 6)]

    def fails(graph: Any) -> Any:
        return 1 / 0 if graph is graphs[0] else read(graph)

    def gone(graph: Any) -> Any:
        raise AssertionError("a variable is gone")

    monkeypatch.setattr(module, "GraphOps", fails)
    monkeypatch.setattr(
        type(graphs[2]),
        "variables",
        property(lambda graph: gone(graph) if graph is graphs[2] else ()),
    )
    (facts,) = facts_of(layer)
    assert (
        ops_of(facts, "MatMul")[0].output_shapes == ((5, 2),) and graphs[2] not in call_notes.graphs
    )


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
    assert [len(one.constants) for one in facts] == [1, 1] and (constant.shape, constant.dtype) == (
        (16, 64),
        "float32",
    )
    assert (constant.requested_bytes, constant.function, constant.layer) == (4096, "project", None)
    assert constant.line is not None and constant.line.startswith(
        "tests/unit/recorder/watch/test_graphs.py:"
    )
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


def test_a_gradient_that_another_tape_differentiates_is_part_of_the_forward_pass() -> None:
    layer, x = dense(), tf.ones((4, 3))

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
    product, outer = (
        next(
            fact
            for name, fact in facts.ops.items()
            if re.fullmatch(rf"{begin}/dense\w*/MatMul/{end}", name)
        )
        for begin, end in (("gradient_tape", "MatMul"), ("gradient_tape/gradient_tape", "MatMul_1"))
    )
    assert (product.pass_name, product.layer, product.saved_for_backward, product.read_late) == (
        "forward",
        *SAVED,
    )
    assert (outer.pass_name, outer.layer, outer.read_late) == ("backward", "net/dense", None)


def test_gradients_that_nobody_differentiates_stay_backward_passes() -> None:
    layer, x = dense(), tf.ones((4, 3))

    def step(values: Any) -> Any:
        with tf.GradientTape() as first:
            score = tf.reduce_sum(layer(values) ** 2)
        before = first.gradient(score, layer.kernel.value)
        # its target depends on the gradient, which no tape recorded
        with tf.GradientTape() as second:
            loss = tf.reduce_sum((layer(values) + tf.reduce_sum(before)) ** 2)
        return second.gradient(loss, layer.kernel.value)

    traced(step, x)
    (facts,) = facts_of(layer)
    products = [
        fact
        for name, fact in facts.ops.items()
        if "gradient_tape/dense" in name and "/MatMul/" in name
    ]
    assert len(products) == 2 and {fact.pass_name for fact in products} == {"backward"}
    assert all(fact.is_gradient and fact.read_late is None for fact in products)
    assert all(fact.read_late is None for fact in facts.ops.values())


B = 32
WIDE = np.ones((B, B), np.float32)
"""Weights with as many features as there are examples."""


def of_floats(shape: Any) -> Any:
    return shape if isinstance(shape, tf.TensorSpec) else tf.TensorSpec(shape, tf.float32)


def facts_of_step(step: Callable[..., Any], *shapes: Any, batch: int | None = B) -> Any:
    concrete = traced(step, *map(of_floats, shapes))
    call_notes.notes(concrete.graph)
    facts = graph_facts({}, lambda item: None, batch_size=batch)
    call_notes.graphs.clear()
    return facts, concrete


def result(step: Callable[..., Any], *shapes: tuple[int | None, ...], batch: int | None = B) -> Any:
    """Powers of the batch in the dimensions of what a function returns."""
    facts, concrete = facts_of_step(step, *shapes, batch=batch)
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


def masked(x: Any, y: Any) -> Any:
    """The mask of the own examples among all, as long as the function's batch or computed."""
    views = logits(x, y)
    own = tf.eye(2 * B if x.shape[0] else tf.shape(views)[0])
    return tf.nn.softmax_cross_entropy_with_logits(own, views - 1e9 * own)


@pytest.mark.parametrize(
    ("step", "shapes", "powers"),
    [
        # Views and their products hold the batch in both dimensions.
        *((logits, ((first, 48), (first, 48)), (1, 1)) for first in (B, None)),
        # Time steps are no examples: twice as many, fixed or open; joined with them, and next to
        # them.
        *((joined, ((B, time, 7),), (1, 0)) for time in (2 * B, None)),
        *((tf.nn.relu, ((B, time, 7),), (1, 0, 0)) for time in (2 * B, None)),
        (tf.nn.relu, ((2 * B, B, 7),), (0, 1, 0)),  # the program names its batch
        (lambda x: tf.boolean_mask(x, x[:, 0] > 0), ((B, 5),), (1, 0)),
    ],
)
def test_where_the_batch_is_among_other_sizes(
    step: Any, shapes: Any, powers: tuple[int, ...]
) -> None:
    assert result(step, *shapes) == powers


@pytest.mark.parametrize("first", [B, None])
def test_an_identity_matrix_of_the_batch_holds_it_twice(first: int | None) -> None:
    (facts,), _ = facts_of_step(masked, (first, 48), (first, 48))
    matrices = [
        (fact.is_constant, fact.batch_powers[0])
        for name, fact in facts.ops.items()
        if name.startswith("eye/diag") and len(fact.output_shapes[0] or ()) == 2
    ]
    assert matrices == [(first is not None, (1, 1))]


def test_results_with_the_rows_of_an_argument_are_told_from_those_of_its_parts() -> None:
    kernel = tf.Variable(WIDE)

    def step(nodes: Any, edges: Any) -> Any:
        messages = tf.gather(tf.matmul(nodes, kernel), edges[:, 0], name="messages")
        return tf.math.unsorted_segment_sum(messages, edges[:, 1], tf.shape(nodes)[0])

    (facts,), _ = facts_of_step(step, (None, B), tf.TensorSpec((None, 2), tf.int32))
    rows = {name for name, fact in facts.ops.items() if fact.has_rows}
    assert rows == {"nodes", "edges", "MatMul"}


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


def test_gradients_of_what_is_broadcast_have_the_shape_that_they_are_given() -> None:
    # GIVEN sizes that are multiples of the batch, and gradients whose axes are computed while the
    # step runs
    def normalized(x: Any) -> Any:
        return x * tf.math.rsqrt(tf.reduce_mean(x**2, -1, keepdims=True))

    assert result(gradient(normalized), (None, B, 2 * B, B)) == (1, 0, 0, 0)
    summed = functools.partial(tf.raw_ops.Sum, keep_dims=True)
    assert result(
        lambda x: summed(input=x, axis=tf.range(tf.rank(x))[2:]), (None, B, 2 * B, B)
    ) == (1, 0, 0, 0)
    assert result(lambda x: tf.broadcast_to(x[:, :1], tf.shape(x)), (None, B)) == (1, 0)


def test_gradients_of_transposed_and_sliced_results_have_the_shape_of_what_they_are_for() -> None:
    def heads(x: Any) -> Any:
        return tf.transpose(tf.reshape(x, (-1, B, 4, B)), (0, 2, 1, 3)) ** 2

    assert result(gradient(heads), (None, B, 4 * B)) == (1, 0, 0)
    assert result(gradient(lambda x: x[:, 0] ** 2), (None, B, 2 * B)) == (1, 0, 0)
    # AND a product whose sum has an unknown rank when it is traced
    kernel = tf.constant(WIDE)
    product = gradient(lambda x: tf.matmul(tf.raw_ops.Reshape(tensor=x, shape=tf.shape(x)), kernel))
    assert result(product, (None, B, B)) == (1, 0, 0)


def test_a_part_of_a_batch_that_may_be_empty_holds_the_batch() -> None:
    # GIVEN the way in which TensorFlow takes a replica's part: the last one may be missing
    data = tf.data.Dataset.from_tensor_slices(np.ones((B, 2 * B), np.float32)).batch(B)

    def step(data: Any) -> Any:
        part = iter(data).get_next_as_optional()
        images = tf.cond(part.has_value(), part.get_value, lambda: tf.zeros((0, 2 * B)))
        images = tf.ensure_shape(images, (None, 2 * B))
        return tf.reshape(tf.nn.relu(images), (-1, 2, B))

    concrete = tf.function(step).get_concrete_function(data)
    call_notes.notes(concrete.graph)
    facts = graph_facts({}, lambda item: None, batch_size=B)
    call_notes.graphs.clear()
    (images,) = (fact for name, fact in facts[0].ops.items() if name == "Relu")
    (parted,) = (fact for name, fact in facts[0].ops.items() if name == "Reshape")
    assert images.batch_powers == ((1, 0),) and parted.batch_powers == ((1, 0, 0),)


def test_gradients_of_weights_do_not_hold_it_and_those_of_examples_do() -> None:
    kernel, image = tf.Variable(WIDE), tf.Variable(np.ones((3, 3, B, B), np.float32))
    assert result(gradient(lambda x: tf.matmul(x, kernel) ** 2, kernel), (B, B)) == (0, 0)
    convolved = gradient(lambda x: tf.nn.conv2d(x, image, 1, "SAME") ** 2, image)
    assert result(convolved, (B, 8, 8, B)) == (0, 0, 0, 0)
    assert result(gradient(lambda x: tf.add_n([x[row] ** 2 for row in range(3)])), (B, 4)) == (1, 0)
    for first in (B, None):  # of a mean
        powers = result(gradient(lambda x: tf.nn.moments(x, (0, 1, 2))[1] ** 2), (first, 8, 8, 3))
        assert powers is None or (powers[0] != 0 and not any(powers[1:]))


def test_what_is_drawn_for_each_example_or_collected_in_a_loop_is_as_open_as_they_are() -> None:
    kernel = tf.Variable(np.ones((4, 4, 3, 8), np.float32))

    def generate(x: Any) -> Any:
        drawn = tf.reshape(tf.random.normal((tf.shape(x)[0], 7 * 7 * 8)), (-1, 7, 7, 8))
        return tf.nn.conv2d_transpose(drawn, kernel, (tf.shape(x)[0], 14, 14, 3), 2)

    assert result(generate, (None, 5)) == (None, 0, 0, 0)
    assert result(generate, (4, 5), batch=4) == (1, 0, 0, 0)
    layer = keras.layers.SimpleRNN(8, return_sequences=True)
    layer.build((None, 5, 3))
    assert result(layer, (B, 5, 3)) == (1, 0, 0)
    assert result(layer, (None, 5, 3)) == (None, 0, 0)


def test_without_a_batch_size_open_dimensions_are_followed() -> None:
    assert result(lambda x: tf.matmul(x, WIDE), (None, B), batch=None) == (1, 0)


KINDS: dict[str, Any] = {"F": "layer", "B": "backward", "U": "update"}
VARIABLES = {
    "kernel_a": ("a/kernel", "net/a"),
    "kernel_b": ("b/kernel", "net/b"),
    "rate": ("rate", None),
}


class Named:
    """Stands for a variable, a layer, an op, or a weak reference to one."""

    def __init__(self, name: str, **attributes: Any) -> None:
        vars(self).update(attributes, name=name)

    def __call__(self) -> "Named":
        return self


class Graph:
    """A function graph of ops such as ``F sum AddN a b:1``: how it is made (F by a layer, B by a
    tape, U by an optimizer, O otherwise), name, type, inputs. An op that calls functions calls
    `callee`.

    Attributes:
        outputs: Names of the ops that the function returns; without them, all ops are needed.
        results: Numbers of results of ops that have not just one.
        integers: Names of the ops whose results are integers.
        gradients: Op, output and name of a variable for each noted gradient.
        spans: Instead of those of the ops' letters.
    """

    def __init__(
        self,
        ops: str,
        outputs: str = "",
        *,
        results: dict[str, int] | None = None,
        integers: str = "",
        gradients: tuple[tuple[str, int, str], ...] = (),
        spans: list[Span] | None = None,
        callee: "Graph | None" = None,
    ) -> None:
        self.name, self.version, self.inputs, self.captures, self._callee = (
            "step",
            1,
            [],
            [],
            callee,
        )
        self._ops: dict[str, Any] = {}
        made: list[Span] = []
        for number, text in enumerate(ops.split(",")):
            letter, name, kind, *inputs = text.split()
            sources = [source.partition(":") for source in inputs]
            op: Any = Named(
                name, type=kind, control_inputs=(), op_def=SimpleNamespace(is_stateful=False)
            )
            op.get_attr = lambda attribute: Named("inner") if attribute == "f" else False
            op.inputs = [self._ops[source].outputs[int(index or 0)] for source, _, index in sources]
            is_integer = name in integers.split()
            dtype = SimpleNamespace(
                is_integer=is_integer, name="int64" if is_integer else "float32", size=4
            )
            count = (results or {}).get(name, 1)
            shape = tf.TensorShape(None)
            op.outputs = [
                SimpleNamespace(op=op, value_index=at, dtype=dtype, shape=shape)
                for at in range(count)
            ]
            self._ops[name] = op
            if name in VARIABLES:
                self.captures.append((Named(name), op.outputs[0]))
            if letter in KINDS and made and made[-1].kind == KINDS[letter]:
                made[-1] = made[-1]._replace(end=number + 1)
            elif letter in KINDS:
                made.append(
                    Span(number, number + 1, 0, 0, KINDS[letter], LAYER if letter == "F" else None)
                )
        self.outputs = [self._ops[name].outputs[0] for name in outputs.split()]
        notes = call_notes.notes(self)
        notes.spans = made if spans is None else spans
        notes.gradients = [(name, index, Named(variable)) for name, index, variable in gradients]
        if callee is not None:
            callee.outer_graph = self  # type: ignore[attr-defined]

    def get_operations(self) -> list[Any]:
        return list(self._ops.values())

    def get_operation_by_name(self, name: str) -> Any:
        return self._ops[name]

    def _get_function(self, name: str) -> Any:
        return None if self._callee is None else SimpleNamespace(graph=self._callee)

    def facts(self) -> dict[str, OpFact]:
        """Those about the ops of the callee, if there is one."""
        found = graph_facts(
            {id(LAYER): "net/f"}, lambda one: VARIABLES.get(getattr(one, "name", ""))
        )
        call_notes.graphs.clear()
        return dict(found[-1].ops)

    def names(self, fact: str) -> set[str]:
        """Names of the ops that a fact is true of."""
        return {name for name, one in self.facts().items() if getattr(one, fact)}


LAYER = Named("f")


RUN = "F a Relu, F b Relu, B d_a ReluGrad a, B d_b ReluGrad b"
STEP = (
    "O x Placeholder, F relu Relu x, F add AddV2 relu x, B d_add ReluGrad relu, B d_x MatMul "
    "d_add x"
)
LOOP = "O list Placeholder, O value Relu, O push TensorListPushBack list value"
CALL = "F call PartitionedCall, F next Relu call, B d Mul call:1 call:7 next, B never Mul call:2"
AGAIN = "B a Relu, B d_a ReluGrad a"


@pytest.mark.parametrize(
    ("ops", "outputs", "saved"),
    [
        (f"{STEP}, U new AssignSub add d_x", "", {"relu", "x"}),
        # Ops that only read a shape save nothing, nor what TensorFlow does not run.
        ("F relu Relu, B shape Shape relu, B zeros Fill shape", "", set()),
        (RUN, "", {"a", "b"}),
        (RUN, "d_a", {"a"}),
        (AGAIN, "", set()),
        # Results of early ops for the others.
        ("F x Relu, B one Fill, B a Cast x, B b Neg a, B c Mul one b", "", {"x", "b"}),
    ],
)
def test_results_that_a_backward_op_reads_are_saved(
    ops: str, outputs: str, saved: set[str]
) -> None:
    assert Graph(ops, outputs).names("saved_for_backward") == saved


def test_results_of_a_layer_that_runs_in_the_backward_pass_are_saved() -> None:
    spans = [Span(0, 2, 0, 0, "backward", None), Span(0, 1, 1, 0, "layer", LAYER)]
    assert Graph(AGAIN, spans=spans).names("saved_for_backward") == {"a"}


@pytest.mark.parametrize(
    ("caller", "callee", "outputs", "saved"),
    [
        # What a loop pushes in the forward pass.
        ("F call PartitionedCall", LOOP, "", {"value"}),
        ("B call PartitionedCall", LOOP, "", set()),
        # Outputs that the caller's backward pass reads, of a function that has two or three.
        (CALL, "F a Relu, F b Relu", "a b", {"b"}),
        (CALL, "F a Relu, F b Relu, F c Relu", "a b c", {"b"}),
    ],
)
def test_results_of_a_called_function_are_saved(
    caller: str, callee: str, outputs: str, saved: set[str]
) -> None:
    returned = "d" if " d " in caller else ""
    graph = Graph(caller, returned, results={"call": 8}, callee=Graph(callee, outputs))
    assert graph.names("saved_for_backward") == saved


def test_a_buffer_may_be_reused_by_readers_of_the_same_pass_and_type() -> None:
    ops = (
        "F a MatMul, F relu Relu a, F argmax ArgMax a, F shape Shape a, F assert Assert a, B "
        "d_a ReluGrad a"
    )
    facts = Graph(ops, results={"assert": 0}, integers="argmax").facts()
    assert {name: fact.passes_to for name, fact in facts.items() if fact.passes_to} == {
        "a": ("relu",)
    }


def test_a_backward_op_reads_results_of_the_forward_pass_and_gradients() -> None:
    facts = Graph("F a Relu, B g Mul, B h Mul, B d Mul h a g a h, F f Mul a g").facts()
    reads = [(facts[name].forward_inputs, facts[name].gradient_inputs) for name in "df"]
    assert reads == [((1, 3), ("g", "h")), ((), ())]


def gradients(graph: Graph) -> dict[str, str | None]:
    return {name: one.gradient_of for name, one in graph.facts().items() if one.is_gradient}


def test_a_gradient_is_that_of_a_variable_with_an_owner() -> None:
    noted = (("a", 0, "kernel_a"), ("b", 0, "unknown"), ("elsewhere", 0, "kernel_a"))
    assert gradients(Graph("B a MatMul, B b MatMul, B c MatMul", gradients=noted)) == {"a": "net/a"}


@pytest.mark.parametrize(
    ("ops", "names"),
    [
        # The terms of a sum and values before a cast; not what another op reads as well, nor the
        # forward pass's.
        (
            "F x Relu, B half MatMul x, B cast Cast half, B shared MatMul, B reads Neg shared, B "
            "sum AddN cast shared x, B last Reshape sum",
            ("last", "sum", "cast", "half"),
        ),
        # The search ends at products of gradients and at placeholders.
        ("B a MatMul, B last Mul a", ("last",)),
        ("B a Placeholder, B last Identity a", ("last",)),
    ],
)
def test_what_a_gradient_is_made_of_is_a_gradient_too(ops: str, names: tuple[str, ...]) -> None:
    assert gradients(Graph(ops, gradients=(("last", 0, "kernel_a"),))) == dict.fromkeys(
        names, "net/a"
    )


@pytest.mark.parametrize(("index", "found"), [(1, {"b": "net/a"}), (2, {})])
def test_gradients_that_a_function_returns_are_its_callers(index: int, found: Any) -> None:
    callee = Graph("B a MatMul, B b MatMul", outputs="a b")
    noted = (("call", index, "kernel_a"),)
    graph = Graph("B call PartitionedCall", results={"call": 3}, gradients=noted, callee=callee)
    assert gradients(graph) == found


TAPE = (
    "F x Relu, B one Fill, B mask Cast x, B zeros ZerosLike x, B d Mul one mask, B kernel MatMul "
    "d x"
)
OTHER = ", B other MatMul mask, U update MatMul mask"


@pytest.mark.parametrize(
    ("more", "spans", "gradients", "expected"),
    [
        # Backward ops that depend on no gradient are early; one that makes zeros holds nothing.
        ("", [(1, 6)], "kernel", "mask"),
        ("", [(1, 6)], "", "mask"),
        # Nothing is without a tape or its first gradient: a tape that begins with something else,
        # or two of them.
        ("", [], "", ""),
        ("", [(0, 6)], "", ""),
        ("", [(1, 2), (2, 6)], "", ""),
        # One whose ops were removed changes nothing.
        *(("", [(1, 6), (start, 12)], "", "mask") for start in (6, 9)),
        # A gradient that does not depend on the tape's first one makes all unknown.
        (OTHER, [(1, 7)], "kernel other", ""),
        (OTHER, [(1, 7)], "kernel update", "mask other"),
        # The rows of a sparse gradient depend on none, and an op without results has no rows.
        (", B rows Reshape x", [(1, 7)], "kernel rows", "mask rows"),
        (", B none NoOp x", [(1, 7)], "kernel none", ""),
    ],
)
def test_backward_ops_that_depend_on_no_gradient_are_early(
    more, spans, gradients, expected
) -> None:
    noted = [Span(*ends, 0, 0, "backward", None) for ends in spans]
    noted += [Span(7, 8, 0, 0, "update", None)] if more == OTHER else []
    made = tuple((name, 0, "kernel_a") for name in gradients.split())
    graph = Graph(TAPE + more, integers="rows", results={"none": 0}, spans=noted, gradients=made)
    assert graph.names("gradient_free") == set(expected.split())


@pytest.mark.parametrize(("between", "dense"), [("Mul", {"sum"}), ("Square", set())])
def test_a_sparse_gradient_that_the_optimizer_makes_dense_is_a_gradient(
    between: str, dense: set[str]
) -> None:
    ops = (
        f"B values Reshape, B rows Reshape, U clipped {between} values, U sum UnsortedSegmentSum "
        "clipped rows"
    )
    noted = (("values", 0, "kernel_a"), ("rows", 0, "kernel_a"))
    facts = Graph(
        f"{ops}, U other UnsortedSegmentSum clipped clipped", integers="rows", gradients=noted
    ).facts()
    assert {name for name, one in facts.items() if one.made_dense} == dense
    assert {name for name in ("sum", "other") if facts[name].is_gradient} == dense


SOURCES = (
    "O kernel_a Placeholder, O kernel_b Placeholder, O rate Placeholder, B grad_a MatMul, B "
    "grad_b MatMul"
)


@pytest.mark.parametrize(
    ("ops", "layers"),
    [
        (
            "U scaled Mul rate grad_a, U new Mul kernel_a scaled, U square Mul grad_b",
            {"scaled": "net/a", "new": "net/a", "square": "net/b"},
        ),
        # A norm over all gradients belongs to no layer.
        ("U norm Mul grad_a grad_b, U clipped Mul grad_b norm", {"norm": None, "clipped": "net/b"}),
        # Gradients that are concatenated, summed over the workers, and split again: the parts are
        # their readers'.
        (
            "U concat Mul grad_b grad_a, U reduced Mul concat, U split Mul reduced, U part_a Mul "
            "split, U square_a Mul part_a, U new_a Mul kernel_a square_a, U part_b Mul split, U "
            "new_b Mul part_b kernel_b",
            {
                **dict.fromkeys(("concat", "reduced", "split")),
                **dict.fromkeys(("part_a", "square_a", "new_a"), "net/a"),
                **dict.fromkeys(("part_b", "new_b"), "net/b"),
            },
        ),
    ],
)
def test_an_update_belongs_to_the_layer_of_its_variable_or_gradient(ops: str, layers: Any) -> None:
    noted = (("grad_a", 0, "kernel_a"), ("grad_b", 0, "kernel_b"))
    facts = Graph(f"{SOURCES}, {ops}", gradients=noted).facts()
    assert {
        name: fact.layer for name, fact in facts.items() if fact.pass_name == "update"
    } == layers


def test_a_recording_reads_the_lines_of_a_limited_number_of_ops(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer = dense()

    def read(lines: SourceLines) -> list[bool]:
        found = graph_facts({id(layer): "net/dense"}, lambda item: None, lines)
        return [any(fact.line for fact in facts.ops.values()) for facts in found]

    def limited(limit: int) -> SourceLines:
        monkeypatch.setattr(frames, "MAX_OPS", limit)
        return SourceLines()

    graphs = [traced(lambda values: layer(values), tf.ones((4, 3)))]
    needed = next(limit for limit in range(100) if read(limited(limit)) == [True])
    # GIVEN a recording that may read the ops of two graphs but for one op, THEN what was read once
    # costs nothing
    lines = limited(2 * needed - 1)
    assert needed > 1 and [read(lines) for _ in range(3)] == [[True]] * 3
    # AND a graph with more ops than are left has no lines, nor does its trial cost any
    graphs.append(traced(lambda values: layer(values), tf.ones((4, 3))))
    assert [read(lines) for _ in range(2)] == [[True, False]] * 2
    assert read(limited(2 * needed)) == [True, True]


def test_a_graph_that_cannot_be_read_leaves_the_callees_of_the_others_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer, x = dense(), tf.ones((4, 3))

    def calling(name: str) -> Any:
        inner = tf.function(lambda values: layer(values), autograph=False)

        def step(values: Any) -> Any:
            return inner(values)

        step.__name__ = name
        return traced(step, x)

    first, second = calling("first"), calling("second")
    read = module._Graph.unrepeatable

    def failing(graph: Any) -> Any:
        if graph.graph.graph is first.graph:
            raise AssertionError("its variables are gone")
        return read(graph)

    monkeypatch.setattr(module._Graph, "unrepeatable", failing)
    found = facts_of(layer)
    assert [facts.name for facts in found if facts.root] == ["second"] == [second.graph.name]
    ((index,),) = [
        [at for _, at in called]
        for facts in found
        if facts.root
        for called in facts.callees.values()
    ]
    assert ops_of(found[index], "MatMul") and not found[index].root
