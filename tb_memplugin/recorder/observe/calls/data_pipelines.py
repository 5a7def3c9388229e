"""Bytes that ``tf.data`` buffers, from its own model of the pipelines of all live iterators.

TensorFlow keeps the model for its autotuning: each buffer and cache in memory counts the elements in it. A pipeline
without autotuning has no model, and iterators over several devices do not return theirs.
"""

import functools
import weakref
from typing import Any

MAX_ITERATORS = 64
"""More live iterators are not read."""


class DataPipelines:
    """Notes iterators weakly. Any thread may call a method.

    Attributes:
        active: Whether iterators are noted.
    """

    def __init__(self) -> None:
        self.active = False
        self._prepared = False
        self._iterators: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def note(self, iterator: Any) -> None:
        """Note an iterator that was made eagerly. The first one is read, so that no step waits for what that loads."""
        if not self.active or _is_symbolic(iterator):
            return
        self._iterators[id(iterator)] = iterator
        if not self._prepared:
            self._prepared = True
            _nodes(iterator)

    def buffered_bytes(self) -> int | None:
        """Bytes in buffers and caches; None if unknown. Takes some 0.05 ms per iterator."""
        import tensorflow as tf

        iterators = list(self._iterators.values())
        if not iterators or len(iterators) > MAX_ITERATORS or not tf.executing_eagerly():
            return None
        buffers, caches = 0, set()
        for iterator in iterators:
            nodes = _nodes(iterator)
            if nodes is None:
                return None
            for node in nodes:
                if "MemoryCache" in node.name:
                    # Iterators over the same cached dataset share the cache.
                    caches.add((node.buffered_elements, node.buffered_bytes))
                else:
                    buffers += node.buffered_bytes
        return int(buffers + sum(size for _, size in caches))


data_pipelines = DataPipelines()


def makes_iterator(original: Any) -> Any:
    """Wrapper of the constructor of an iterator."""

    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        try:
            data_pipelines.note(self)
        except Exception:  # recording must not stop the program
            data_pipelines.active = False

    return call


def _is_symbolic(iterator: Any) -> bool:
    import tensorflow as tf

    resource = getattr(iterator, "_iterator_resource", None)
    return resource is not None and not isinstance(resource, tf.__internal__.EagerTensor)


def _nodes(iterator: Any) -> list[Any] | None:
    """The nodes of an iterator's pipeline; None if TensorFlow has no model of it."""
    import tensorflow as tf
    from tensorflow.core.framework import model_pb2

    resource = getattr(iterator, "_iterator_resource", None)
    if resource is None:
        return None
    try:
        serialized = tf.raw_ops.IteratorGetModelProto(iterator=resource).numpy()
    except (tf.errors.OpError, AttributeError):
        return None
    return list(model_pb2.ModelProto.FromString(serialized).nodes.values())
