"""Batches of any size from a few examples of the user's data, taken from a copy of the dataset."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tb_memplugin.errors import RecordingError

_KINDS = (
    "data must be a tf.data.Dataset of batches, a tuple (x, y) or (x, y, sample_weight) of arrays, or a batch of inputs"
)


class Examples:
    """Examples of the user's data, held in host memory outside of TensorFlow's allocators. Takes at most `count`. Reads
    no more batches of a dataset than these need, and does not change what later iterations of it yield. Raises
    `RecordingError` if the data is empty or of another kind."""

    def __init__(self, data: Any, count: int) -> None:
        batches = _batches_of(data) if isinstance(data, tf.data.Dataset) else iter([_single(data)])
        parts: list[list[Any]] = []
        taken = 0
        for batch in batches:
            leaves = [_as_array(leaf) for leaf in tf.nest.flatten(batch)]
            size = _size(leaves)
            self._structure = tf.nest.map_structure(lambda _: None, batch)
            if size:
                parts.append([leaf[: count - taken] for leaf in leaves])
                taken += min(size, count - taken)
            if taken >= count:
                break
        if not parts:
            raise RecordingError("data is empty. Pass at least one batch with one example.")
        self._leaves = [np.concatenate(columns) for columns in zip(*parts, strict=True)]

    def batch(self, size: int) -> Any:
        return tf.nest.pack_sequence_as(self._structure, [leaf[:size] for leaf in self._leaves])

    def batches(self, size: int) -> Any:
        """An endless dataset of batches of a size; examples repeat if there are too few. One op makes a batch. To join
        single examples, tf.data allocates each of them, which hides what a batch needs."""
        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        examples = tf.nest.pack_sequence_as(self._structure, self._leaves)
        count = _size(self._leaves)

        def taken(all_examples: Any) -> Any:
            # The default leaves the batch dimension open, as it is in a dataset's own batches.
            rows = tf.range(tf.compat.v1.placeholder_with_default(size, [])) % count
            return tf.nest.map_structure(lambda leaf: tf.gather(leaf, rows), all_examples)

        return tf.data.Dataset.from_tensors((examples,)).repeat().map(taken).with_options(options)


def _batches_of(dataset: Any) -> Iterator[Any]:
    try:
        copy = copied(dataset)
        with tf.device("/CPU:0"):
            batches: Iterator[Any] = iter(copy)
    except (tf.errors.OpError, ValueError, RuntimeError) as error:
        raise RecordingError(
            f"data cannot be copied, and iterating over it would change what it yields later ({error!s:.200}). Pass a "
            "batch of arrays instead."
        ) from error
    return batches


def _single(data: Any) -> Any:
    if data is None or isinstance(data, (str, bytes)) or callable(data) or hasattr(data, "__next__"):
        raise RecordingError(f"{_KINDS}. Received: {type(data).__name__}")
    if isinstance(data, tuple):
        if not 1 <= len(data) <= 3:
            raise RecordingError(f"{_KINDS}. Received: a tuple of {len(data)}")
        while len(data) > 1 and data[-1] is None:
            data = data[:-1]
        return data
    return (data,)


def _as_array(leaf: Any) -> Any:
    """A copy of a dense tensor in host memory, of shape [examples, ...]."""
    try:
        array = np.array(leaf.numpy() if tf.is_tensor(leaf) else leaf)
    except (AttributeError, TypeError, ValueError):  # sparse, ragged, or no tensor at all
        array = np.array(None)
    if array.ndim == 0 or (array.dtype == object and not all(isinstance(one, (bytes, str)) for one in array.flat)):
        raise RecordingError(f"{_KINDS}, each with the examples as its first dimension. Received: {leaf!r:.120}")
    return array


def _size(leaves: list[Any]) -> int:
    sizes = {len(leaf) for leaf in leaves}
    if len(sizes) != 1:
        raise RecordingError(
            f"all arrays of data must have the same number of examples. Received: {sorted(sizes)}"
            if sizes
            else f"{_KINDS}. Received: no array"
        )
    return sizes.pop()


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
    """A copy of a dataset; TensorFlow raises if it cannot be copied, for example because it holds more than 2 GiB."""
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
