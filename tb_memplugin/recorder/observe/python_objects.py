"""Finds eager tensors, variables, models and input pipelines among Python's objects, and remembers them weakly.

Only Python's garbage collector knows them all, and listing all objects takes 0.1 to 0.2 s on the training's thread. So
all objects are searched once at most; later ones are found while they are young, or just before they grow old.
"""

import weakref
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from tb_memplugin.recorder.observe.captures import Captures
from tb_memplugin.recorder.observe.heap import objects_of
from tb_memplugin.recorder.observe.promotions import YOUNG, Promotions


class KnownTensor:
    """A remembered tensor.

    Attributes:
        reference: Weak reference to it.
        address: Of its data; 0 until it was read, None if unknown.
        held_by: Description of the object that holds it, None if unknown.
        next_search: First window in which to search for its holder again.
    """

    def __init__(self, tensor: Any) -> None:
        self.reference = weakref.ref(tensor)
        self.address: int | None = 0
        self.held_by: str | None = None
        self.next_search = 0


class PythonObjects:
    """The remembered objects of one program; for the training's thread.

    Attributes:
        captures: Tensors that function graphs captured.
    """

    def __init__(self) -> None:
        self.captures = Captures()
        self._promotions = Promotions(_kinds)
        self._searched_all = False
        self._tensors: dict[int, KnownTensor] = {}  # by id, as all below; to weak references
        self._variables: dict[int, Any] = {}
        self._models: dict[int, Any] = {}
        self._datasets: dict[int, Any] = {}

    def watch(self) -> None:
        """Catch objects that leave the young generations from now on."""
        self._promotions.start()

    def unwatch(self) -> None:
        """Stop `watch`."""
        self._promotions.stop()

    def search_new(self) -> None:
        """Find the young objects and those that grew old since `watch` or the last call."""
        kinds = _kinds()
        self._remember(chain(self._promotions.take(), *(objects_of(kinds, generation) for generation in YOUNG)))

    def search_all_once(self) -> None:
        """Search all objects, unless that was done before."""
        if not self._searched_all:
            self._searched_all = True
            self._remember(objects_of(_kinds()))

    def _remember(self, objects: Iterable[Any]) -> None:
        import keras
        import tensorflow as tf

        tensors: list[Any] = []
        graphs: list[Any] = []
        for item in objects:
            if type(item) is tf.__internal__.EagerTensor:
                tensors.append(item)
            elif isinstance(item, tf.data.Dataset):
                if getattr(item, "_tensors", ()):
                    self._datasets[id(item)] = weakref.ref(item)
            elif isinstance(item, tf.Variable):
                if hasattr(item, "handle") and tf.executing_eagerly():
                    self._variables[id(item)] = weakref.ref(item)
            elif isinstance(item, keras.Model):
                self._models[id(item)] = weakref.ref(item)
            else:
                graphs.append(item)
        self.add(tensors)
        self.captures.read(graphs)

    def add(self, tensors: Iterable[Any]) -> None:
        """Remember tensors, except those without plain bytes."""
        import tensorflow as tf

        for tensor in tensors:
            key = id(tensor)
            if (key not in self._tensors or self._tensors[key].reference() is not tensor) and tensor.dtype not in (
                tf.resource,
                tf.variant,
                tf.string,
            ):
                self._tensors[key] = KnownTensor(tensor)

    def tensors(self) -> Iterator[tuple[Any, KnownTensor]]:
        """Remembered tensors that are alive."""
        for key, known in list(self._tensors.items()):
            tensor = known.reference()
            if tensor is None:
                del self._tensors[key]
            else:
                yield tensor, known

    def variables(self) -> list[Any]:
        """Remembered variables that are alive."""
        return _alive(self._variables)

    def models(self) -> list[Any]:
        """Remembered models that are alive, without those that are part of another one."""
        models = _alive(self._models)
        parts = {id(part) for model in models for part in _parts(model)}
        return [model for model in models if id(model) not in parts]

    def dataset_tensors(self) -> set[int]:
        """Ids of the tensors that datasets were made from."""
        return {id(tensor) for dataset in _alive(self._datasets) for tensor in dataset._tensors}


def _kinds() -> set[type]:
    """The classes whose objects are remembered."""
    import keras
    import tensorflow as tf

    bases = (tf.__internal__.FuncGraph, tf.data.Dataset, tf.Variable, keras.Model)
    return {tf.__internal__.EagerTensor}.union(*map(_subclasses, bases))


def _parts(model: Any) -> list[Any]:
    """The layers of a model, and the functional model inside a sequential one, which has the same layers."""
    inner = getattr(model, "_functional", None)
    return [*model._flatten_layers(include_self=False), *([] if inner is None else [inner])]


def _alive(references: dict[int, Any]) -> list[Any]:
    """Weakly referenced objects that are alive; drops the other references."""
    alive = []
    for key, reference in list(references.items()):
        value = reference()
        if value is None:
            del references[key]
        else:
            alive.append(value)
    return alive


def _subclasses(kind: type) -> set[type]:
    kinds: set[type] = {kind}
    child: type
    for child in kind.__subclasses__():
        kinds |= _subclasses(child)
    return kinds
