"""Facts about `tf.data` pipelines, from their own objects: batch sizes, caches in memory, bytes in buffers.

TensorFlow keeps a model of each pipeline for its autotuning: each buffer and cache in memory counts the elements in it.
A pipeline without autotuning has no model, and iterators over several devices do not return theirs.
"""

import logging
import math
import weakref
from typing import Any

from tb_memplugin.recorder.base import changes

logger = logging.getLogger("tb_memplugin")

MAX_DATASETS = 64
"""Most datasets below one dataset that are examined."""
MAX_ITERATORS = 64
"""More live iterators are not read."""
_OTHER_LENGTH = ("Unbatch", "FlatMap", "Interleave", "Filter", "Window", "GroupBy", "Sample", "Choose", "Rebatch")
"""In the names of datasets whose elements are not a fixed number of their input's."""


def batch_size(dataset: Any) -> int | None:
    """Examples in the batches that a dataset makes itself; None if it makes none or its size is unknown."""
    size = getattr(dataset, "_batch_size", None)
    if size is None:  # a data set of batches that is cut into those of the replicas
        sizes = getattr(dataset, "_batch_sizes", None)
        parts = {int(part) for part in sizes.numpy().flat} if sizes is not None else set()
        return parts.pop() if len(parts) == 1 else None
    return int(size)


def batch_below(dataset: Any) -> int | None:
    """Size of the full batches that a dataset makes or takes over from those below it; None if these differ."""
    sizes: set[int | None] = set()
    pending = [dataset]
    for _ in range(MAX_DATASETS):
        if not pending:
            break
        one = pending.pop()
        size, inputs = batch_size(one), one._inputs()
        if size is not None or not inputs or _has_other_length(one):
            sizes.add(size)
        else:
            pending.extend(inputs)
    return sizes.pop() if len(sizes) == 1 else None


def _has_other_length(dataset: Any) -> bool:
    return any(part in type(dataset).__name__ for part in _OTHER_LENGTH)


class DatasetCaches:
    """The caches below the iterators of one process; no method raises. An iterator over another cache sets
    `changed`."""

    def __init__(self) -> None:
        self.changed = False
        self._iterators: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._caches: dict[int, tuple[Any, int | None]] = {}  # by id; weak reference and bytes

    def iterated(self, iterator: Any) -> None:
        if self._iterators.get(id(iterator)) is iterator:
            return
        try:
            self._iterators[id(iterator)] = iterator
            dataset = getattr(iterator, "_dataset", None)
            if dataset is not None:
                self._note(dataset)
        except Exception:
            logger.debug("a dataset could not be examined", exc_info=True)

    def now(self) -> tuple[int, int | None]:
        """Number of the datasets that cache in memory, and the bytes that they hold when full, if known."""
        self._caches = {key: one for key, one in self._caches.items() if one[0]() is not None}
        sizes = [size for _, size in self._caches.values()]
        known = [size for size in sizes if size is not None]
        return len(sizes), sum(known) if len(known) == len(sizes) else None

    def _note(self, dataset: Any) -> None:
        pending: list[tuple[Any, int | None]] = [(dataset, 1)]
        for _ in range(MAX_DATASETS):
            if not pending:
                return
            dataset, elements = pending.pop()
            if type(dataset).__name__ == "CacheDataset":
                if not bytes(dataset._filename.numpy()) and id(dataset) not in self._caches:
                    size = element_bytes(dataset)
                    size = None if size is None or elements is None else size * elements
                    self._caches[id(dataset)] = weakref.ref(dataset), size
                    self.changed = True
                    changes.note()
                continue  # a cache below this one is full when this one is
            if _has_other_length(dataset):
                elements = None
            elif elements is not None:
                elements = elements * (batch_size(dataset) or 1)
            pending.extend((below, elements) for below in dataset._inputs())


def element_bytes(dataset: Any) -> int | None:
    """Bytes of one element of a dataset, each tensor rounded up as the allocator does; None if a shape is unknown."""
    import tensorflow as tf

    total = 0
    for spec in tf.nest.flatten(dataset.element_spec):
        if not isinstance(spec, tf.TensorSpec) or spec.shape.rank is None or spec.dtype in (tf.string, tf.variant):
            return None
        sizes = spec.shape.as_list()
        if sizes and sizes[0] is None:
            sizes[0] = batch_below(dataset)
        if None in sizes:
            return None
        total += -(-max(1, math.prod(sizes) * spec.dtype.size) // 256) * 256
    return total


class DataPipelines:
    """Notes iterators weakly, while it is `active`. Any thread may call a method."""

    def __init__(self) -> None:
        self.active = False
        self._prepared = False
        self._iterators: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def note(self, iterator: Any) -> None:
        """Note an iterator that was made eagerly. The first one is read, so that no step waits for what that loads."""
        import tensorflow as tf

        resource = getattr(iterator, "_iterator_resource", None)
        if self.active and (resource is None or isinstance(resource, tf.__internal__.EagerTensor)):
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


def makes_iterator(original: Any, self: Any, /, *args: Any, **kwargs: Any) -> None:
    original(self, *args, **kwargs)
    try:
        data_pipelines.note(self)
    except Exception:  # recording must not stop the program
        data_pipelines.active = False


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
