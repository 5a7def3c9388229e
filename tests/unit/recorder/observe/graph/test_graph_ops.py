"""Which ops of a function graph TensorFlow runs."""

import pytest

tf = pytest.importorskip("tensorflow")

from tb_memplugin.recorder.observe.graph.graph_ops import GraphOps  # noqa: E402


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
