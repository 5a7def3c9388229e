"""The models of Keras and `tf.Module`: their tree of layers, and the variables of each."""

import sys
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, NamedTuple

from tb_memplugin.recorder.base import (
    asked,
    attribute,
    attributes,
    contained,
    is_a,
    note_code,
    own,
    own_list,
    unwrapped,
)
from tb_memplugin.recorder.heap import (
    reachable,
)
from tb_memplugin.recorder.watch.variable_values import variable_bytes

MAX_LEAVES = 100_000  # most values in the attributes of a module that are looked at


def packages() -> list[Any]:
    """Keras's packages that are imported completely: Keras 3, then Keras 2 (``tf_keras``) if the
    program imported it. With ``TF_USE_LEGACY_KERAS=1``, ``tf.keras`` is ``tf_keras`` as well."""
    import keras

    legacy = sys.modules.get("tf_keras")
    return [package for package in (keras, legacy) if hasattr(package, "Model")]


def model_classes() -> tuple[type, ...]:
    return tuple(package.Model for package in packages())


def outermost() -> list[Any]:
    """The layers of Keras 3 with weights that no other one contains, those with most bytes first:
    models, and layers of what is being built."""
    kinds = tuple(package.layers.Layer for package in packages())
    # else its constructor runs
    found = [one for one in reachable(kinds, ()) if own(one, "_layers") is not None]
    sizes = {id(one): sum(map(variable_bytes, variables_of(one, "weights"))) for one in found}
    found = [one for one in found if sizes[id(one)]]
    inner = {id(part) for one in found for part in parts(one)}
    return sorted((one for one in found if id(one) not in inner), key=lambda one: -sizes[id(one)])


class LayerNode(NamedTuple):
    # in the model's tree: ``sequential/vgg16/block1_conv2``; of a module, of attributes:
    # ``mlp/layers/0``
    path: str
    layer: Any  # keras.Layer or tf.Module


def walk(model: Any, path: str | None = None, visited: set[int] | None = None) -> list[LayerNode]:
    """Every layer of the model, the model first, parents before children; a shared layer once, at
    its first place. Paths come from the tree of objects: name scopes and `layer.path` do not
    identify a layer. Siblings of equal name become ``name#2``, ``name#3``, … in the order in which
    Keras tracks them."""
    path = name_of(model) if path is None else path
    visited = set() if visited is None else visited
    visited.add(id(model))
    nodes = [LayerNode(path, model)]
    names: Counter[str] = Counter()
    for name, child in children(model):
        if id(child) not in visited and type(child).__name__ != "InputLayer":
            names[name] += 1
            number = f"#{names[name]}" if names[name] > 1 else ""
            nodes += walk(child, f"{path}/{name}{number}", visited)
    return nodes


def name_of(item: Any) -> str:
    of_class = (vars(kind).get("name") for kind in type(item).__mro__)
    names = [own(item, "name"), own(item, "_name"), *of_class]
    return next((one for one in names if type(one) is str and one), type(item).__name__.lower())


def is_layer(item: Any) -> bool:
    return any("_flatten_layers" in vars(kind) for kind in type(item).__mro__)


def is_module(item: Any) -> bool:
    import tensorflow as tf

    return is_a(item, tf.Module) and not is_layer(item)


def is_trainable(layer: Any) -> bool:
    return own(layer, "_trainable", own(layer, "trainable", True)) is not False


def children(layer: Any) -> list[tuple[str, Any]]:
    """(name, layer) of the layers directly inside a layer; a module's are named by attribute and
    position."""
    if is_layer(layer):
        return [(name_of(child), child) for child in _inner_layers(layer)]
    return [
        ("/".join(path), item) for path, item in _leaves(layer) if is_layer(item) or is_module(item)
    ]


def _inner_layers(layer: Any) -> list[Any]:
    """The layers that Keras tracks directly inside a layer, each once."""
    found = own_list(layer, "_layers")
    if own(layer, "_layers") is None:
        found = asked(layer, _flattened) or []
    return [one for one in {id(one): one for one in found}.values() if is_layer(one)]


def _flattened(layer: Any) -> list[Any]:
    """As Keras 2 tracks them; none for a layer of Keras 3."""
    kinds = [package.layers.Layer for package in packages() if is_a(layer, package.layers.Layer)]
    note_code()
    if not kinds:
        return []
    return list(kinds[0]._flatten_layers(layer, include_self=False, recursive=False))


