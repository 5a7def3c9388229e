"""The variables of the program's models and optimizers: roles, layers and addresses.

Some are gone in Python but not in memory: slots of earlier optimizers, weights of earlier models. A
traced function captures the resource handles of its variables, which keep their memory, and
TensorFlow keeps functions that nobody can call any more. Keras's optimizers are replaced at each
`compile`, so their slots stay behind, and with them models."""

import dataclasses
import functools
import itertools
import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any, NamedTuple

from tb_memplugin.recorder.base import (
    ByIdentity,
    asked,
    attribute,
    own,
)
from tb_memplugin.recorder.devices import eagerly, tensor_address
from tb_memplugin.recorder.watch import layers
from tb_memplugin.recorder.watch.slots import slots
from tb_memplugin.recorder.watch.variable_values import (
    AddressReader,
    kept,
    replicas,
    short_device,
    size_of_variable,
    tf_variable,
    variable_address,
)
from tb_memplugin.schema import VariableFact, VariableRole, replaced_optimizer, unused

# most that are read, those with an optimizer and large ones first: a program may hold many small
# ones
MAX_MODELS = 64
EARLIER_MODEL = "earlier model"  # name of models that were gone before they were observed
_NUMBERED = re.compile(r"_\d+$")


class _Entry:
    """A variable, weakly, its facts but for the addresses, its model, and its `start` address at
    construction of the registry."""

    def __init__(self, variable: Any, fact: VariableFact, model: Any) -> None:
        self.reference = weakref.ref(variable)
        self.fact = fact
        self.model = _nothing if model is None else weakref.ref(model)
        self.start: int | None = None
        self.end: int | None = None
        self.of_model = True
        self._told: VariableFact | None = None

    def told(self) -> VariableFact:
        """The fact with the addresses; the same object as long as these are."""
        told, found = self._told, (self.start, self.end, self.of_model)
        if told is None or (told.start_address, told.end_address, told.of_model) != found:
            self._told = told = dataclasses.replace(
                self.fact, start_address=self.start, end_address=self.end, of_model=self.of_model
            )
        return told


def _nothing() -> None: ...


