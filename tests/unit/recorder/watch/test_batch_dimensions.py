"""Which dimensions of a function's results hold the batch, where sizes alone do not tell."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tb_memplugin.recorder.watch.batch_dimensions import BatchDimensions
from tb_memplugin.recorder.watch.graph_ops import GraphOps

B = 32
WIDE = np.ones((B, B), np.float32)
"""Weights with as many features as there are examples."""


def result(step: Callable[..., Any], *shapes: tuple[int | None, ...], batch: int | None = B) -> Any:
    """Powers of the batch in the dimensions of what a function returns."""
    specs = [tf.TensorSpec(shape, tf.float32) for shape in shapes]
    graph = tf.function(step).get_concrete_function(*specs).graph
    ops = GraphOps(graph)
    number, index = ops.output(0) or (0, 0)
    return BatchDimensions(ops, batch).powers[number][index]


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
def test_a_layer_as_wide_as_the_batch_is_told_from_it(
    step: Callable[..., Any], powers: tuple[int, ...], first: int | None
) -> None:
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
