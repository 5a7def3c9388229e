"""The model's tree of layers, read from Keras, or of modules, read from `tf.Module`."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class LayerNode:
    """A layer and its path in the model's tree, such as ``sequential/vgg16/block1_conv2``.

    The path of a module consists of attributes: ``mlp/layers/0``.
    """

    path: str
    layer: Any  # keras.Layer or tf.Module


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
    """Whether an object is a layer or model of Keras."""
    return hasattr(item, "_flatten_layers")


def is_module(item: Any) -> bool:
    """Whether an object is a `tf.Module` that is no layer of Keras."""
    import tensorflow as tf

    return isinstance(item, tf.Module) and not is_layer(item)


def children(layer: Any) -> list[tuple[str, Any]]:
    """(name, layer) of the layers directly inside a layer; a module's are named by attribute and position."""
    if is_layer(layer):
        return [(child.name, child) for child in layer._flatten_layers(include_self=False, recursive=False)]
    found = layer._flatten(recursive=False, predicate=lambda item: is_layer(item) or is_module(item), with_path=True)
    return [("/".join(map(str, path)), child) for path, child in found]


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


def variable_bytes(variable: Any) -> int:
    """Requested bytes of a Keras or TensorFlow variable: elements × size of the dtype."""
    import keras
    import numpy as np

    name = keras.backend.standardize_dtype(variable.dtype)
    size = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "bool": 1}.get(name) or np.dtype(name).itemsize
    return int(math.prod(variable.shape)) * int(size)
