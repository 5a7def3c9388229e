"""Copies a `tf.data.Dataset`, so that taking batches does not change what later iterations of the original yield.

A dataset that shuffles draws new seeds at each iteration, and a cache keeps what the first one reads. Both live in
resources that the dataset's graph refers to; the copy gets its own.
"""

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

_OWN_RESOURCES = {
    "ShuffleDatasetV3": "DummySeedGenerator",
    "ShuffleAndRepeatDatasetV2": "DummySeedGenerator",
    "RandomDatasetV2": "DummySeedGenerator",
    "CacheDatasetV2": "DummyMemoryCache",
}
"""Op of a dataset to the op that stands for a resource of its own in place of a shared one."""
_IGNORE_STATE = 1
"""TensorFlow's `ExternalStatePolicy.POLICY_IGNORE`: lookup tables and Python functions are shared with the original."""


def copied(dataset: Any) -> Any:
    """A copy of a dataset.

    Raises:
        tf.errors.OpError, ValueError, RuntimeError: The dataset cannot be copied, for example because it holds more
            than 2 GiB.
    """
    with tf.device("/CPU:0"):
        serialized = tf.raw_ops.DatasetToGraphV2(
            input_dataset=tf.data.experimental.to_variant(dataset), external_state_policy=_IGNORE_STATE
        )
        graph = tf.compat.v1.GraphDef.FromString(serialized.numpy())
        for nodes in (graph.node, *(function.node_def for function in graph.library.function)):
            _detach(nodes)
        variant = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
        return tf.data.experimental.from_variant(variant, dataset.element_spec)


def _detach(nodes: Iterable[Any]) -> None:
    """Replace the shared resources of a graph's datasets."""
    named = {node.name: node for node in nodes}
    for node in list(named.values()):
        own = _OWN_RESOURCES.get(node.op)
        for name in node.input if own else ():
            source = named.get(name.partition(":")[0])
            if (
                source is not None
                and source.op == "Const"
                and source.attr["dtype"].type == tf.resource.as_datatype_enum
            ):
                source.op = own
                source.attr.clear()
                source.ClearField("input")
