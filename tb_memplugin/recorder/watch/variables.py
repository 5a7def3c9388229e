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
from typing import Any

from tb_memplugin.recorder.devices import tensor_address
from tb_memplugin.recorder.watch import layers
from tb_memplugin.recorder.watch.asking import ByIdentity, asked, own
from tb_memplugin.schema import VariableFact, VariableRole, replaced_optimizer, unused

# most that are read, those with an optimizer and large ones first: a program may hold many small
# ones
MAX_MODELS = 64
EARLIER_MODEL = "earlier model"  # name of models that were gone before they were observed
_NUMBERED = re.compile(r"_\d+$")


class _Entry:
    """A variable, weakly, its facts but for the addresses, and its `start` address at construction
    of the registry. `model` and `optimizer`, which only a slot has, are known until the registry is
    complete."""

    def __init__(self, variable: Any, fact: VariableFact, model: Any, optimizer: Any) -> None:
        self.reference, self.handle = (
            weakref.ref(variable),
            weakref.ref(layers.kept(variable, "handle")),
        )
        self.fact, self.model, self.optimizer = fact, model, optimizer
        self.start: int | None = None
        self.end: int | None = None
        self.of_model = True

    def address(self) -> int | None:
        variable = self.reference()
        return None if variable is None else layers.variable_address(variable)


class Variables:
    """The variables of models, given with their optimizers, and optimizers of other models. For the
    training's thread.

    Keeps nothing alive: what the program has dropped is freed in a window as it would be without
    one. `paths` is the id of a layer that exists to its path, for all models, `trainable` a layer's
    path to whether the layer has trainable weights."""

    def __init__(
        self, models: list[tuple[Any, Any]], optimizers: list[Any], addresses: bool = True
    ) -> None:
        self.paths: dict[int, str] = {}
        self.trainable: dict[str, bool] = {}
        self.eager = False  # whether a model runs eagerly
        self._entries: list[_Entry] = []
        self._by_handle: dict[int, _Entry] = {}
        # with a weak reference, as ids are used again
        self._by_id: dict[int, tuple[Callable[[], Any], _Entry]] = {}
        # weak references, which remove the path of a layer that is gone
        self._layers: list[Any] = []
        trees = [(layers.walk(model), model, optimizer) for model, optimizer in models]
        trees.sort(key=lambda tree: (tree[2] is None, -len(tree[0])))
        for nodes, model, optimizer in trees[:MAX_MODELS]:
            if id(model) not in self.paths:
                asked(model, functools.partial(self._add_model, nodes, model, optimizer), None)
        for optimizer in optimizers:
            asked(optimizer, functools.partial(self._add_optimizer, optimizer, None), None)
        for entry in self._entries:
            entry.start = entry.end = entry.address() if addresses else None
            former_variables.note(entry.handle(), entry.fact, entry.model, entry.optimizer)
            entry.model = entry.optimizer = None

    def _add_model(self, nodes: list[layers.LayerNode], model: Any, optimizer: Any) -> None:
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
        if optimizer is not None:
            self._add_optimizer(optimizer, model)
        for node in reversed(nodes):
            for variable in layers.own_state(node.layer):
                self._add(
                    variable, "other_state", None if node.layer is model else node.path, model=model
                )
        for variable in layers.metrics_variables(model):
            self._add(variable, "other_state", model=model)
        self.eager = self.eager or own(model, "_run_eagerly", own(model, "run_eagerly")) is True

    def _add_optimizer(self, optimizer: Any, model: Any) -> None:
        for slot in layers.slots(optimizer, [entry.reference() for entry in self._entries]):
            owner = None if slot.of is None else self._entry_of(slot.of)
            layer, trainable = (owner.fact.layer, owner.fact.trainable) if owner else (None, None)
            of = owner.model if model is None and owner is not None else model
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
        asked(
            variable,
            lambda: self._add_parts(variable, role, layer, trainable, model, optimizer),
            None,
        )

    def _add_parts(
        self,
        variable: Any,
        role: VariableRole,
        layer: str | None,
        trainable: bool | None,
        model: Any,
        optimizer: Any,
    ) -> None:
        for part in layers.replicas(variable):
            if id(part) in self._by_id:
                continue
            handle, shape = layers.kept(part, "handle"), layers.kept(part, "shape")
            size, device = layers.size_of_variable(part), layers.short_device(handle.device)
            known = shape.is_fully_defined()
            sizes, dtype = (
                (tuple(shape.as_list()), layers.kept(part, "dtype").name) if known else ((), "")
            )
            name = f"{_path(variable)}#{id(part)}"
            fact = VariableFact(
                name, role, layer, trainable, size, device, None, None, sizes, dtype
            )
            entry = _Entry(part, fact, model, optimizer)
            self._entries.append(entry)
            self._by_id[id(part)] = entry.reference, entry
            self._by_handle[id(handle)] = entry
        value = layers.tf_variable(variable)
        if value is not None and id(value) not in self._by_id and self._entries:
            self._by_id[id(value)] = weakref.ref(value), self._entries[-1]

    def add_unowned(self, variables: Iterable[Any], known: Set[int | None]) -> None:
        """Add variables of no model, such as a replay buffer, but for those at one of the known
        addresses."""
        known = {*known, *self.start_addresses()} - {None}
        for variable in variables:
            start, count = layers.variable_address(variable), len(self._entries)
            if start not in known:
                self._add(variable, "other_state")
            for entry in self._entries[count:]:
                entry.start, entry.end, entry.of_model = start, start, False

    def signature(self) -> tuple[Any, ...]:
        """A key for the facts about function graphs: equal keys give equal facts."""
        return tuple(self.paths.items()), tuple(
            (entry.fact.name, entry.fact.layer) for entry in self._entries
        )

    def owner_of(self, item: Any) -> tuple[str, str | None] | None:
        """Name and layer of a variable, given the variable or its resource handle."""
        entry = self._by_handle.get(id(item))
        if entry is None or entry.handle() is not item:
            entry = self._entry_of(item)
        return None if entry is None else (entry.fact.name, entry.fact.layer)

    def _entry_of(self, variable: Any) -> _Entry | None:
        value = layers.tf_variable(variable)
        reference, entry = self._by_id.get(id(value), (None, None))
        return entry if reference is not None and reference() is value else None

    def ids(self) -> Set[int]:
        return frozenset(self._by_id)

    def start_addresses(self) -> Iterator[int | None]:
        return (entry.start for entry in self._entries)

    def read_end(self) -> list[int | None]:
        """Read the addresses now, as the end addresses of `facts`, and return them."""
        for entry in self._entries:
            entry.end = entry.address()
        return [entry.end for entry in self._entries]

    def facts(self, device: str) -> tuple[VariableFact, ...]:
        """Facts about the variables on a device; end addresses are those of the last `read_end`, if
        there was one."""
        return tuple(
            dataclasses.replace(
                one.fact, start_address=one.start, end_address=one.end, of_model=one.of_model
            )
            for one in self._entries
            if one.fact.device == device
        )


