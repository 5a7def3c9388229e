"""The models of Keras and `tf.Module`: their tree of layers, their variables, the slots of their
optimizers, and the layer table made of these."""

import dataclasses
import functools
import itertools
import math
import sys
import time
import weakref
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

from tb_memplugin.errors import MemoryPluginError
from tb_memplugin.recorder.devices import tensor_address
from tb_memplugin.recorder.heap import reachable
from tb_memplugin.recorder.watch.asking import asked, is_a, own, own_list, unwrapped
from tb_memplugin.recorder.watch.notes import call_notes
from tb_memplugin.schema import DTYPE_BYTES, Layer, LayerTable, first_of, is_cpu

Outputs: TypeAlias = tuple[tuple[tuple[int, ...], str], ...]
"""Shape (−1 for an unknown dimension) and dtype of each output of a layer's first call; empty if
unknown."""
_MIN_COPY_BYTES = 64 << 10
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
    inner = {id(part) for one in found if sizes[id(one)] for part in parts(one)}
    outer = [one for one in found if sizes[id(one)] and id(one) not in inner]
    return sorted(outer, key=lambda one: -sizes[id(one)])


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
    path, visited = name_of(model) if path is None else path, set() if visited is None else visited
    visited.add(id(model))
    nodes = [LayerNode(path, model)]
    names: Counter[str] = Counter()
    for name, child in children(model):
        if id(child) not in visited and type(child).__name__ != "InputLayer":
            names[name] += 1
            nodes += walk(
                child, f"{path}/{name}" + (f"#{names[name]}" if names[name] > 1 else ""), visited
            )
    return nodes


def name_of(item: Any) -> str:
    of_class = (vars(kind).get("name") for kind in type(item).__mro__)
    name = own(
        item, "name", own(item, "_name", next((one for one in of_class if type(one) is str), None))
    )
    return name if type(name) is str and name else type(item).__name__.lower()


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
    if own(layer, "_layers") is None:  # Keras 2
        base = next(
            (package.layers.Layer for package in packages() if is_a(layer, package.layers.Layer)),
            None,
        )
        if base is not None:
            flat = base._flatten_layers
            found = asked(layer, lambda: list(flat(layer, include_self=False, recursive=False)), [])
    return [one for one in {id(one): one for one in found}.values() if is_layer(one)]


