"""Finds eager tensors, variables, models and input pipelines among Python's objects, and remembers them weakly.

Only Python's garbage collector knows them all, and listing all objects takes 0.1 to 0.3 s on the training's thread. So
objects are found while they are young, or just before they grow old; `misses` counts when one may have been missed.
"""

import weakref
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from tb_memplugin.recorder.heap.heap_listing import YOUNG, Promotions, objects_of, subclasses
from tb_memplugin.recorder.watch import PIPELINE_FUNCTION, is_module, model_classes, parts


class Captures:
    def __init__(self) -> None:
        self.graphs: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # to the graph's version
        self._constants: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._data: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._functions: dict[int, str] = {}

    def read(self, graphs: Iterable[Any]) -> None:
        """Read graphs that are new or have grown, and their outer graphs."""
        for graph in graphs:
            while graph is not None and hasattr(graph, "captures"):
                version = graph.version
                if self.graphs.get(graph) == version:
                    break
                self.graphs[graph] = version
                tensors = self._data if graph.name.startswith(PIPELINE_FUNCTION) else self._constants
                found = {id(external): external for external, _ in graph.captures if not hasattr(external, "graph")}
                tensors.update(found)
                self._functions.update(dict.fromkeys(found, graph.name))
                graph = getattr(graph, "outer_graph", None)
        if len(self._functions) > 2 * (len(self._constants) + len(self._data)):
            alive = {*self._constants.keys(), *self._data.keys()}
            self._functions = {key: name for key, name in self._functions.items() if key in alive}

    def is_data(self, tensor: Any) -> bool:
        """Whether a function of an input pipeline captured the tensor."""
        return self._data.get(id(tensor)) is tensor

    def function(self, tensor: Any) -> str | None:
        """Name of the function that captured a tensor last."""
        return self._functions.get(id(tensor))

    def is_constant(self, tensor: Any) -> bool:
        """Whether another function captured the tensor."""
        return self._constants.get(id(tensor)) is tensor


class KnownTensor:
    """A remembered tensor. Its address is 0 until it was read, None if unknown; its holder is searched again in window
    `next_search`."""

    def __init__(self, tensor: Any) -> None:
        self.reference = weakref.ref(tensor)
        self.address: int | None = 0
        self.held_by: str | None = None
        self.retaining_path: str | None = None
        self.next_search = 0


class PythonObjects:
    """The remembered objects of one program; for the training's thread."""

    def __init__(self) -> None:
        self.captures = Captures()
        self._promotions = Promotions(_kinds, next_tensor_number)
        self._misses_found = 0
        self._tensors: dict[int, KnownTensor] = {}  # by id, as all below
        self.handles: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self.variables: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._models: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._datasets: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

    def watch(self) -> None:
        """Know every object from now on, however old it gets, until `unwatch`."""
        self._promotions.start()

    def unwatch(self) -> None:
        self._promotions.stop()

    def search_new(self) -> None:
        """Find the young objects and those that grew old since `watch` or the last call."""
        kinds = _kinds()
        young = [objects_of(kinds, generation) for generation in YOUNG]
        # Taken last: a collection on another thread may have moved some before their generation was listed.
        self._remember(chain(*young, self._promotions.take()))

    @property
    def complete(self) -> bool:
        """Whether every object is known. If not, `search_all` finds what is missing."""
        return self._misses_found == self._promotions.misses > 0

    def search_all(self) -> None:
        self._misses_found = self._promotions.misses
        self._remember(objects_of(_kinds()))

    def _remember(self, objects: Iterable[Any]) -> None:
        import tensorflow as tf

        models = model_classes()
        tensors: list[Any] = []
        graphs: list[Any] = []
        for item in objects:
            if type(item) is tf.__internal__.EagerTensor:
                tensors.append(item)
            elif isinstance(item, tf.data.Dataset):
                if getattr(item, "_tensors", ()):
                    self._datasets[id(item)] = item
            elif isinstance(item, tf.Variable):
                if hasattr(item, "handle") and tf.executing_eagerly():
                    self.variables[id(item)] = item
            elif isinstance(item, models) or is_module(item):
                self._models[id(item)] = item
            elif isinstance(item, tf.__internal__.FuncGraph):
                graphs.append(item)
        self.add(tensors)
        self.captures.read(graphs)

    def add(self, tensors: Iterable[Any]) -> None:
        """Remember tensors, except those without plain bytes, and resource handles."""
        import tensorflow as tf

        for tensor in tensors:
            key, dtype = id(tensor), tensor.dtype
            if dtype == tf.resource:
                self.handles[key] = tensor
            elif dtype not in (tf.variant, tf.string) and (
                key not in self._tensors or self._tensors[key].reference() is not tensor
            ):
                self._tensors[key] = KnownTensor(tensor)

    def tensors(self) -> Iterator[tuple[Any, KnownTensor]]:
        for key, known in list(self._tensors.items()):
            tensor = known.reference()
            if tensor is None:
                del self._tensors[key]
            else:
                yield tensor, known

    def models(self) -> list[Any]:
        """Remembered models that are alive, without those that are part of another one."""
        models = list(self._models.values())
        inner = {id(part) for model in models for part in parts(model)}
        return [model for model in models if id(model) not in inner]

    def dataset_tensors(self) -> set[int]:
        return {id(tensor) for dataset in list(self._datasets.values()) for tensor in dataset._tensors}


def next_tensor_number() -> int:
    """The number that TensorFlow would give the next tensor; it then gives the one after it."""
    from tensorflow.python.framework import ops

    return int(ops.uid())


def _kinds() -> set[type]:
    import tensorflow as tf

    bases = (tf.__internal__.FuncGraph, tf.data.Dataset, tf.Variable, tf.Module, *model_classes())
    return {tf.__internal__.EagerTensor}.union(*map(subclasses, bases))
