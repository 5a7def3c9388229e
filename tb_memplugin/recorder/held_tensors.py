"""Eager tensors that Python holds: data kept on the device, batches, constants; and models that nobody named.

Only Python's garbage collector knows them all, and asking it for all objects takes 50 to 100 ms on the training's
thread. So what was found is remembered, weakly, and it is asked again only where more is in use than variables and the
remembered tensors explain: for its young objects at first, for all of them ever more seldom.
"""

import gc
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tb_memplugin.trace import TensorFact

SEARCH_SHARE = 0.004
"""Share of the bytes in use that may be unexplained before Python's objects are searched."""
YOUNG = (0, 1)
"""Generations of the garbage collector that are searched when something new is there."""


class HeldTensors:
    """Remembers the tensors of one program from window to window."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, bool]] = {}  # id -> weak reference, whether of the training data
        self._models: dict[int, Any] = {}  # id -> weak reference
        self._left: Mapping[str, int] = {}  # by device, bytes that were unexplained after the last search
        self._windows = 0
        self._next_full_search = 0

    def find(
        self,
        in_use: Mapping[str, int],
        variables: Mapping[str, int],
        taken: Iterable[int | None],
        models: Iterable[Any],
    ) -> tuple[tuple[str, TensorFact], ...]:
        """Tensors with their devices.

        Args:
            in_use: Bytes in use by device.
            variables: Bytes of variables by device.
            taken: Addresses of variables.
            models: Whose inputs' and outputs' shapes tell training data.
        """
        self._windows += 1
        models = list(models)
        if self._unexplained(in_use, variables):
            self._search(models, YOUNG)
            if self._unexplained(in_use, variables) and self._windows > self._next_full_search:
                self._search(models, (None,))
                self._next_full_search = 2 * self._windows
            self._left = self._rest(in_use, variables)
        else:
            rest = self._rest(in_use, variables)
            self._left = {device: min(left, rest.get(device, left)) for device, left in self._left.items()}
        return tuple(self._facts(set(taken)))

    def models(self) -> list[Any]:
        """The program's models as far as searches found them."""
        alive = {key: reference() for key, reference in self._models.items()}
        self._models = {key: self._models[key] for key, model in alive.items() if model is not None}
        return [model for model in alive.values() if model is not None]

    def _alive(self) -> Iterator[tuple[Any, bool]]:
        for key, (reference, is_input) in list(self._known.items()):
            tensor = reference()
            if tensor is None:
                del self._known[key]
            else:
                yield tensor, is_input

    def _rest(self, in_use: Mapping[str, int], variables: Mapping[str, int]) -> dict[str, int]:
        """Bytes in use that neither variables nor the remembered tensors explain, by device."""
        from tb_memplugin.recorder.observe_variables import short_device, tensor_size

        rest = {device: size - variables.get(device, 0) for device, size in in_use.items()}
        for tensor, _ in self._alive():
            device = short_device(tensor.device)
            if device in rest:
                rest[device] -= tensor_size(tensor)
        return rest

    def _unexplained(self, in_use: Mapping[str, int], variables: Mapping[str, int]) -> bool:
        rest = self._rest(in_use, variables)
        return any(rest[device] - self._left.get(device, 0) > SEARCH_SHARE * size for device, size in in_use.items())

    def _search(self, models: list[Any], generations: Iterable[int | None]) -> None:
        import keras
        import tensorflow as tf

        kind, datasets, model_kinds = type(tf.constant(0)), _subclasses(tf.data.Dataset), _subclasses(keras.Model)
        tensors: list[Any] = []
        of_datasets: set[int] = set()
        for generation in generations:
            for item in gc.get_objects(generation=generation):
                if type(item) is kind:
                    tensors.append(item)
                elif type(item) in datasets:
                    of_datasets.update(id(tensor) for tensor in getattr(item, "_tensors", ()))
                elif type(item) in model_kinds:
                    self._models[id(item)] = weakref.ref(item)
        shapes = {shape for model in models for shape in _data_shapes(model)}
        for item in tensors:
            if item.dtype not in (tf.resource, tf.variant, tf.string):
                is_input = id(item) in of_datasets or (len(item.shape) > 1 and tuple(item.shape[1:]) in shapes)
                self._known[id(item)] = weakref.ref(item), is_input

    def _facts(self, taken: set[int | None]) -> Iterator[tuple[str, TensorFact]]:
        from tb_memplugin.recorder.observe_variables import short_device, tensor_address, tensor_size

        found: set[int] = set()
        for tensor, is_input in self._alive():
            address = tensor_address(tensor)
            if address is not None and address not in taken and address not in found:
                found.add(address)
                category: Any = "inputs" if is_input else "other_state"
                yield short_device(tensor.device), TensorFact(category, tensor_size(tensor), address)


def _data_shapes(model: Any) -> Iterator[tuple[int | None, ...]]:
    """Shapes of the model's inputs and outputs without the batch: data of these shapes is training data."""
    for name in ("inputs", "outputs"):
        tensors = getattr(model, name, None)
        for tensor in tensors if isinstance(tensors, (list, tuple)) else ():
            yield tuple(tensor.shape[1:])


def _subclasses(kind: type) -> set[type]:
    found: set[type] = {kind}
    child: type
    for child in kind.__subclasses__():
        found |= _subclasses(child)
    return found