def _leaves(module: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Values of a module's attributes and of the lists, tuples and dicts in them, with their paths,
    in order."""
    attributes: dict[str, Any] = asked(
        module, lambda: dict(object.__getattribute__(module, "__dict__")), {}
    )
    ignored = getattr(type(module), "_TF_MODULE_IGNORED_PROPERTIES", ())
    pending: list[tuple[tuple[str, ...], Any]]
    pending = [
        ((name,), attributes[name])
        for name in sorted(attributes, reverse=True)
        if name not in ignored
    ]
    inside: set[int] = set()
    for _ in range(MAX_LEAVES):
        if not pending:
            return
        path, value = pending.pop()
        value = unwrapped(value)
        kind = type(value)
        items: list[tuple[Any, Any]] = []
        if dict in kind.__mro__:
            items = list(dict.items(value))
        elif list in kind.__mro__ or tuple in kind.__mro__:
            base = list if list in kind.__mro__ else tuple
            items = list(enumerate(base.__iter__(value)))
        else:
            yield path, value
        if items and id(value) not in inside:
            inside.add(id(value))
            named = [(str(key) if type(key) in (str, int) else "…", item) for key, item in items]
            pending += [((*path, key), item) for key, item in reversed(named)]


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
        {id(one): one for one in _own_weights(layer) if id(one) not in claimed}.values()
    )
    claimed.update(map(id, owned[node.path]))


def variables_of(layer: Any, name: str) -> list[Any]:
    """The `weights`, `variables`, `trainable_weights` or `trainable_variables` of a layer, a model
    or a module, as Keras and TensorFlow define them. The weights of a module are its variables and
    those of the layers inside it."""
    if not is_layer(layer) and not is_module(layer):
        return asked(layer, lambda: list(getattr(layer, name)), [])
    found: dict[int, Any] = {}
    if name.startswith("trainable") and is_layer(layer) and not is_trainable(layer):
        return []
    pending, visited = [layer], set[int]()
    while pending:
        one = pending.pop()
        if id(one) not in visited:
            visited.add(id(one))
            pending += [child for _, child in reversed(children(one))]
            variables = _own_weights(one) + (own_state(one) if name.endswith("variables") else [])
            found.update((id(variable), variable) for variable in variables)
    if not name.startswith("trainable"):
        return list(found.values())
    return [
        one
        for one in found.values()
        if asked(one, functools.partial(_is_variable_trainable, one), False)
    ]


def _is_variable_trainable(variable: Any) -> bool:
    return bool(variable.trainable)


def _own_weights(layer: Any) -> list[Any]:
    """The weights that a layer tracks itself."""
    if not is_layer(layer):
        import tensorflow as tf

        return [value for _, value in _leaves(layer) if is_a(value, tf.Variable)]
    names = (
        "_trainable_variables",
        "_non_trainable_variables",
        "_trainable_weights",
        "_non_trainable_weights",
    )
    return [variable for name in names for variable in own_list(layer, name)]


def own_state(layer: Any) -> list[Any]:
    """The seeds of a layer itself."""
    seeds = own_list(layer, "_seed_generators")
    return [state for one in seeds if (state := own(one, "state")) is not None]


def metrics_variables(model: Any) -> list[Any]:
    """The variables of a model's metrics, and of those of its layers."""
    nodes = walk(model) if is_layer(model) else []
    pending = [
        own(model, name)
        for name in ("_loss_tracker", "_compile_metrics", "compiled_metrics", "compiled_loss")
    ]
    pending += [metric for node in nodes for metric in own_list(node.layer, "_metrics")]
    pending += own_list(own(model, "_compile_loss"), "_metrics")
    found: list[Any] = []
    visited: set[int] = set()
    while pending:
        metric = pending.pop()
        if metric is not None and id(metric) not in visited:
            visited.add(id(metric))
            found += [
                *own_list(metric, "_variables"),
                *(_own_weights(metric) if is_layer(metric) else ()),
            ]
            for name in ("_metrics", "_flat_metrics", "_metrics_list"):
                pending += own_list(metric, name)
            pending.append(own(metric, "_loss_metric"))
    return found


def kept(variable: Any, name: str) -> Any:
    """What TensorFlow keeps of a variable under ``_name``, such as its shape; else what the
    attribute `name` gives."""
    value = own(variable, f"_{name}")
    return getattr(variable, name) if value is None else value


def _has_handle(variable: Any) -> bool:
    return own(variable, "_handle") is not None or hasattr(variable, "handle")


def tf_variable(variable: Any) -> Any:
    """The TensorFlow variable of a Keras variable; any other variable unchanged."""
    if own(variable, "_handle") is not None:
        return variable
    inner = own(variable, "_value")
    inner = getattr(variable, "_value", None) if inner is None else inner
    return inner if inner is not None and _has_handle(inner) else variable


def replicas(variable: Any) -> list[Any]:
    """The TensorFlow variables of a Keras variable, a distributed or another one; empty for other
    objects."""
    value = tf_variable(variable)
    if own(value, "_handle") is not None:
        return [value]
    return [part for part in getattr(value, "values", None) or (value,) if _has_handle(part)]


def variable_bytes(variable: Any) -> int:
    import keras

    return int(math.prod(variable.shape)) * DTYPE_BYTES.get(
        keras.backend.standardize_dtype(variable.dtype), 0
    )


def tensor_size(tensor: Any) -> int:
    return int(tensor.shape.num_elements() or 0) * int(tensor.dtype.size)


def size_of_variable(variable: Any) -> int:
    """Bytes of a TensorFlow variable."""
    return int(kept(variable, "shape").num_elements() or 0) * int(kept(variable, "dtype").size)


_copied: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Variables that TensorFlow copies whenever they are read, by id: those that were updated sparsely,
for good."""


def variable_address(variable: Any) -> int | None:
    """Address of the value of a TensorFlow variable. None if unknown: uninitialized, a string, on
    an accelerator without DLPack, or if TensorFlow copies the variable when it is read. Such a
    variable is read once, as the copy takes as much memory again."""
    if _copied.get(id(variable)) is variable:
        return None
    try:
        device, size = short_device(kept(variable, "handle").device), size_of_variable(variable)
        before = bytes_in_use(device) if size >= _MIN_COPY_BYTES else None
        value = _value(variable)
        if before is not None and (bytes_in_use(device) or 0) - before >= size:
            _copied[id(variable)] = variable
            return None
        return tensor_address(value)
    except KeyboardInterrupt:
        raise
    except BaseException:  # of whatever class the program raises
        return None


def _value(variable: Any) -> Any:
    """The variable's value where it is; not `read_value`, which copies it to the default device.
    TensorFlow's own variables are read by their handle, in half the time and without a tape's
    notice."""
    import tensorflow as tf
    from tensorflow.python.ops import gen_resource_variable_ops

    handle, dtype = own(variable, "_handle"), own(variable, "_dtype")
    if type(handle) is not tf.__internal__.EagerTensor or dtype is None:
        return variable.value()
    return gen_resource_variable_ops.read_variable_op(handle, dtype)


def bytes_in_use(device: str) -> int | None:
    import tensorflow as tf

    try:
        return int(tf.config.experimental.get_memory_info(device)["current"])
    except Exception:
        return None


def short_device(name: str) -> str:
    """``GPU:0`` for ``/job:localhost/replica:0/task:0/device:GPU:0``. All CPUs share the allocator
    of ``CPU:0``."""
    short = name.rsplit("device:", 1)[-1]
    return short if short and not is_cpu(short) else "CPU:0"


class Slot(NamedTuple):
    variable: Any
    of: Any | None  # the model's variable that it serves; None for scalars such as a step counter


def slots(optimizer: Any, served: Iterable[Any] = ()) -> list[Slot]:
    """Every variable of a Keras optimizer, including those of an inner optimizer, each once. Keras
    keeps slots in lists parallel to the optimizer's trainable variables; names repeat. Optimizers
    of Keras 2 do not refer to the model's variables that they serve, so these are given."""
    by_id: dict[int, Slot] = {}
    by_key = {}
    for variable in served:
        container = getattr(variable, "_distributed_container", None)
        by_key[getattr(variable if container is None else container(), "_unique_id", None)] = (
            variable
        )
    one = optimizer
    while one is not None:
        legacy = getattr(one, "_slots", {}).items()  # of a legacy optimizer of Keras 2
        by_name = [
            Slot(variable, by_key.get(key)) for key, named in legacy for variable in named.values()
        ]
        for slot in (*_parallel_slots(one, by_key), *by_name):
            by_id.setdefault(id(slot.variable), slot)
        one = getattr(one, "inner_optimizer", None)
    for variable in all_variables(optimizer):
        by_id.setdefault(id(variable), Slot(variable, None))
    return list(by_id.values())


def all_variables(optimizer: Any) -> list[Any]:
    """The variables of an optimizer and of those inside it, as Keras tracks them."""
    if own(optimizer, "_variables") is None and own(optimizer, "_weights") is None:
        variables = optimizer.variables
        return list(variables if isinstance(variables, (list, tuple)) else variables())
    found: list[Any] = []
    while optimizer is not None:
        found += own_list(optimizer, "_variables") + own_list(optimizer, "_weights")
        optimizer = own(optimizer, "inner_optimizer", own(optimizer, "_optimizer"))
    return found


def _parallel_slots(optimizer: Any, by_key: Mapping[Any, Any]) -> Iterator[Slot]:
    served = list(getattr(optimizer, "_trainable_variables", ()))
    # Keras 2: key of a variable to its place in the lists
    keys = getattr(optimizer, "_index_dict", None)
    if keys:
        served = [by_key.get(key) for key in sorted(keys, key=keys.__getitem__)]
    own = {id(variable) for variable in getattr(optimizer, "_variables", ())}
    for name, value in vars(optimizer).items():
        is_parallel = isinstance(value, (list, tuple)) and len(value) == len(served)
        if is_parallel and name not in ("_variables", "_trainable_variables"):
            for variable, of in zip(value, served, strict=True):
                # Adafactor omits from its variables the scalar placeholders for weights that it
                # does not factor.
                is_placeholder = (
                    variable is not of
                    and hasattr(variable, "value")
                    and hasattr(variable, "assign")
                )
                if id(variable) in own or is_placeholder:
                    yield Slot(variable, of)


def build_layer_table(
    model: Any, optimizer: Any, *, step: int, previous: LayerTable | None
) -> LayerTable:
    """The layer table of a model as of a step, without output sizes. Unbuilt layers have no
    weights."""
    nodes = walk(model)
    owned = own_variables(nodes)
    owner_of = {id(variable): path for path, variables in owned.items() for variable in variables}
    slot_bytes: Counter[str | None] = Counter()
    for slot in slots(optimizer, itertools.chain(*owned.values())) if optimizer is not None else ():
        slot_bytes[owner_of.get(id(slot.of))] += variable_bytes(slot.variable)
    trainable_ids = {id(variable) for variable in variables_of(model, "trainable_variables")}
    units = _recomputable_units(model)
    root = f"{nodes[0].path}/"
    layers = []
    for path, layer in nodes:
        weights = owned[path]
        trainable = [weight for weight in weights if id(weight) in trainable_ids]
        shape, dtype = next(iter(outputs_of(layer)), (None, None))
        exact = call_notes.recomputed.get(layer)
        layers.append(
            Layer(
                path=path,
                type=type(layer).__name__,
                trainable=bool(trainable) if weights else is_trainable(layer),
                parameters=sum(math.prod(weight.shape) for weight in weights),
                weight_bytes=sum(map(variable_bytes, weights)),
                trainable_weight_bytes=sum(map(variable_bytes, trainable)),
                optimizer_bytes=slot_bytes[path],
                output_shape=shape,
                output_dtype=dtype,
                output_bytes=None,
                recomputed=None if exact is None else "exact" if exact else "resampled",
                unit=units.get(path.removeprefix(root)),
            )
        )
    others = {
        id(one): one for one in (*variables_of(model, "variables"), *metrics_variables(model))
    }
    for weight in itertools.chain(*owned.values()):
        others.pop(id(weight), None)
    name = None if optimizer is None else type(optimizer).__name__
    return LayerTable(
        step=step,
        wall_time=time.time(),
        reason=_change(previous, tuple(layers), name),
        layers=tuple(layers),
        optimizer=name,
        other_optimizer_bytes=slot_bytes[None],
        other_state_bytes=sum(map(variable_bytes, others.values())),
    )


def with_output_bytes(
    table: LayerTable, outputs: Mapping[str, Outputs], batch_size: int | None
) -> LayerTable:
    """`table` with the total output bytes of each layer's first call; None where a dimension is
    unknown. The batch size replaces an unknown first dimension."""
    layers = []
    for layer in table.layers:
        filled = [
            ((batch_size, *shape[1:]) if shape[:1] == (-1,) and batch_size else shape, dtype)
            for shape, dtype in outputs.get(layer.path, ())
        ]
        is_known = filled and not any(
            -1 in shape or dtype not in DTYPE_BYTES for shape, dtype in filled
        )
        total = (
            sum(math.prod(shape) * DTYPE_BYTES[dtype] for shape, dtype in filled)
            if is_known
            else None
        )
        layers.append(dataclasses.replace(layer, output_bytes=total))
    return dataclasses.replace(table, layers=tuple(layers))


def signature(model: Any, optimizer: Any) -> Hashable:
    """A value that changes whenever the layer table does; cheap enough to compute every few
    seconds."""
    recomputed = call_notes.recomputed  # those of other models come and go
    return (
        id(model),
        tuple(id(variable) for variable in variables_of(model, "weights")),
        frozenset(id(variable) for variable in variables_of(model, "trainable_variables")),
        id(optimizer),
        0 if optimizer is None else len(all_variables(optimizer)),
        frozenset(id(node.layer) for node in walk(model) if node.layer in recomputed)
        if recomputed
        else frozenset(),
    )


def _change(previous: LayerTable | None, layers: tuple[Layer, ...], optimizer: str | None) -> str:
    if previous is None:
        return "recording began"
    before, after = ({layer.path: layer for layer in table} for table in (previous.layers, layers))
    both = [(before[path], layer) for path, layer in after.items() if path in before]
    # A layer without weights follows its model's flag, which changes no bytes.
    flags = [
        (new.path, new.trainable)
        for old, new in both
        if new.weight_bytes and old.trainable != new.trainable
    ]
    again = [new.path for old, new in both if new.recomputed and not old.recomputed]
    changes = (
        ([path for path, trainable in flags if trainable], "became trainable"),
        ([path for path, trainable in flags if not trainable], "became frozen"),
        (again, f"run{'' if len(again) > 1 else 's'} again in the backward pass"),
        ([path for path in after if path not in before], "appeared"),
        ([path for path in before if path not in after], "disappeared"),
    )
    parts = []
    for paths, change in changes:
        names = [path.rsplit("/", 1)[-1] for path in paths]
        parts += [f"{first_of(names)} {change}"] if names else []
    if parts:
        return "; ".join(parts)
    if sum(x.weight_bytes for x in layers) != sum(x.weight_bytes for x in previous.layers):
        return "weights were created"
    slots_changed = sum(x.optimizer_bytes for x in layers) != sum(
        x.optimizer_bytes for x in previous.layers
    )
    if previous.optimizer != optimizer or slots_changed:
        return f"optimizer {optimizer} was built" if optimizer else "the optimizer was removed"
    return "the model was compiled again"


def outputs_of(layer: Any) -> Outputs:
    import keras

    nodes = getattr(layer, "_inbound_nodes", None)
    return tuple(
        (
            tuple(-1 if size is None else int(size) for size in one.shape),
            str(getattr(one.dtype, "name", one.dtype)),
        )
        for one in (keras.tree.flatten(nodes[0].outputs) if nodes else ())
    )


def _recomputable_units(model: Any) -> dict[str, int]:
    """Path of a layer inside the model to its number, as `Layer.unit` has it; empty if the layer
    graph is unknown. Numbers go on by one between neighbors that can be recomputed together, and by
    two where they cannot."""
    import keras

    if not isinstance(model, keras.Model):
        return {}
    try:
        from tb_memplugin.recorder.watch.segments import cut_points, is_graph, segments_of

        segments = segments_of(model, cut_points(model))
    except (MemoryPluginError, AttributeError, ImportError, TypeError, ValueError):
        return {}  # a graph of another version of Keras
    units: dict[str, int] = {}
    number, parent = -1, None
    for segment in segments:
        before, parent = parent, segment[0].rpartition("/")[0]
        number += 1 if parent == before and is_graph(model) else 2
        units.update(dict.fromkeys(segment, number))
    return units
