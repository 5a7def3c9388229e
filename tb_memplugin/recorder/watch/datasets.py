"""`tf.data`: the sizes of a data set's batches, its caches in memory, and the buffers of its
iterators.

TensorFlow keeps a model of each pipeline for its autotuning: each buffer and cache in memory counts
the elements in it. A pipeline without autotuning has no model, and iterators over several devices
do not return theirs."""

import math
import re
from collections.abc import Iterable
from typing import Any

from tb_memplugin.recorder.base import (
    ByIdentity,
    asked,
    changes,
    is_a,
    own,
    own_list,
    quiet,
)
from tb_memplugin.schema import PipelineStage

MAX_DATASETS = 64  # most datasets below one dataset that are examined
MAX_ITERATORS = 64  # more live iterators are not read
_OTHER_LENGTH = (
    "Unbatch",
    "FlatMap",
    "Interleave",
    "Filter",
    "Window",
    "GroupBy",
    "Sample",
    "Choose",
    "Rebatch",
)
"""In the names of datasets whose elements are not a fixed number of their input's."""


def dataset_of(value: Any) -> Any:
    """The `tf.data` data set that a value is, or takes elements from (of its first worker); None
    for others."""
    import tensorflow as tf

    for parts in ("_iterators", "_cloned_datasets"):
        value = next(iter(own_list(value, parts)), value)
    found = value if is_a(value, tf.data.Dataset) else own(value, "_dataset")
    return found if is_a(found, tf.data.Dataset) else None


def only(sizes: Iterable[int | None]) -> int | None:
    """The size that all are; None if they differ or are none."""
    different = set(sizes)
    return different.pop() if len(different) == 1 else None


def batch_size(dataset: Any) -> int | None:
    """Examples in the batches that a dataset makes itself; None if it makes none or its size is
    unknown."""
    if (size := own(dataset, "_batch_size")) is not None:
        return int(size)
    # of a data set of batches that is cut into those of the replicas
    sizes = own(dataset, "_batch_sizes")
    return None if sizes is None else only(int(part) for part in sizes.numpy().flat)


def _has_other_length(dataset: Any) -> bool:
    return any(part in type(dataset).__name__ for part in _OTHER_LENGTH)


def _size_and_inputs(dataset: Any) -> tuple[int | None, list[Any]]:
    return batch_size(dataset), list(dataset._inputs())


def batch_below(dataset: Any) -> int | None:
    """Size of the full batches that a dataset makes or takes over from those below it; None if
    these differ."""
    sizes: list[int | None] = []
    pending = [dataset]
    for _ in range(MAX_DATASETS):
        if not pending:
            break
        below = pending.pop()
        size, inputs = asked(below, _size_and_inputs) or (None, [])
        if size is not None or not inputs or _has_other_length(below):
            sizes.append(size)
        else:
            pending += inputs
    return only(sizes)