def _leaves(module: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Values of a module's attributes and of the lists, tuples and dicts in them, with their paths,
    in order."""
    note_code()
    ignored = getattr(type(module), "_TF_MODULE_IGNORED_PROPERTIES", ())
    found = sorted(attributes(module).items(), reverse=True, key=lambda pair: pair[0])
    pending: list[tuple[tuple[str, ...], Any]] = [
        ((name,), value) for name, value in found if name not in ignored
    ]
    inside: set[int] = set()
    for _ in range(MAX_LEAVES):
        if not pending:
            return
        path, value = pending.pop()
        value = unwrapped(value)
        items = contained(value)
        if items is None:
            yield path, value
        elif id(value) not in inside:
            inside.add(id(value))
            keys = list(dict.keys(value)) if is_a(value, dict) else range(len(items))
            for key, item in reversed(list(zip(keys, items, strict=False))):
                pending.append(((*path, str(key) if type(key) in (str, int) else "…"), item))


def parts(model: Any) -> list[Any]:
    """All layers of a model, and the functional one inside a sequential one. Of a module, those
    directly inside it."""
    if is_module(model):
        return [child for _, child in children(model)]
    inner = own(model, "_functional")
    return [*(node.layer for node in walk(model)[1:]), *([] if inner is None else [inner])]


def own_variables(nodes: list[LayerNode]) -> Mapping[str, list[Any]]:
    """Layer path to the layer's own weights; every weight once, at the innermost layer that tracks
    it. A layer claims its weights after all layers inside it, also those whose node is elsewhere:
    sub-models share layers."""
    owned: dict[str, list[Any]] = {}
    claimed: set[int] = set()
    waiting = {id(node.layer): node for node in nodes}
    for node in reversed(nodes):
        _claim(node.layer, waiting, claimed, owned)
    return owned


def _claim(
    layer: Any, waiting: dict[int, LayerNode], claimed: set[int], owned: dict[str, list[Any]]
) -> None:
    """Not a closure: one that calls itself is in a reference cycle, which would keep the weights
    alive."""
    node = waiting.pop(id(layer), None)
    if node is None:
        return
    for _, child in reversed(children(layer)):
        _claim(child, waiting, claimed, owned)
    owned[node.path] = list(
        {id(one): one for one in own_weights(layer) if id(one) not in claimed}.values()
    )
    claimed.update(map(id, owned[node.path]))


def variables_of(layer: Any, name: str) -> list[Any]:
    """The `weights`, `variables`, `trainable_weights` or `trainable_variables` of a layer, a model
    or a module, as Keras and TensorFlow define them. The weights of a module are its variables and
    those of the layers inside it."""
    if not is_layer(layer) and not is_module(layer):
        return contained(asked(layer, getattr, name)) or []
    only_trainable = name.startswith("trainable")
    if only_trainable and is_layer(layer) and not is_trainable(layer):
        return []
    found: dict[int, Any] = {}
    for one in _with_inner(layer, only_trainable):
        variables = own_weights(one) + (own_state(one) if name.endswith("variables") else [])
        found.update((id(variable), variable) for variable in variables)
    return [one for one in found.values() if not only_trainable or attribute(one, "trainable")]


def trainable_state(model: Any) -> Hashable:
    """A value that changes with the layers and weights of a model, and with what of them is
    trained."""
    return tuple(
        (id(one), is_trainable(one), *((id(it), own(it, "_trainable")) for it in own_weights(one)))
        for one in _with_inner(model)
    )


def _with_inner(layer: Any, only_trainable: bool = False) -> Iterator[Any]:
    """A layer or module and all inside it, each once. Of Keras 2, a frozen layer's weights stay
    trainable themselves: those are left out with `only_trainable`."""
    pending, visited = [layer], set[int]()
    while pending:
        one = pending.pop()
        of_layer = is_layer(one)
        is_frozen = only_trainable and of_layer and not is_trainable(one)
        if id(one) not in visited and not (is_frozen and "_trainable_weights" in attributes(one)):
            visited.add(id(one))
            inner = _inner_layers(one) if of_layer else [child for _, child in children(one)]
            pending += reversed(inner)
            yield one


def own_weights(layer: Any) -> list[Any]:
    """The weights that a layer tracks itself."""
    if not is_layer(layer):
        import tensorflow as tf

        return [value for _, value in _leaves(layer) if is_a(value, tf.Variable)]
    return [
        variable
        for name in ("variables", "weights")  # as Keras 3 and Keras 2 call them
        for kind in ("_trainable_", "_non_trainable_")
        for variable in own_list(layer, kind + name)
    ]


def own_state(layer: Any) -> list[Any]:
    """The seeds of a layer itself."""
    seeds = own_list(layer, "_seed_generators")
    return [state for one in seeds if (state := own(one, "state")) is not None]


def metrics_variables(model: Any) -> list[Any]:
    """The variables of a model's metrics, and of those of its layers."""
    pending = [
        own(model, name)
        for name in ("_loss_tracker", "_compile_metrics", "compiled_metrics", "compiled_loss")
    ]
    for node in walk(model) if is_layer(model) else ():
        pending += own_list(node.layer, "_metrics")
    pending += own_list(own(model, "_compile_loss"), "_metrics")
    found: list[Any] = []
    visited = {id(None)}
    while pending:
        metric = pending.pop()
        if id(metric) not in visited:
            visited.add(id(metric))
            found += own_list(metric, "_variables")
            found += own_weights(metric) if is_layer(metric) else []
            for name in ("_metrics", "_flat_metrics", "_metrics_list"):
                pending += own_list(metric, name)
            pending.append(own(metric, "_loss_metric"))
    return found
