"""Finds the objects that only Python's garbage collector can free, and frees what TensorFlow keeps
of them.

`unreachable` decides as Python's garbage collector does: an object that is referred to from outside
of a set of objects, by its reference count, is reachable, and so is all that it refers to. What is
left of the set is garbage; with a smaller set, less is. Nothing is collected and no code of an
object runs. About 2.5 s for a million objects. No list of all objects is read: it contains some
that a collection on another thread has cleared.

`release_unused`: each time TensorFlow traces a function with a custom gradient, such as
`ReplicaContext.all_reduce` in Keras's optimizers, it registers the gradient in the process's
registry and never removes it. The registered function refers to the traced graph, which captured
the handles of all its variables: they stay allocated when the program's last reference is gone.
Only operations that name an entry of the registry need it. So each entry is lent to the graphs with
such operations, a stand-in in the registry finds it there, and the garbage collector decides what
nobody can reach."""

import collections
import contextlib
import gc
import operator
import sys
import types
import weakref
from collections.abc import Iterable
from itertools import compress, repeat
from typing import Any

from tb_memplugin.recorder.devices import choose_devices, memory_info
from tb_memplugin.schema import format_bytes

# most objects of a set; that of a small Keras model that was trained has about 8,000
MAX_OBJECTS = 200_000
MAX_IN_CLOSURE = 1000  # most values in the closures of a registered gradient that are looked at
_CUSTOM = (
    "tensorflow.python.ops.custom_gradient",
    "_graph_mode_decorator.<locals>.internal_grad_fn",
)
"""Module and name of the functions that TensorFlow registers for custom gradients while it
traces."""
# the operation that names them, and where
_CUSTOM_OP, _ATTRIBUTE = "IdentityN", "_gradient_op_type"
_LENT = "_tb_memplugin_lent_gradients"


def unreachable(objects: list[Any]) -> set[int]:
    """Ids of objects that only Python's garbage collector can free, among these and what they refer
    to. The list is emptied, since a list that refers to an object keeps it alive; the caller must
    hold no other reference."""
    # Classes made inside of functions are garbage cycles of their own when they are dropped. Keras
    # makes one for each model, whose methods refer to the model.
    members: dict[int, Any] = {}
    _extend(members, [*objects, *filter(_is_local, object.__subclasses__())])
    objects.clear()
    return _garbage(members)


def _extend(members: dict[int, Any], objects: list[Any]) -> None:
    """Add objects and what they refer to, but not what always exists: modules, their variables and
    classes."""
    fresh = _by_id(objects)
    while fresh:
        members.update(fresh)
        if len(members) > MAX_OBJECTS:
            return
        by_id = _by_id(gc.get_referents(*fresh.values()))
        fresh = {
            key: by_id[key] for key in by_id.keys() - members.keys() if _may_be_garbage(by_id[key])
        }


def _by_id(objects: list[Any]) -> dict[int, Any]:
    return dict(zip(map(id, objects), objects, strict=True))


def _may_be_garbage(value: Any) -> bool:
    kind = type(value)
    if kind is dict:
        return gc.is_tracked(value) and "__builtins__" not in value  # the variables of a module
    return (
        gc.is_tracked(value)
        and kind is not types.ModuleType
        and (not issubclass(kind, type) or _is_local(value))
    )


def _is_local(kind: type) -> bool:
    return "<locals>" in type.__dict__["__qualname__"].__get__(kind)


def _garbage(members: dict[int, Any]) -> set[int]:
    """Ids of the members that no reference from outside leads to. Other threads may run meanwhile,
    so counts are taken before and after the references between members: the larger one counts."""
    objects, ids = list(members.values()), list(members)
    own = next(map(sys.getrefcount, [object()])) + 1  # of `members` and `objects`
    before = list(map(sys.getrefcount, objects))
    inside = collections.Counter(map(id, gc.get_referents(*objects)))
    counts = map(max, before, list(map(sys.getrefcount, objects)))
    explained = map(operator.add, map(inside.__getitem__, ids), repeat(own))
    reachable = list(compress(objects, map(operator.gt, counts, explained)))
    garbage = set(ids).difference(map(id, reachable))
    while reachable:
        by_id = _by_id(gc.get_referents(*reachable))
        reached = by_id.keys() & garbage
        garbage -= reached
        reachable = [by_id[key] for key in reached]
    return garbage