def element_bytes(dataset: Any) -> int | None:
    """Bytes of one element of a dataset, each tensor rounded up as the allocator does; None if a
    shape is unknown."""
    import tensorflow as tf

    total = 0
    for spec in tf.nest.flatten(dataset.element_spec):
        is_plain = isinstance(spec, tf.TensorSpec) and spec.dtype not in (tf.string, tf.variant)
        if not is_plain or spec.shape.rank is None:
            return None
        sizes: list[Any] = spec.shape.as_list()
        sizes[:1] = [batch_below(dataset) if one is None else one for one in sizes[:1]]
        if None in sizes:
            return None
        total += -(-max(1, math.prod(sizes) * spec.dtype.size) // 256) * 256
    return total


class DatasetCaches:
    """The caches below the iterators of one process; no method raises. A new one sets `changed`."""

    def __init__(self) -> None:
        self.changed = False
        self._iterators = ByIdentity[bool]()
        self._caches = ByIdentity[int | None]()  # to the bytes when full

    @quiet
    def iterated(self, iterator: Any) -> None:
        if iterator in self._iterators:
            return
        self._iterators.add(iterator)
        dataset = dataset_of(iterator)
        # with the number of its elements in one of the iterator's
        pending: list[tuple[Any, int | None]] = [] if dataset is None else [(dataset, 1)]
        for _ in range(MAX_DATASETS):
            if pending:
                dataset, elements = pending.pop()
                pending += asked(dataset, self._note, elements) or []

    def now(self) -> tuple[int, int | None]:
        """Number of the datasets that cache in memory, and the bytes that they hold when full, if
        known."""
        sizes = [size for _, size in self._caches.items()]
        return len(sizes), None if None in sizes else sum(size or 0 for size in sizes)

    def _note(self, dataset: Any, elements: int | None) -> list[tuple[Any, int | None]]:
        """Note a cache; the datasets below another one. A cache below a cache is full when that one
        is."""
        if type(dataset).__name__ == "CacheDataset":
            if not bytes(own(dataset, "_filename").numpy()) and dataset not in self._caches:
                size = element_bytes(dataset)
                is_known = size is not None and elements is not None
                self._caches[dataset] = (size or 0) * (elements or 0) if is_known else None
                self.changed = True
                changes.note()
            return []
        size, inputs = _size_and_inputs(dataset)
        if elements is not None:
            elements = None if _has_other_length(dataset) else elements * (size or 1)
        return [(below, elements) for below in inputs]


class DataPipelines:
    """Notes iterators weakly, while it is `active`. Any thread may call a method."""

    def __init__(self) -> None:
        self.active = False
        self._prepared = False
        self._iterators = ByIdentity[bool]()

    def note(self, iterator: Any) -> None:
        """Note an iterator that was made eagerly, or is used. The first one is read, so that no
        step waits for what that loads."""
        import tensorflow as tf

        resource = own(iterator, "_iterator_resource")
        if self.active and (resource is None or type(resource) is tf.__internal__.EagerTensor):
            self._iterators.add(iterator)
            if not self._prepared:
                self._prepared = True
                _nodes(iterator)

    def buffered_bytes(self) -> int | None:
        """Bytes in buffers and caches; None if unknown. Takes some 0.05 ms per iterator."""
        import tensorflow as tf

        iterators = list(self._iterators)
        if not iterators or len(iterators) > MAX_ITERATORS or not tf.executing_eagerly():
            return None
        pipelines = [_nodes(iterator) for iterator in iterators]
        if None in pipelines:
            return None
        nodes = [node for pipeline in pipelines for node in pipeline or ()]
        caches = [node for node in nodes if "MemoryCache" in node.name]
        # Iterators over the same cached dataset share the cache.
        different = {(node.buffered_elements, node.buffered_bytes) for node in caches}
        buffers = sum(node.buffered_bytes for node in nodes if "MemoryCache" not in node.name)
        return int(buffers + sum(size for _, size in different))

    def stages(self) -> tuple[PipelineStage, ...]:
        """The stages that have elements ready, the last ones of a pipeline first."""
        found = []
        for iterator in list(self._iterators)[:MAX_ITERATORS]:
            for node in sorted(_nodes(iterator) or (), key=lambda node: node.id):
                if node.buffered_elements > 0 and "MemoryCache" not in node.name:
                    stage = _stage_name(node), node.buffered_elements, node.buffered_bytes
                    found.append(stage)
        return tuple(found)


def _stage_name(node: Any) -> str:
    """As the program writes it, where it has a buffer: ``prefetch(12)``."""
    words = re.findall(r"[A-Z][a-z]+", node.name)
    name = "_".join(words).lower() or node.name
    sizes = [int(one.value) for one in node.parameters if one.name == "buffer_size"]
    return f"{name}({sizes[0]})" if sizes else name


data_pipelines = DataPipelines()


def _nodes(iterator: Any) -> list[Any] | None:
    """The nodes of an iterator's pipeline; None if TensorFlow has no model of it."""
    import tensorflow as tf
    from tensorflow.core.framework import model_pb2

    resource = own(iterator, "_iterator_resource")
    if resource is None:
        return None
    try:
        serialized = tf.raw_ops.IteratorGetModelProto(iterator=resource).numpy()
    except (tf.errors.OpError, AttributeError):
        return None
    return list(model_pb2.ModelProto.FromString(serialized).nodes.values())
