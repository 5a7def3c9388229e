"""The model's tree of layers, read from Keras."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class LayerNode:
    """A layer and its path in the model's tree, such as ``sequential/vgg16/block1_conv2``."""

    path: str
    layer: Any  # keras.Layer


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
    for child in layer._flatten_layers(include_self=False, recursive=False):
        if id(child) in visited or type(child).__name__ == "InputLayer":
            continue
        names[child.name] = names.get(child.name, 0) + 1
        name = child.name if names[child.name] == 1 else f"{child.name}#{names[child.name]}"
        yield from _walk(child, f"{path}/{name}", visited)


def own_variables(nodes: list[LayerNode]) -> Mapping[str, list[Any]]:
    """Layer path to the layer's own weights; every weight once, at the innermost layer that tracks it."""
    owned: dict[str, list[Any]] = {}
    claimed: set[int] = set()
    for node in reversed(nodes):
        mine = [weight for weight in node.layer.weights if id(weight) not in claimed]
        claimed.update(id(weight) for weight in mine)
        owned[node.path] = mine
    return owned


def variable_bytes(variable: Any) -> int:
    """Requested bytes of a Keras or TensorFlow variable: elements × size of the dtype."""
    import keras
    import numpy as np

    name = keras.backend.standardize_dtype(variable.dtype)
    size = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "bool": 1}.get(name) or np.dtype(name).itemsize
    return int(math.prod(variable.shape)) * int(size)
