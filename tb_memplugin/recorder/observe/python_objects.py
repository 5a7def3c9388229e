"""Finds eager tensors, variables, models and input pipelines among Python's objects, and remembers them weakly.

Only Python's garbage collector knows them all, and listing all objects takes 0.1 to 0.2 s on the training's thread. So
the objects that were found are remembered; `HeldTensors` decides when to search again.
"""

import gc
import weakref
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from tb_memplugin.recorder.observe.captures import Captures
from tb_memplugin.recorder.observe.heap import objects_of

YOUNG = (0, 1)
"""Generations of the garbage collector that hold objects made recently."""
ALL = (None,)
"""All generations."""


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
        self._promotions = -1
        self._tensors: dict[int, KnownTensor] = {}  # by id, as all below; to weak references
        self._variables: dict[int, Any] = {}
        self._models: dict[int, Any] = {}
        self._datasets: dict[int, Any] = {}

    @property
    def promoted(self) -> bool:
        """Whether objects made since `search_all` may have left the young generations."""
        return _promotions() != self._promotions

    def search(self, generations: Iterable[int | None]) -> None:
        """Search generations of the garbage collector: `YOUNG` or `ALL`."""
        import keras
        import tensorflow as tf

        eager_tensor, graph_kinds = tf.__internal__.EagerTensor, _subclasses(tf.__internal__.FuncGraph)
        dataset_kinds, model_kinds = _subclasses(tf.data.Dataset), _subclasses(keras.Model)
        variable_kinds = _subclasses(tf.Variable)
        kinds = {eager_tensor, *graph_kinds, *dataset_kinds, *model_kinds, *variable_kinds}
        tensors: list[Any] = []
        graphs: list[Any] = []
        for item in chain.from_iterable(objects_of(kinds, generation) for generation in generations):
            if type(item) is eager_tensor:
                tensors.append(item)
            elif type(item) in dataset_kinds:
                if getattr(item, "_tensors", ()):
                    self._datasets[id(item)] = weakref.ref(item)
            elif type(item) in variable_kinds:
                if hasattr(item, "handle") and tf.executing_eagerly():
                    self._variables[id(item)] = weakref.ref(item)
            elif type(item) in model_kinds:
                self._models[id(item)] = weakref.ref(item)
            else:
                graphs.append(item)
        self.add(tensors)
        self.captures.read(graphs)

    def search_all(self) -> None:
        """Search all generations."""
        self._promotions = _promotions()
        self.search(ALL)

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
        """Remembered models that are alive."""
        return _alive(self._models)

    def dataset_tensors(self) -> set[int]:
        """Ids of the tensors that datasets were made from."""
        return {id(tensor) for dataset in _alive(self._datasets) for tensor in dataset._tensors}


def _promotions() -> int:
    """Collections so far that moved objects to the oldest generation."""
    return sum(int(of_generation["collections"]) for of_generation in gc.get_stats()[1:])


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