def _path(variable: Any) -> str:
    """The path of a Keras variable, the name of another one."""
    for name in ("_path", "_handle_name"):
        if type(path := own(variable, name)) is str:
            return path
    path = getattr(variable, "path", getattr(variable, "name", None))
    return path if type(path) is str else "variable"


@dataclasses.dataclass(eq=False)
class FormerOptimizer:
    """An optimizer, which may be gone; `replaced_at` is the step at which another one took over,
    None if none did."""

    name: str
    replaced_at: int | None = None


@dataclasses.dataclass(frozen=True)
class _Owner:
    handle: Callable[[], Any]  # a weak reference, as the model
    fact: VariableFact
    model: Callable[[], Any]
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
    """Process-wide notes on who owned each variable. The training's thread calls the methods."""

    def __init__(self) -> None:
        self._owners: dict[int, _Owner] = {}  # by id of the handle
        self._optimizers = ByIdentity[FormerOptimizer]()

    def note(self, handle: Any, fact: VariableFact, model: Any, optimizer: Any) -> None:
        """Note who owns the variable of a resource handle; a slot has an optimizer. The model may
        be unknown."""
        owners, key = self._owners, id(handle)
        known = owners.get(key)
        if (
            known is not None
            and known.handle() is handle
            and known.model() is model
            and known.fact.layer == fact.layer
        ):
            return

        def gone(reference: Any) -> None:
            if key in owners and owners[key].handle is reference:
                del owners[key]

        of = None if optimizer is None else self.optimizer(optimizer)
        name, reference = (
            (None, lambda: None) if model is None else (layers.name_of(model), weakref.ref(model))
        )
        owners[key] = _Owner(weakref.ref(handle, gone), fact, reference, name, of)

    def optimizer(self, optimizer: Any) -> FormerOptimizer:
        """The note on an optimizer, whose `replaced_at` the caller may set."""
        found: FormerOptimizer = self._optimizers.setdefault(
            optimizer, FormerOptimizer(type(optimizer).__name__)
        )
        return found

    def handles(self) -> list[Any]:
        """The noted handles that exist."""
        return [
            handle for one in list(self._owners.values()) if (handle := one.handle()) is not None
        ]

    def facts(
        self, handles: Iterable[Any], known: Callable[[Any], object] = lambda handle: None
    ) -> list[VariableFact]:
        """Facts about the variables of handles that are gone, or of which nothing is `known`: they
        wait in a reference cycle for Python's garbage collector."""
        variables = ((handle, getattr(handle, "_parent_trackable", None)) for handle in handles)
        gone = (
            (handle, variable() is not None)
            for handle, variable in variables
            if isinstance(variable, weakref.ref) and (variable() is None or known(handle) is None)
        )
        return [fact for handle, exists in gone if (fact := self._fact(handle, exists)) is not None]

    def _fact(self, handle: Any, exists: bool) -> VariableFact | None:
        import tensorflow as tf

        data = getattr(handle, "_handle_data", None)
        if data is None or not data.is_set or len(data.shape_and_type) != 1:
            return None
        shape, dtype = (
            tf.TensorShape(data.shape_and_type[0].shape),
            tf.as_dtype(data.shape_and_type[0].dtype),
        )
        try:
            with tf.init_scope(), tf.device(handle.device):
                address = tensor_address(tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype))
        except Exception:  # it is not initialized
            return None
        if address is None or not shape.is_fully_defined():
            return None
        owner = self._owners.get(id(handle))
        if owner is not None and owner.handle() is handle:
            role, layer = owner.fact.role, owner.path(exists)
        else:
            role, layer = _named(
                str(handle._name).partition(":")[0], bool(shape.rank) and dtype.is_floating
            )
        name, device = f"{handle._name}#{id(handle)}", layers.short_device(handle.device)
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
    own = _NUMBERED.sub("", first).replace("_", "")
    optimizer = next((kind for kind in reversed(kinds) if kind.lower() == own), None)
    if optimizer is not None:
        return "optimizer_state", f"{unused(optimizer)}/{rest}"
    return "weights", f"{unused(EARLIER_MODEL)}/{name.rpartition('/')[0]}"


former_variables = FormerVariables()
