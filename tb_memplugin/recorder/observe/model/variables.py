"""`Variables`: the variables of the program's models and optimizers, their roles, layers and addresses."""

import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any

from tb_memplugin.model.trace import VariableFact, VariableRole
from tb_memplugin.recorder.observe.model.addresses import short_device, tensor_size, variable_address
from tb_memplugin.recorder.observe.model.former_variables import former_variables
from tb_memplugin.recorder.observe.model.layers import LayerNode, own_variables, variables_of, walk
from tb_memplugin.recorder.observe.model.optimizer import slots

MAX_MODELS = 64
"""Most models that are read, those with an optimizer and large ones first: a program may hold many small ones."""


class _Entry:
    """A variable, weakly, its owner, and its address at construction of the registry.

    `model` and `optimizer`, which only a slot has, are known until the registry is complete.
    """

    def __init__(self, name: str, variable: Any, role: VariableRole, layer: str | None, trainable: bool | None) -> None:
        self.name, self.role, self.layer, self.trainable = name, role, layer, trainable
        self.reference, self.handle = weakref.ref(variable), weakref.ref(variable.handle)
        self.device, self.size = short_device(variable.device), tensor_size(variable)
        self.shape = tuple(variable.shape.as_list()) if variable.shape.is_fully_defined() else ()
        self.dtype = variable.dtype.name if variable.shape.is_fully_defined() else ""
        self.start: int | None = None
        self.model: Any = None
        self.optimizer: Any = None
        self.of_model = True

    @property
    def variable(self) -> Any:
        """The variable; None if it is gone."""
        return self.reference()

    def address(self) -> int | None:
        """Address of its value now."""
        variable = self.variable
        return None if variable is None else variable_address(variable)


