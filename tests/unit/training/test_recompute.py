"""A segment that is recomputed: its results, losses, updates and gradients are those of an ordinary call."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tb_memplugin.errors import RecomputationError
from tb_memplugin.training.recompute import Segment, _dependent

L = keras.layers
X = np.random.default_rng(5).normal(size=(4, 3)).astype("float32")


def run_of(*layers: Any) -> Any:
    """Runs layers in a row on one tensor."""

    def run(tensors: list[Any], after: Callable[[str], None]) -> list[Any]:
        (tensor,) = tensors
        for layer in layers:
            tensor = layer(tensor)
            after(layer.name)
        return keras.tree.flatten(tensor)

    return run


def built(layer: Any, inputs: Any) -> Any:
    layer(inputs)
    return layer


def ops_of(layer: Any, inputs: Any, jit_compile: bool = False) -> set[str]:
    """Types of the ops of a function that calls the layer, recomputed, and takes the gradients of its inputs."""
    segment = Segment([layer])

    @tf.function(jit_compile=jit_compile)
    def step(values: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(values)
            (output,) = segment.recompute(run_of(layer), [values])
        return output, tape.gradient(output, values)

    graph = step.get_concrete_function(tf.TensorSpec(inputs.shape, inputs.dtype)).graph
    return {op.type for op in graph.get_operations()}


@pytest.mark.parametrize("trainable", [False, True])
def test_a_segment_that_needs_no_gradient_runs_as_an_ordinary_call(trainable: bool) -> None:
    tokens = tf.constant([[1, 2], [0, 3]])
    layer = built(L.Embedding(5, 4), tokens)
    layer.trainable = trainable
    # THEN its function has no op of a gradient of its own
    assert ("IdentityN" in ops_of(layer, tokens)) is trainable
    (output,) = Segment([layer]).recompute(run_of(layer), [tokens])
    np.testing.assert_array_equal(output, layer(tokens))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_under_xla_the_second_pass_depends_on_the_gradients(jit_compile: bool) -> None:
    layer = built(L.Dense(2), X)
    assert ("SelectV2" in ops_of(layer, tf.constant(X), jit_compile)) is jit_compile


@pytest.mark.parametrize(
    "upstream", [tf.constant([[2.0, 3.0]]), tf.IndexedSlices(tf.constant([[0.0]]), tf.constant([1]))]
)
def test_what_depends_on_the_gradients_has_the_same_values(upstream: Any) -> None:
    first, second = _dependent([tf.constant([1.0, -2.0]), tf.constant([3])], [upstream])
    assert first.numpy().tolist() == [1.0, -2.0] and second.numpy().tolist() == [3]


def test_only_dense_tensors_are_taken() -> None:
    layer = built(L.Dense(2, name="dense"), X)
    with pytest.raises(RecomputationError) as raised:
        Segment([layer]).recompute(run_of(layer), [tf.ragged.constant([[1.0], [2.0]])])
    assert str(raised.value) == (
        "Layer dense cannot be recomputed exactly: it takes a RaggedTensor. Only dense tensors can be."
    )


def test_a_segment_is_checked_at_its_first_call_only() -> None:
    layer = built(L.Dense(2), X)
    run, segment, calls = run_of(layer), Segment([layer]), []

    def counted(tensors: list[Any], after: Callable[[str], None]) -> list[Any]:
        calls.append(1)
        found: list[Any] = run(tensors, after)
        return found

    assert segment.check(counted, [tf.constant(X)]) == layer.variables
    count = len(calls)
    assert segment.check(counted, [tf.constant(X)]) == layer.variables
    assert count > 0 and len(calls) == count