class Variables:
    """The variables of models, given with their optimizers, and optimizers of other models. For the
    training's thread.

    Keeps nothing alive: what the program has dropped is freed in a window as it would be without
    one. `paths` is the id of a layer that exists to its path, for all models, `trainable` a layer's
    path to whether the layer has trainable weights."""

    def __init__(self, models: list[tuple[Any, Any]], optimizers: list[Any]) -> None:
        self.paths: dict[int, str] = {}
        self.trainable: dict[str, bool] = {}
        self.eager = False  # whether a model runs eagerly
        self._entries: list[_Entry] = []
        self._known = ByIdentity[_Entry]()  # by variable, and by its handle
        self._unowned: list[_Entry] = []  # variables of no model
        self._known_unowned = ByIdentity[_Entry]()
        # weak references, which remove the path of a layer that is gone
        self._layers: list[Any] = []
        self.models = [weakref.ref(model) for model, _ in models]
        trees = [(layers.walk(model), model, optimizer) for model, optimizer in models]
        trees.sort(key=lambda tree: (tree[2] is None, -len(tree[0])))
        for nodes, model, optimizer in trees[:MAX_MODELS]:
            if id(model) not in self.paths:
                asked(model, self._add_model, nodes, optimizer)
        for optimizer in optimizers:
            asked(optimizer, self._add_optimizer)
        self._addresses = AddressReader([entry.reference for entry in self._entries])

    def _add_model(self, model: Any, nodes: list[layers.LayerNode], optimizer: Any) -> None:
        taken, name, paths = set(self.paths.values()), nodes[0].path, self.paths
        names = (f"{name}#{number}" if number > 1 else name for number in itertools.count(1))
        # the second model named ``fold`` is ``fold#2``
        root = next(one for one in names if one not in taken)
        nodes = [layers.LayerNode(root + node.path[len(name) :], node.layer) for node in nodes]
        for node in nodes:
            key = id(node.layer)
            if key not in paths:
                paths[key] = node.path
                # The callback's argument, the reference, is the default of `pop`.
                self._layers.append(weakref.ref(node.layer, functools.partial(paths.pop, key)))
        trainable = {id(weight) for weight in layers.variables_of(model, "trainable_weights")}
        owned = layers.own_variables(nodes)
        for path, weights in owned.items():
            for weight in weights:
                self._add(weight, "weights", path, id(weight) in trainable, model)
        for node in nodes:
            flags = [id(weight) in trainable for weight in owned[node.path]]
            self.trainable.setdefault(
                node.path, any(flags) if flags else layers.is_trainable(node.layer)
            )
        optimizer = own(model, "optimizer") if optimizer is None else optimizer
        asked(optimizer, self._add_optimizer, model)
        for node in reversed(nodes):
            for variable in layers.own_state(node.layer):
                layer = None if node.layer is model else node.path
                self._add(variable, "other_state", layer, model=model)
        for variable in layers.metrics_variables(model):
            self._add(variable, "other_state", model=model)
        self.eager = self.eager or own(model, "_run_eagerly", own(model, "run_eagerly")) is True

    def _add_optimizer(self, optimizer: Any, model: Any = None) -> None:
        existing = [entry.reference() for entry in self._entries]
        for slot in slots(optimizer, [one for one in existing if one is not None]):
            owner = None if slot.of is None else self._known.get(tf_variable(slot.of))
            layer, trainable = (owner.fact.layer, owner.fact.trainable) if owner else (None, None)
            of = owner.model() if model is None and owner is not None else model
            self._add(slot.variable, "optimizer_state", layer, trainable, of, optimizer)

    def _add(
        self,
        variable: Any,
        role: VariableRole,
        layer: str | None = None,
        trainable: bool | None = None,
        model: Any = None,
        optimizer: Any = None,
    ) -> None:
        is_unowned = model is None and optimizer is None and role == "other_state"
        entries = self._unowned if is_unowned else self._entries
        known = self._known_unowned if is_unowned else self._known

        def add(part: Any) -> None:
            handle, shape = kept(part, "handle"), kept(part, "shape")
            size, device = size_of_variable(part), short_device(handle.device)
            is_known = shape.is_fully_defined()
            sizes = tuple(shape.as_list()) if is_known else ()
            dtype = kept(part, "dtype").name if is_known else ""
            name = f"{_path(variable)}#{id(part)}"
            fact = VariableFact(
                name, role, layer, trainable, size, device, None, None, sizes, dtype
            )
            entry = _Entry(part, fact, model)
            entries.append(entry)
            known[part] = known[handle] = entry
            if model is not None or optimizer is not None:
                former_variables.note(handle, fact, model, optimizer)

        for part in asked(variable, replicas) or ():
            if not self.knows(part):
                asked(part, add)
        value = tf_variable(variable)
        if not self.knows(value) and entries:
            known[value] = entries[-1]

    def begin(self) -> None:
        """Read the addresses as a window begins, and forget the variables of no model."""
        self._unowned, self._known_unowned = [], ByIdentity()
        for entry, address in zip(self._entries, self._addresses.read(), strict=True):
            entry.start = entry.end = address

    def add_unowned(self, variables: Iterable[Any], known: Set[int | None]) -> None:
        """Add variables of no model, such as a replay buffer, but for those at one of the known
        addresses."""
        known = {*known, *self.start_addresses()} - {None}
        for variable in variables:
            start, count = variable_address(variable), len(self._unowned)
            if start not in known:
                self._add(variable, "other_state")
            for entry in self._unowned[count:]:
                entry.start, entry.end, entry.of_model = start, start, False

    def signature(self) -> tuple[Any, ...]:
        """A key for the facts about function graphs: equal keys give equal facts."""
        return tuple(self.paths.items()), tuple(
            (entry.fact.name, entry.fact.layer) for entry in (*self._entries, *self._unowned)
        )

    def owner_of(self, item: Any) -> tuple[str, str | None] | None:
        """Name and layer of a variable, given the variable or its resource handle."""
        entry = self._entry(item) or self._entry(tf_variable(item))
        return None if entry is None else (entry.fact.name, entry.fact.layer)

    def _entry(self, item: Any) -> _Entry | None:
        found: _Entry | None = self._known.get(item) or self._known_unowned.get(item)
        return found

    def knows(self, variable: Any) -> bool:
        return self._entry(variable) is not None

    def start_addresses(self) -> Iterator[int | None]:
        return (entry.start for entry in (*self._entries, *self._unowned))

    def read_end(self) -> list[int | None]:
        """Read the addresses now, as the end addresses of `facts`, and return them."""
        others = AddressReader([entry.reference for entry in self._unowned])
        entries, found = [*self._entries, *self._unowned], self._addresses.read() + others.read()
        for entry, address in zip(entries, found, strict=True):
            entry.end = address
        return found

    def facts(self, device: str) -> tuple[VariableFact, ...]:
        """Facts about the variables on a device; end addresses are those of the last `read_end`, if
        there was one."""
        entries = (*self._entries, *self._unowned)
        return tuple(one.told() for one in entries if one.fact.device == device)


def _path(variable: Any) -> str:
    """The path of a Keras variable, the name of another one."""
    for name in ("_path", "_handle_name"):
        if type(path := own(variable, name)) is str:
            return path
    path = attribute(variable, "path", attribute(variable, "name"))
    return path if type(path) is str else "variable"


