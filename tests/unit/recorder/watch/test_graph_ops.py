"""Which ops of a function graph TensorFlow runs."""

from types import SimpleNamespace
from typing import Any

import pytest

from tb_memplugin.recorder.watch.call_notes import GraphNotes, Span
from tb_memplugin.recorder.watch.graph_ops import Call, GraphOps, OpLayers

tf = pytest.importorskip("tensorflow")


def test_ops_that_nothing_needs_are_known() -> None:
    # GIVEN a mean whose gradient for the divisor nobody asks for, and a variable that is assigned
    counter = tf.Variable(0.0)

    @tf.function
    def step(values):  # type: ignore[no-untyped-def]
        with tf.GradientTape() as tape:
            tape.watch(values)
            mean = tf.math.divide_no_nan(tf.reduce_sum(values, name="sum"), tf.cast(tf.size(values), "float32"))
        counter.assign_add(1.0)
        return tape.gradient(mean, values)

    ops = GraphOps(step.get_concrete_function(tf.TensorSpec((4,), tf.float32)).graph)
    needed = {ops.ops[number].name for number in ops.needed}
    readers = {op.name for op in ops.ops if any(tensor.op.name == "sum" for tensor in op.inputs)}
    # THEN those that read the sum for the divisor's gradient are not needed, and the others are
    gradients = {name for name in readers if name.startswith("gradient_tape")}
    assert gradients and not gradients & needed
    assert any(ops.types[number] == "AssignAddVariableOp" for number in ops.needed)
    assert all(ops.number[tensor.op.name] in ops.needed for tensor in ops.graph.outputs)


def test_without_outputs_all_ops_are_needed() -> None:
    @tf.function
    def step(values):  # type: ignore[no-untyped-def]
        tf.negative(values)

    ops = GraphOps(step.get_concrete_function(tf.TensorSpec((4,), tf.float32)).graph)
    assert "Neg" in ops.types and ops.needed == set(range(len(ops)))


VARIABLES = {"kernel_a": ("a/kernel", "net/a"), "kernel_b": ("b/kernel", "net/b"), "rate": ("rate", None)}


def update_layers(ops: dict[str, list[str]], gradients: dict[str, str]) -> dict[str, str | None]:
    """Op name to layer, for ops by name with the names of their inputs. All but placeholders and gradients are the
    update's; `gradients` are the layers of ops whose output is a gradient."""
    made: dict[str, Any] = {}
    for name, inputs in ops.items():
        tensors = [SimpleNamespace(op=made[source], value_index=0) for source in inputs]
        kind = "Placeholder" if name in VARIABLES else "Mul"
        made[name] = SimpleNamespace(name=name, type=kind, inputs=tensors, outputs=[])
    graph = GraphOps(SimpleNamespace(get_operations=lambda: list(made.values())))
    first = next(number for number, name in enumerate(ops) if name not in VARIABLES and name not in gradients)
    notes = GraphNotes()
    notes.spans = [Span(first, len(ops), 0, 0, "update", None)]
    layers = OpLayers(graph, notes, {}, Call(), None)
    layers.place_updates(VARIABLES, {graph.number[name]: layer for name, layer in gradients.items()})
    return {name: layers.layer[graph.number[name]] for name in ops if graph.number[name] >= first}


SOURCES: dict[str, list[str]] = {"kernel_a": [], "kernel_b": [], "rate": [], "gradient_a": [], "gradient_b": []}
GRADIENTS = {"gradient_a": "net/a", "gradient_b": "net/b"}


@pytest.mark.parametrize(
    ("ops", "layers"),
    [
        (
            {"scaled": ["rate", "gradient_a"], "new": ["kernel_a", "scaled"], "square": ["gradient_b"]},
            {"scaled": "net/a", "new": "net/a", "square": "net/b"},
        ),
        # A norm over all gradients belongs to no layer.
        ({"norm": ["gradient_a", "gradient_b"], "clipped": ["gradient_b", "norm"]}, {"norm": None, "clipped": "net/b"}),
    ],
)
def test_an_update_belongs_to_the_layer_of_its_variable_or_gradient(ops: Any, layers: Any) -> None:
    assert update_layers({**SOURCES, **ops}, GRADIENTS) == layers


def test_gradients_that_replicas_sum_in_one_tensor_belong_to_the_layers_that_read_the_parts() -> None:
    # GIVEN gradients that are concatenated, summed over the workers, and split again
    ops = {
        **SOURCES,
        "concat": ["gradient_b", "gradient_a"],
        "reduced": ["concat"],
        "split": ["reduced"],
        "part_a": ["split"],
        "square_a": ["part_a"],
        "new_a": ["kernel_a", "square_a"],
        "part_b": ["split"],
        "new_b": ["part_b", "kernel_b"],
    }
    layers = update_layers(ops, GRADIENTS)
    # THEN the whole belongs to no layer, and what each variable's update reads of it to the variable's
    assert {name for name, layer in layers.items() if layer is None} == {"concat", "reduced", "split"}
    assert {name for name, layer in layers.items() if layer == "net/a"} == {"part_a", "square_a", "new_a"}
    assert {name for name, layer in layers.items() if layer == "net/b"} == {"part_b", "new_b"}
