"""The program's variables and held tensors: whose they are, and where their values lie in device memory."""

import ctypes
from collections.abc import Iterable, Iterator
from typing import Any

from tb_memplugin.analysis.bfc import rounded_bytes
from tb_memplugin.recorder.held_tensors import HeldTensors
from tb_memplugin.recorder.layers import own_variables, walk
from tb_memplugin.trace import GraphFacts, TensorFact, TraceFacts, VariableFact, VariableRole

MAX_MODELS = 64
"""Most models beside the watched ones whose trees are read: a program may hold many small ones."""


class _Entry:
    """One variable, before its addresses are known."""

    def __init__(self, name: str, variable: Any, role: VariableRole, layer: str | None, trainable: bool | None) -> None:
        self.name, self.variable, self.role, self.layer, self.trainable = name, variable, role, layer, trainable
        self.device, self.size = short_device(variable.device), tensor_size(variable)
        self.start: int | None = None


class Window:
    """What is known of the program while one profiler window is open; holds on to the models until it is dropped.

    Args:
        models: With their optimizers.
        optimizers: Others of the program.
        held: What earlier windows knew of tensors; without it, all of Python's objects are searched.

    Attributes:
        paths: id of a layer to its path, of all models of the program.
    """

    def __init__(self, models: list[tuple[Any, Any]], optimizers: list[Any], held: HeldTensors | None = None) -> None:
        self.paths: dict[int, str] = {}
        self._trainable: dict[str, bool] = {}
        self._entries: list[_Entry] = []
        self._by_handle: dict[int, _Entry] = {}
        self._by_id: dict[int, _Entry] = {}
        self._eager = False
        self._models = models
        trees = sorted(
            ((walk(model), model, optimizer) for model, optimizer in models),
            key=lambda tree: (tree[2] is None, -len(tree[0])),
        )
        for nodes, model, optimizer in trees[:MAX_MODELS]:
            if id(model) not in self.paths:
                self._add_model(nodes, model, optimizer)
        for optimizer in optimizers:  # those of other models, of which only their updates were seen
            self._add_optimizer(optimizer)
        for entry in self._entries:
            entry.start = variable_address(entry.variable)
        self._start_in_use = _bytes_in_use()
        self._tensors = self._held_tensors(HeldTensors() if held is None else held)

    def _add_model(self, nodes: list[Any], model: Any, optimizer: Any) -> None:
        taken = set(self.paths.values())
        if nodes[0].path in taken:  # another model of the same name: its layers are not those of the watched one
            nodes = [
                type(node)(f"{nodes[0].path}#{len(taken)}{node.path[len(nodes[0].path) :]}", node.layer)
                for node in nodes
            ]
        for node in nodes:
            self.paths.setdefault(id(node.layer), node.path)
        trainable = {id(weight) for weight in model.trainable_weights}
        layer_of: dict[int, str] = {}
        for path, weights in own_variables(nodes).items():
            for weight in weights:
                layer_of[id(_tf_variable(weight))] = path
                self._add(weight, "weights", path, id(weight) in trainable)
        for node in nodes:
            own = [weight for weight in node.layer.weights if layer_of.get(id(_tf_variable(weight))) == node.path]
            flag = any(id(weight) in trainable for weight in own) if own else bool(node.layer.trainable)
            self._trainable.setdefault(node.path, flag)
        optimizer = getattr(model, "optimizer", None) if optimizer is None else optimizer
        if optimizer is not None:
            self._add_optimizer(optimizer)
        for node in reversed(nodes):
            for variable in node.layer.variables:
                self._add(variable, "other_state", None if node.layer is model else node.path, None)
        for variable in (*getattr(model, "metrics_variables", ()), *getattr(model, "variables", ())):
            self._add(variable, "other_state", None, None)
        self._eager = self._eager or bool(getattr(model, "run_eagerly", False))

    def _add_optimizer(self, optimizer: Any) -> None:
        for slots, weights in _slot_lists(optimizer):
            for slot, weight in zip(slots, weights, strict=True):
                owner = self._by_id.get(id(_tf_variable(weight)))
                self._add(slot, "optimizer_state", owner.layer if owner else None, owner.trainable if owner else None)
        for variable in _optimizer_variables(optimizer):
            self._add(variable, "optimizer_state", None, None)

    def _add(self, variable: Any, role: VariableRole, layer: str | None, trainable: bool | None) -> None:
        value = _tf_variable(variable)
        for part in _replicas(value):
            if id(part) in self._by_id:
                continue
            name = f"{getattr(variable, 'path', getattr(variable, 'name', 'variable'))}#{id(part)}"
            entry = _Entry(name, part, role, layer, trainable)
            self._entries.append(entry)
            self._by_id[id(part)] = entry
            self._by_handle[id(part.handle)] = entry
        if value is not None and id(value) not in self._by_id and self._entries:
            self._by_id[id(value)] = self._entries[-1]

    def signature(self) -> tuple[Any, ...]:
        """What the facts of the program's graphs depend on: equal ones give equal facts."""
        return tuple(self.paths.items()), tuple((entry.name, entry.layer) for entry in self._entries)

    def owner_of(self, item: Any) -> tuple[str, str | None] | None:
        """Name and layer of a variable, given itself or its resource handle; None if it is not known."""
        entry = self._by_handle.get(id(item)) or self._by_id.get(id(_tf_variable(item)))
        return None if entry is None else (entry.name, entry.layer)

    def _held_tensors(self, held: HeldTensors) -> tuple[tuple[str, TensorFact], ...]:
        known: dict[str, int] = {}
        for entry in self._entries:
            known[entry.device] = known.get(entry.device, 0) + entry.size
        taken = (entry.start for entry in self._entries)
        return held.find(self._start_in_use, known, taken, (model for model, _ in self._models))

    def facts(
        self, device: str, graphs: tuple[GraphFacts, ...], gradients: Iterable[tuple[int, int, Any]]
    ) -> TraceFacts:
        """Everything that is known about the window on one device."""
        variables = tuple(
            VariableFact(
                name=entry.name,
                role=entry.role,
                layer=entry.layer,
                trainable=entry.trainable,
                requested_bytes=entry.size,
                device=entry.device,
                start_address=entry.start,
                end_address=variable_address(entry.variable),
            )
            for entry in self._entries
            if entry.device == device
        )
        return TraceFacts(
            mode="eager" if self._eager or not graphs else "graph",
            trainable=self._trainable,
            graphs=graphs,
            variables=variables,
            tensors=tuple(fact for where, fact in self._tensors if where == device),
            start_in_use=self._start_in_use.get(device),
            gradients=tuple(self._gradient_facts(gradients)),
        )

    def _gradient_facts(self, gradients: Iterable[tuple[int, int, Any]]) -> Iterator[tuple[int, int, str | None]]:
        for address, size, reference in gradients:
            owner = self.owner_of(reference())
            yield address, size, owner[1] if owner else None