def release_unused() -> int | None:
    """Free what TensorFlow keeps of optimizers and models that the program no longer uses, and
    print how much it was.

    Each `compile` and `fit` leaves the slots of the optimizer before it allocated, and a model
    stays allocated when the program has dropped it. Call this between two trainings, after the last
    reference to a model is gone:

    ```python
    del model
    tb_memplugin.release_unused()
    ```

    Python's garbage collector decides what is no longer used: whatever the program can still reach
    stays as it is, and training goes on with the same results. The call takes about as long as a
    few garbage collections. Only a GraphDef that the program keeps of a function that it dropped
    loses its custom gradients.

    Returns:
        The bytes freed on the GPUs, or on the CPU without a GPU, by their allocators' own figures.
        None if they have none."""
    devices = [device.name for device in choose_devices(None)[0]]
    before = [memory_info(device)[0] for device in devices]
    functions = _collect()
    after = [memory_info(device)[0] for device in devices]
    many = (
        f"{functions} traced function{'' if functions == 1 else 's'} that nothing can call any more"
    )
    for device, was, now in zip(devices, before, after, strict=True):
        freed = format_bytes(max(was - now, 0))
        print(f"{device}: {freed} freed, {format_bytes(now)} still allocated; released {many}.")
    if not devices:
        print(
            f"Released {many}. How much memory that freed is unknown: the allocator keeps no "
            "statistics."
        )
    return sum(before) - sum(after) if devices else None


class _StandIn:
    def __init__(
        self, name: str, entry: dict[str, Any], graphs: list[Any], registry: dict[str, Any]
    ) -> None:
        self.graphs = [weakref.ref(graph) for graph in graphs]
        self._name, self._registry = name, registry
        for graph in graphs:
            if not hasattr(graph, _LENT):  # a graph may have slots instead of a dictionary
                setattr(graph, _LENT, {})
            getattr(graph, _LENT)[name] = entry
        registry[name] = {**entry, "type": self}

    def lent(self) -> dict[str, Any] | None:
        graphs = (reference() for reference in self.graphs)
        lent = (getattr(graph, _LENT, {}).get(self._name) for graph in graphs if graph is not None)
        return next(filter(None, lent), None)

    def give_back(self) -> None:
        entry = self.lent()
        if entry is None:
            del self._registry[self._name]
        else:
            self._registry[self._name] = entry

    def __call__(self, operation: Any, *gradients: Any) -> Any:
        # Another thread may have looked the stand-in up before the entry went back.
        entry = self.lent() or self._registry[self._name]
        return entry["type"](operation, *gradients)


def _collect() -> int:
    """Collect garbage as if the registry of gradients kept no graph alive; the number of graphs
    that are gone."""
    from tensorflow.python.framework import ops

    stand_ins = _lend(getattr(ops.gradient_registry, "_registry", {}))
    graphs = {reference for one in stand_ins for reference in one.graphs}
    try:
        gc.collect()
    finally:
        for one in stand_ins:
            one.give_back()
        for reference in graphs:
            graph = reference()
            if graph is not None and hasattr(graph, _LENT):
                delattr(graph, _LENT)
    return sum(reference() is None for reference in graphs)


def _lend(registry: dict[str, Any]) -> list[_StandIn]:
    entries = _custom_gradients(registry)
    named: dict[str, list[Any]] = {}
    for graph in _graphs_of(entries.values()):
        for operation in graph.get_operations():
            if operation.type == _CUSTOM_OP:
                with contextlib.suppress(ValueError):  # an operation without custom gradient
                    named.setdefault(operation.get_attr(_ATTRIBUTE).decode(), []).append(graph)
    return [
        _StandIn(name, entry, named[name], registry)
        for name, entry in entries.items()
        if name in named
    ]


def _custom_gradients(registry: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        name: entry
        for name, entry in list(registry.items())
        if tuple(getattr(entry.get("type"), part, None) for part in ("__module__", "__qualname__"))
        == _CUSTOM
    }


def registered_graphs() -> list[Any]:
    """The traced graphs that TensorFlow's registry of custom gradients keeps, with the variables
    that they captured."""
    from tensorflow.python.framework import ops

    return _graphs_of(_custom_gradients(getattr(ops.gradient_registry, "_registry", {})).values())


def _graphs_of(entries: Iterable[dict[str, Any]]) -> list[Any]:
    import tensorflow as tf

    graphs: dict[int, Any] = {}
    for entry in entries:
        pending: list[Any] = [entry["type"]]
        for _ in range(MAX_IN_CLOSURE):
            value: Any = pending.pop() if pending else None
            if isinstance(value, types.FunctionType):
                for cell in value.__closure__ or ():
                    with contextlib.suppress(ValueError):  # an empty cell
                        pending.append(cell.cell_contents)
            elif isinstance(value, (list, tuple)):
                pending += value
            elif tf.is_symbolic_tensor(value):
                graph = value.graph
                while graph is not None and id(graph) not in graphs:
                    graphs[id(graph)] = graph
                    graph = getattr(graph, "outer_graph", None)
    return list(graphs.values())
