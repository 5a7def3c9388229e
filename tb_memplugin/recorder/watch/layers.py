"""The models of Keras and `tf.Module`: their tree of layers, their variables, and the slots of their optimizers."""

import ctypes
import math
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tb_memplugin.schema import is_cpu


def packages() -> list[Any]:
    """Keras's packages that are imported completely: Keras 3, then Keras 2 (``tf_keras``) if the program imported it.

    With ``TF_USE_LEGACY_KERAS=1``, ``tf.keras`` is ``tf_keras`` as well.
    """
    import keras

    legacy = sys.modules.get("tf_keras")
    return [package for package in (keras, legacy) if hasattr(package, "Model")]


def model_classes() -> tuple[type, ...]:
    return tuple(package.Model for package in packages())


class LayerNode(NamedTuple):
    """A layer (keras.Layer or tf.Module) and its path in the model's tree, such as ``sequential/vgg16/block1_conv2``.

    The path of a module consists of attributes: ``mlp/layers/0``.
    """

    path: str
    layer: Any


def walk(model: Any) -> list[LayerNode]:
    """Every layer of the model, the model first, parents before children; a shared layer once, at its first place.

    Paths come from the tree of objects: name scopes and `layer.path` do not identify a layer. Siblings of equal name
    become ``name#2``, ``name#3``, … in the order in which Keras tracks them.
    """
    return list(_walk(model, model.name, set()))


def _walk(layer: Any, path: str, visited: set[int]) -> Iterator[LayerNode]:
    visited.add(id(layer))
    yield LayerNode(path, layer)
    names: dict[str, int] = {}
    for child_name, child in children(layer):
        if id(child) in visited or type(child).__name__ == "InputLayer":
            continue
        names[child_name] = names.get(child_name, 0) + 1
        name = child_name if names[child_name] == 1 else f"{child_name}#{names[child_name]}"
        yield from _walk(child, f"{path}/{name}", visited)


def is_layer(item: Any) -> bool:
    return hasattr(item, "_flatten_layers")


def is_module(item: Any) -> bool:
    """Whether an object is a module that is no layer of Keras."""
    import tensorflow as tf

    return isinstance(item, tf.Module) and not is_layer(item)


def children(layer: Any) -> list[tuple[str, Any]]:
    """(name, layer) of the layers directly inside a layer; a module's are named by attribute and position."""
    if is_layer(layer):
        return [(child.name, child) for child in layer._flatten_layers(include_self=False, recursive=False)]
    found = layer._flatten(recursive=False, predicate=lambda item: is_layer(item) or is_module(item), with_path=True)
    return [("/".join(map(str, path)), child) for path, child in found]


def parts(model: Any) -> list[Any]:
    """All layers of a model, and the functional model inside a sequential one, which has the same layers.

    Of a module, those directly inside it.
    """
    if is_module(model):
        return [child for _, child in children(model)]
    inner = getattr(model, "_functional", None)
    return [*model._flatten_layers(include_self=False), *([] if inner is None else [inner])]


def own_variables(nodes: list[LayerNode]) -> Mapping[str, list[Any]]:
    """Layer path to the layer's own weights; every weight once, at the innermost layer that tracks it.

    A layer claims its weights after all layers inside it, also those whose node is elsewhere: sub-models share layers.
    """
    owned: dict[str, list[Any]] = {}
    claimed: set[int] = set()
    waiting = {id(node.layer): node for node in nodes}
    for node in reversed(nodes):
        _claim(node.layer, waiting, claimed, owned)
    return owned


def _claim(layer: Any, waiting: dict[int, LayerNode], claimed: set[int], owned: dict[str, list[Any]]) -> None:
    """Add a layer's own weights, and first those of the layers inside it, to `owned`.

    Not a closure: one that calls itself is in a reference cycle, which would keep the weights alive.
    """
    node = waiting.pop(id(layer), None)
    if node is None:
        return
    for _, child in reversed(children(layer)):
        _claim(child, waiting, claimed, owned)
    mine = [weight for weight in variables_of(layer, "weights") if id(weight) not in claimed]
    claimed.update(id(weight) for weight in mine)
    owned[node.path] = mine


def variables_of(layer: Any, name: str) -> list[Any]:
    """The variables in an attribute of a layer or model; none of a model of Keras 2 that is not built yet.

    The weights of a module are its variables and those of the layers inside it.
    """
    if is_module(layer):
        own = layer.trainable_variables if name.startswith("trainable") else layer.variables
        inner = [variable for _, child in children(layer) for variable in variables_of(child, name)]
        return list({id(variable): variable for variable in (*own, *inner)}.values())
    try:
        return list(getattr(layer, name))
    except ValueError:
        return []


def tf_variable(variable: Any) -> Any:
    """The TensorFlow variable of a Keras variable; any other variable unchanged."""
    inner = getattr(variable, "_value", None)
    return inner if inner is not None and hasattr(inner, "handle") else variable


def replicas(value: Any) -> list[Any]:
    """The replicas of a distributed TensorFlow variable, or the variable itself; empty for other objects."""
    parts = getattr(value, "values", None) or (value,)
    return [part for part in parts if hasattr(part, "handle")]


def variable_bytes(variable: Any) -> int:
    """Requested bytes of a Keras or TensorFlow variable: elements × size of the dtype."""
    import keras

    return int(math.prod(variable.shape)) * item_bytes(keras.backend.standardize_dtype(variable.dtype))


