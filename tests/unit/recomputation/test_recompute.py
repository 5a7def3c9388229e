"""A segment that is recomputed: its results, losses, updates and gradients are those of an ordinary call."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tb_memplugin.errors import RecomputationError
from tb_memplugin.recomputation.recompute import Segment, _dependent

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


def results(layer: Any, inputs: Any, recomputed: bool) -> Sequence[Any]:
    """Outputs, losses, gradients of inputs and weights, and variables after one call."""
    inputs = tf.constant(inputs)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        if recomputed:
            outer = Outer(layer)
            outputs = outer(inputs, training=True)
            losses = outer.losses
        else:
            outputs = keras.tree.flatten(layer(inputs, training=True))
            losses = layer.losses
        total = tf.add_n([tf.reduce_sum(tf.cast(one, tf.float32) ** 2) for one in (*outputs, *losses)])
    gradients = tape.gradient(total, [inputs, *(variable.value for variable in layer.trainable_variables)])
    return [*outputs, *losses, *gradients, *(variable.numpy() for variable in layer.variables)]


class Outer(L.Layer):  # type: ignore[misc]
    """A layer that recomputes another one."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def call(self, inputs: Any) -> Any:
        return Segment([self.layer]).recompute(run_of(self.layer), [inputs])


class WithInteger(L.Layer):  # type: ignore[misc]
    """Returns a number without a gradient before one with a gradient."""

    def call(self, inputs: Any) -> Any:
        return tf.argmax(inputs, axis=1), 3 * inputs


@pytest.mark.parametrize(
    "make",
    [
        lambda: L.Dense(2, activation="relu"),
        lambda: L.Dense(2, activity_regularizer="l2"),
        lambda: L.BatchNormalization(),
        lambda: L.Dropout(0.5, seed=3),
        WithInteger,
    ],
)
def test_everything_that_a_call_gives_is_that_of_the_plain_layer(make: Any) -> None:
    plain, other = (built(make(), X) for _ in range(2))
    for source, target in zip(plain.variables, other.variables, strict=True):
        target.assign(source)
    expected, received = results(plain, X, recomputed=False), results(other, X, recomputed=True)
    assert len(expected) == len(received)
    for one, two in zip(expected, received, strict=True):
        np.testing.assert_allclose(np.asarray(two), np.asarray(one), rtol=1e-5, atol=1e-6)


def test_masks_go_in_and_come_out() -> None:
    masking = L.Masking(0.0)
    inputs = tf.constant([[[0.0], [1.0]], [[2.0], [0.0]]])
    masked = masking(inputs)
    last = built(L.LSTM(2, return_sequences=True), masked)
    (output,) = Segment([last]).recompute(run_of(last), [masked])
    np.testing.assert_array_equal(output._keras_mask, masked._keras_mask)
    np.testing.assert_allclose(output, last(masked), rtol=1e-6)
    # AND without a mask, the result is another one and has none
    (unmasked,) = Segment([last]).recompute(run_of(last), [inputs])
    assert getattr(unmasked, "_keras_mask", None) is None
    assert not np.allclose(unmasked, output)


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
