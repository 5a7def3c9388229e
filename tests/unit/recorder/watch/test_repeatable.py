"""Which ops repeat what they returned, against TensorFlow's own op definitions."""

import pytest
import tensorflow as tf

from tb_memplugin.recorder.watch.graph_ops import OF_VARIABLES, REPEATABLE, repeats


@pytest.mark.parametrize("name", sorted(REPEATABLE | OF_VARIABLES))
def test_each_op_exists(name: str) -> None:
    assert hasattr(tf.raw_ops, name)


def test_ops_with_a_state_of_their_own_do_not_repeat() -> None:
    @tf.function
    def function(text: tf.Tensor) -> tf.Tensor:
        tf.print(text)
        tf.debugging.assert_rank(text, 1)
        tf.print(tf.numpy_function(len, [text], tf.int64))
        return tf.random.uniform([]) + tf.random.stateless_uniform([], [1, 2])

    ops = function.get_concrete_function(tf.TensorSpec([None], tf.string)).graph.get_operations()
    assert {op.type for op in ops if not repeats(op.type, op.op_def.is_stateful)} == {"PyFunc", "RandomUniform"}