@dataclasses.dataclass(eq=False)
class FormerOptimizer:
    """An optimizer, which may be gone; `replaced_at` is the step at which another one took over,
    None if none did."""

    name: str
    replaced_at: int | None = None


class _Owner(NamedTuple):
    fact: VariableFact
    model: Callable[[], Any]  # a weak reference
    model_name: str | None
    optimizer: FormerOptimizer | None

    def path(self, exists: bool) -> str | None:
        """Layer path in breakdowns, when the program cannot reach the variable any more, which may
        still exist."""
        layer = self.fact.layer
        if self.model_name is not None and (exists or self.model() is None):
            # without a number behind the model's name
            layer = (layer or "").partition("/")[2] or None
            name = unused(self.model_name)
        elif self.optimizer is None:
            return layer
        else:
            step, name = self.optimizer.replaced_at, self.optimizer.name
            name = unused(name) if step is None else replaced_optimizer(name, step)
        return name if layer is None else f"{name}/{layer}"


class FormerVariables:
    """Process-wide notes on who owned each variable, by its handle. The training's thread calls the
    methods."""

    def __init__(self) -> None:
        self.changes = 0  # notes so far
        self._owners = ByIdentity[_Owner]()
        self._optimizers = ByIdentity[FormerOptimizer]()

    def note(self, handle: Any, fact: VariableFact, model: Any, optimizer: Any) -> None:
        """Note who owns the variable of a resource handle; a slot has an optimizer. The model may
        be unknown."""
        known = self._owners.get(handle)
        if known is not None and known.model() is model and known.fact.layer == fact.layer:
            return
        of = None if optimizer is None else self.optimizer(optimizer)
        name = None if model is None else layers.name_of(model)
        reference = _nothing if model is None else weakref.ref(model)
        self._owners[handle] = _Owner(fact, reference, name, of)
        self.changes += 1

    def optimizer(self, optimizer: Any) -> FormerOptimizer:
        """The note on an optimizer, whose `replaced_at` the caller may set."""
        found: FormerOptimizer = self._optimizers.setdefault(
            optimizer, FormerOptimizer(type(optimizer).__name__)
        )
        return found

    def handles(self) -> list[Any]:
        """The noted handles that exist."""
        return list(self._owners)

    def facts(
        self, handles: Iterable[Any], known: Callable[[Any], object] = lambda handle: None
    ) -> list[VariableFact]:
        """Facts about the variables of handles that are gone, or of which nothing is `known`: they
        wait in a reference cycle for Python's garbage collector."""
        found = []
        for handle in handles:
            parent = getattr(handle, "_parent_trackable", None)
            if isinstance(parent, weakref.ref):
                exists = parent() is not None
                if not exists or known(handle) is None:
                    found.append(self._fact(handle, exists))
        return [fact for fact in found if fact is not None]

    def _fact(self, handle: Any, exists: bool) -> VariableFact | None:
        import tensorflow as tf

        data = getattr(handle, "_handle_data", None)
        if data is None or not data.is_set or len(data.shape_and_type) != 1:
            return None
        ((shape, dtype),) = (
            (tf.TensorShape(one.shape), tf.as_dtype(one.dtype)) for one in data.shape_and_type
        )
        try:
            with eagerly(), tf.device(handle.device):
                address = tensor_address(tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype))
        except Exception:  # it is not initialized
            return None
        if address is None or not shape.is_fully_defined():
            return None
        owner = self._owners.get(handle)
        if owner is not None:
            role, layer = owner.fact.role, owner.path(exists)
        else:
            name = str(handle._name).partition(":")[0]
            role, layer = _named(name, bool(shape.rank) and dtype.is_floating)
        name, device = f"{handle._name}#{id(handle)}", short_device(handle.device)
        size, sizes = int(shape.num_elements()) * int(dtype.size), tuple(shape.as_list())
        # Nobody assigns to it: the address stays.
        return VariableFact(
            name, role, layer, None, size, device, address, address, sizes, dtype.name
        )


def _named(name: str, is_array: bool) -> tuple[VariableRole, str | None]:
    """Role and layer by the name that Keras gives to slots, ``adam/dense_kernel_momentum``, and
    weights."""
    import keras

    first, _, rest = name.partition("/")
    if not rest or not is_array:
        return "other_state", None
    kinds = [kind.__name__ for kind in vars(keras.optimizers).values() if isinstance(kind, type)]
    by_name = {kind.lower(): kind for kind in kinds}
    optimizer = by_name.get(_NUMBERED.sub("", first).replace("_", ""))
    if optimizer is not None:
        return "optimizer_state", f"{unused(optimizer)}/{rest}"
    return "weights", f"{unused(EARLIER_MODEL)}/{name.rpartition('/')[0]}"


former_variables = FormerVariables()