def item_bytes(dtype: str) -> int:
    import numpy as np

    return int({"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}.get(dtype) or np.dtype(dtype).itemsize)


def tensor_size(tensor: Any) -> int:
    """Requested bytes of a tensor: elements × size of the dtype; 0 for an unknown shape."""
    return int(tensor.shape.num_elements() or 0) * int(tensor.dtype.size)


_copied: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Variables that TensorFlow copies whenever they are read, by id: those that were updated sparsely, for good."""
_MIN_COPY_BYTES = 64 << 10


def variable_address(variable: Any) -> int | None:
    """Address of the value of a TensorFlow variable.

    None if unknown: uninitialized, a string, on an accelerator without DLPack, or if TensorFlow copies the variable
    when it is read. Such a variable is read once, as the copy takes as much memory again.
    """
    if _copied.get(id(variable)) is variable:
        return None
    try:
        device, size = short_device(variable.device), tensor_size(variable)
        before = bytes_in_use(device) if size >= _MIN_COPY_BYTES else None
        value = variable.value()  # not read_value(), which copies to the default device
        if before is not None and (bytes_in_use(device) or 0) - before >= size:
            _copied[id(variable)] = variable
            return None
        return tensor_address(value)
    except Exception:
        return None


def bytes_in_use(device: str) -> int | None:
    """None of an allocator without statistics, such as the plain CPU allocator."""
    import tensorflow as tf

    try:
        return int(tf.config.experimental.get_memory_info(device)["current"])
    except Exception:
        return None


def tensor_address(tensor: Any) -> int | None:
    """Address of an eager tensor's data in device memory, None if unknown.

    Reads the data pointer at the start of the DLManagedTensor in a DLPack capsule. The capsule must be dropped at once:
    a second reference to a variable's buffer would make the next assignment copy it.
    """
    import tensorflow as tf

    try:
        capsule = tf.experimental.dlpack.to_dlpack(tensor)
    except Exception:
        return None
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    managed = pointer(capsule, b"dltensor")
    return ctypes.c_void_p.from_address(managed).value if managed else None


def short_device(name: str) -> str:
    """``GPU:0`` for ``/job:localhost/replica:0/task:0/device:GPU:0``. All CPUs share the allocator of ``CPU:0``."""
    short = name.rsplit("device:", 1)[-1]
    return short if short and not is_cpu(short) else "CPU:0"


class Slot(NamedTuple):
    """A variable of an optimizer, and the model's variable that it serves.

    That is None for scalars such as the step counter and the learning rate.
    """

    variable: Any
    of: Any | None


def slots(optimizer: Any, served: Iterable[Any] = ()) -> list[Slot]:
    """Every variable of a Keras optimizer, including those of an inner optimizer, each once.

    Keras keeps slots in lists parallel to the optimizer's trainable variables. Names are not used, because they repeat.
    Optimizers of Keras 2 do not refer to the model's variables that they serve, so these are given.
    """
    by_id: dict[int, Slot] = {}
    by_key = {_key_of_keras_2(variable): variable for variable in served}
    one = optimizer
    while one is not None:
        for slot in (*_parallel_slots(one, by_key), *_slots_by_key(one, by_key)):
            by_id.setdefault(id(slot.variable), slot)
        one = getattr(one, "inner_optimizer", None)
    for variable in all_variables(optimizer):
        by_id.setdefault(id(variable), Slot(variable, None))
    return list(by_id.values())


def all_variables(optimizer: Any) -> list[Any]:
    """They are a method of a legacy optimizer of Keras 2."""
    variables = optimizer.variables
    return list(variables if isinstance(variables, (list, tuple)) else variables())


def _parallel_slots(optimizer: Any, by_key: Mapping[Any, Any]) -> Iterator[Slot]:
    served = list(getattr(optimizer, "_trainable_variables", ()))
    keys = getattr(optimizer, "_index_dict", None)  # Keras 2: key of a variable to its place in the lists
    if keys:
        served = [by_key.get(key) for key in sorted(keys, key=keys.__getitem__)]
    own = {id(variable) for variable in getattr(optimizer, "_variables", ())}
    for name, value in vars(optimizer).items():
        is_parallel = isinstance(value, (list, tuple)) and len(value) == len(served)
        if is_parallel and name not in ("_variables", "_trainable_variables"):
            for variable, of in zip(value, served, strict=True):
                if id(variable) in own or _is_unlisted_placeholder(variable, of):
                    yield Slot(variable, of)


def _slots_by_key(optimizer: Any, by_key: Mapping[Any, Any]) -> Iterator[Slot]:
    """The slots of a legacy optimizer of Keras 2."""
    for key, by_name in getattr(optimizer, "_slots", {}).items():
        for variable in by_name.values():
            yield Slot(variable, by_key.get(key))


def _key_of_keras_2(variable: Any) -> Any:
    """The key by which an optimizer of Keras 2 knows a variable."""
    container = getattr(variable, "_distributed_container", None)
    return getattr(variable if container is None else container(), "_unique_id", None)


def _is_unlisted_placeholder(variable: Any, of: Any) -> bool:
    # Adafactor keeps scalar placeholders for weights that it does not factor, and omits them from its variables.
    return variable is not of and hasattr(variable, "value") and hasattr(variable, "assign")