def _slot_lists(optimizer: Any) -> Iterator[tuple[list[Any], list[Any]]]:
    """Lists of slots of an optimizer, each with the weights they belong to.

    Keras keeps slots in lists parallel to the weights.
    """
    weights = list(getattr(optimizer, "_trainable_variables", None) or ())
    for name, value in vars(optimizer).items():
        if (
            name == "_trainable_variables"
            or not isinstance(value, (list, tuple))
            or not weights
            or len(value) != len(weights)
        ):
            continue
        if any(hasattr(item, "value") and hasattr(item, "shape") for item in value):
            yield list(value), weights
    inner = getattr(optimizer, "inner_optimizer", None)
    if inner is not None:
        yield from _slot_lists(inner)


def _optimizer_variables(optimizer: Any) -> list[Any]:
    variables = getattr(optimizer, "variables", ())
    inner = getattr(optimizer, "inner_optimizer", None)
    found = list(variables() if callable(variables) else variables)
    return found + (_optimizer_variables(inner) if inner is not None else [])


def _tf_variable(variable: Any) -> Any:
    """The TensorFlow variable of a Keras variable; a TensorFlow variable is its own."""
    inner = getattr(variable, "_value", None)
    return inner if inner is not None and hasattr(inner, "handle") else variable


def _replicas(value: Any) -> list[Any]:
    """The replicas of a distributed TensorFlow variable; of any other, itself, and nothing of what is none."""
    parts = getattr(value, "values", None) or (value,)
    return [part for part in parts if hasattr(part, "handle")]


def tensor_size(tensor: Any) -> int:
    """Requested bytes: elements × size of the dtype; 0 for a shape that is not known."""
    return int(tensor.shape.num_elements() or 0) * int(tensor.dtype.size)


def variable_address(variable: Any) -> int | None:
    """Where the value of a TensorFlow variable lies, None if that cannot be said (uninitialised, text, an accelerator
    without DLPack).
    """
    try:
        return tensor_address(variable.value())  # not read_value(), which copies to the default device
    except Exception:
        return None


def tensor_address(tensor: Any) -> int | None:
    """Where an eager tensor's bytes lie in device memory, None if that cannot be said.

    Asked through DLPack: the capsule holds a DLManagedTensor, which begins with the data pointer. It is dropped at
        once: a second reference
    to a variable's buffer would make the next assignment copy it.
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
    """``/job:localhost/replica:0/task:0/device:GPU:0`` to ``GPU:0``; all CPUs share the allocator of ``CPU:0``."""
    short = name.rsplit("device:", 1)[-1]
    return short if short and not short.startswith("CPU") else "CPU:0"


def bytes_beside_variables(models: Iterable[tuple[Any, Any]]) -> dict[str, int]:
    """Bytes in use beyond what the models' and their optimizers' variables need, by device.

    Args:
        models: With their optimizers.
    """
    sizes: dict[int, tuple[str, int]] = {}
    for model, optimizer in models:
        optimizer = getattr(model, "optimizer", None) if optimizer is None else optimizer
        own = (*getattr(model, "variables", ()), *getattr(model, "metrics_variables", ()))
        for variable in (*own, *([] if optimizer is None else _optimizer_variables(optimizer))):
            for part in _replicas(_tf_variable(variable)):
                sizes[id(part)] = short_device(part.device), rounded_bytes(tensor_size(part))
    beside = _bytes_in_use()
    for device, size in sizes.values():
        if device in beside:
            beside[device] -= size
    return beside


def _bytes_in_use() -> dict[str, int]:
    """Bytes in use of every device whose allocator keeps count."""
    import tensorflow as tf

    found: dict[str, int] = {}
    for device in tf.config.list_logical_devices():
        name = short_device(device.name)
        try:
            found[name] = int(tf.config.experimental.get_memory_info(name)["current"])
        except Exception:  # an allocator without statistics, e.g. the CPU's usual one
            continue
    return found