class Variables:
    """The variables of models and optimizers; for the training's thread. `add_unowned` adds others.

    Keeps nothing alive: what the program has dropped is freed in a window as it would be without one.

    Args:
        models: Models with their optimizers.
        optimizers: Optimizers of other models.
        addresses: Whether to read the variables' addresses.

    Attributes:
        paths: id of a layer that exists to its path, for all models.
        trainable: Layer path to whether the layer has trainable weights.
        eager: Whether a model runs eagerly.
    """

    def __init__(self, models: list[tuple[Any, Any]], optimizers: list[Any], addresses: bool = True) -> None:
        self.paths: dict[int, str] = {}
        self.trainable: dict[str, bool] = {}
        self.eager = False
        self._entries: list[_Entry] = []
        self._by_handle: dict[int, _Entry] = {}
        self._by_id: dict[int, tuple[Callable[[], Any], _Entry]] = {}  # with a weak reference, as ids are used again
        self._layers: list[Any] = []  # weak references, which remove the path of a layer that is gone
        trees = sorted(
            ((walk(model), model, optimizer) for model, optimizer in models),
            key=lambda tree: (tree[2] is None, -len(tree[0])),
        )
        for nodes, model, optimizer in trees[:MAX_MODELS]:
            if id(model) not in self.paths:
                self._add_model(nodes, model, optimizer)
        for optimizer in optimizers:
            self._add_optimizer(optimizer, None)
        for entry in self._entries:
            entry.start = entry.address() if addresses else None
            former_variables.note(entry.handle(), entry.role, entry.layer, entry.model, entry.optimizer)
            entry.model = entry.optimizer = None

    def _add_model(self, nodes: list[LayerNode], model: Any, optimizer: Any) -> None:
        nodes = self._with_unique_paths(nodes)
        for node in nodes:
            self._add_path(node)
        self._add_weights(nodes, model)
        optimizer = getattr(model, "optimizer", None) if optimizer is None else optimizer
        if optimizer is not None:
            self._add_optimizer(optimizer, model)
        for node in reversed(nodes):
            for variable in variables_of(node.layer, "variables"):
                self._add(variable, "other_state", None if node.layer is model else node.path, None, model)
        for variable in (*getattr(model, "metrics_variables", ()), *variables_of(model, "variables")):
            self._add(variable, "other_state", None, None, model)
        self.eager = self.eager or bool(getattr(model, "run_eagerly", False))

    def _add_path(self, node: LayerNode) -> None:
        paths, key = self.paths, id(node.layer)
        if key not in paths:
            paths[key] = node.path
            self._layers.append(weakref.ref(node.layer, lambda _: paths.pop(key, None)))

    def _with_unique_paths(self, nodes: list[LayerNode]) -> list[LayerNode]:
        """The nodes of a model; ``fold#2/dense`` in the second model named ``fold``."""
        paths, name = set(self.paths.values()), nodes[0].path
        numbered = (f"{name}#{number}" for number in itertools.count(2))
        unique = next(root for root in itertools.chain([name], numbered) if root not in paths)
        return [LayerNode(unique + node.path[len(name) :], node.layer) for node in nodes]

    def _add_weights(self, nodes: list[LayerNode], model: Any) -> None:
        trainable = {id(weight) for weight in variables_of(model, "trainable_weights")}
        layer_of: dict[int, str] = {}
        for path, own_weights in own_variables(nodes).items():
            for weight in own_weights:
                layer_of[id(tf_variable(weight))] = path
                self._add(weight, "weights", path, id(weight) in trainable, model)
        for node in nodes:
            own = [
                weight
                for weight in variables_of(node.layer, "weights")
                if layer_of.get(id(tf_variable(weight))) == node.path
            ]
            flag = (
                any(id(weight) in trainable for weight in own) if own else bool(getattr(node.layer, "trainable", True))
            )
            self.trainable.setdefault(node.path, flag)

    def _add_optimizer(self, optimizer: Any, model: Any) -> None:
        for slot in slots(optimizer, [entry.variable for entry in self._entries]):
            owner = None if slot.of is None else self._entry_of(slot.of)
            layer, trainable = (owner.layer, owner.trainable) if owner else (None, None)
            of = owner.model if model is None and owner is not None else model
            self._add(slot.variable, "optimizer_state", layer, trainable, of, optimizer)

    def _add(
        self,
        variable: Any,
        role: VariableRole,
        layer: str | None,
        trainable: bool | None,
        model: Any,
        optimizer: Any = None,
    ) -> None:
        value = tf_variable(variable)
        for part in replicas(value):
            if id(part) in self._by_id:
                continue
            name = f"{getattr(variable, 'path', getattr(variable, 'name', 'variable'))}#{id(part)}"
            entry = _Entry(name, part, role, layer, trainable)
            entry.model, entry.optimizer = model, optimizer
            self._entries.append(entry)
            self._by_id[id(part)] = entry.reference, entry
            self._by_handle[id(part.handle)] = entry
        if value is not None and id(value) not in self._by_id and self._entries:
            self._by_id[id(value)] = weakref.ref(value), self._entries[-1]

    def add_unowned(self, variables: Iterable[Any], known: Set[int | None]) -> None:
        """Add variables of no model, such as a replay buffer.

        Args:
            variables: The variables.
            known: Addresses of tensors; a variable that shares its buffer with one of them is left out.
        """
        known = {*known, *self.start_addresses()} - {None}
        for variable in variables:
            start = variable_address(variable)
            count = len(self._entries)
            if start not in known:
                self._add(variable, "other_state", None, None, None)
            for entry in self._entries[count:]:
                entry.start, entry.of_model = start, False

    def signature(self) -> tuple[Any, ...]:
        """A key for the facts about function graphs: equal keys give equal facts."""
        return tuple(self.paths.items()), tuple((entry.name, entry.layer) for entry in self._entries)

    def owner_of(self, item: Any) -> tuple[str, str | None] | None:
        """Name and layer of a variable, given the variable or its resource handle; None if unknown."""
        entry = self._by_handle.get(id(item))
        if entry is None or entry.handle() is not item:
            entry = self._entry_of(item)
        return None if entry is None else (entry.name, entry.layer)

    def _entry_of(self, variable: Any) -> _Entry | None:
        value = tf_variable(variable)
        reference, entry = self._by_id.get(id(value), (None, None))
        return entry if reference is not None and reference() is value else None

    def ids(self) -> Set[int]:
        """Ids of the variables."""
        return frozenset(self._by_id)

    def start_addresses(self) -> Iterator[int | None]:
        """Addresses at construction."""
        return (entry.start for entry in self._entries)

    def addresses(self) -> Iterator[int | None]:
        """Addresses now."""
        return (entry.address() for entry in self._entries)

    def facts(self, device: str) -> tuple[VariableFact, ...]:
        """Facts about the variables on a device; the end address is the address now."""
        return tuple(
            VariableFact(
                name=entry.name,
                role=entry.role,
                layer=entry.layer,
                trainable=entry.trainable,
                requested_bytes=entry.size,
                device=entry.device,
                start_address=entry.start,
                end_address=entry.address(),
                shape=entry.shape,
                dtype=entry.dtype,
                of_model=entry.of_model,
            )
            for entry in self._entries
            if entry.device == device
        )


def tf_variable(variable: Any) -> Any:
    """The TensorFlow variable of a Keras variable; any other variable unchanged."""
    inner = getattr(variable, "_value", None)
    return inner if inner is not None and hasattr(inner, "handle") else variable


def replicas(value: Any) -> list[Any]:
    """The replicas of a distributed TensorFlow variable, or the variable itself; empty for other objects."""
    parts = getattr(value, "values", None) or (value,)
    return [part for part in parts if hasattr(part, "handle")]
