"""What replicas send each other."""

import tensorflow as tf


def all_reduce(value: tf.Tensor) -> tf.Tensor:
    """The sum of a value over two replicas."""
    return tf.raw_ops.CollectiveReduceV2(
        input=value,
        group_size=2,
        group_key=1,
        instance_key=1,
        ordering_token=[],
        merge_op="Add",
        final_op="Id",
    )
