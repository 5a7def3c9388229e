"""`release_unused`: free the memory of earlier optimizers and models that TensorFlow keeps.

Keras's optimizers sum the gradients of replicas by a function with a custom gradient (`ReplicaContext.all_reduce`).
Each time TensorFlow traces such a function it registers the custom gradient in the process's registry of gradients, and
never removes it. The registered function refers to tensors of the traced graph, and the graph captured the handles of
all its variables: slots and weights stay allocated when the program's last reference to them is gone.

Nothing but the operations that name an entry of the registry needs it. So each entry is lent to the graphs with such
operations, a stand-in in the registry finds it there, and Python's garbage collector decides what nobody can reach.
The entries of graphs that remain go back into the registry.
"""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

from tb_memplugin.recorder.devices import choose_devices, memory_info
from tb_memplugin.recorder.heap.heap_listing import objects_of, subclasses
from tb_memplugin.schema import format_bytes

_CUSTOM = ("tensorflow.python.ops.custom_gradient", "_graph_mode_decorator.<locals>.internal_grad_fn")
"""Module and name of the functions that TensorFlow registers for custom gradients while it traces."""
_CUSTOM_OP = "IdentityN"  # the operation that names them
_LENT = "_tb_memplugin_lent_gradients"


def release_unused() -> int | None:
    """Free what TensorFlow keeps of optimizers and models that the program no longer uses, and print how much it was.

    Each `compile` and `fit` leaves the slots of the optimizer before it allocated, and a model stays allocated when the
    program has dropped it. Call this between two trainings, after the last reference to a model is gone:

    ```python
    del model
    tb_memplugin.release_unused()
    ```

    Python's garbage collector decides what is no longer used: whatever the program can still reach stays as it is, and
    training goes on with the same results. The call takes about as long as a few garbage collections. Only a GraphDef
    that the program keeps of a function that it dropped loses its custom gradients.

    Returns:
        The bytes freed on the GPUs, or on the CPU without a GPU, by their allocators' own figures. None if they have
        none.
    """
    devices = [device.name for device in choose_devices(None)[0]]
    before = [memory_info(device)[0] for device in devices]
    functions = _collect()
    after = [memory_info(device)[0] for device in devices]
    many = f"{functions} traced function{'' if functions == 1 else 's'} that nothing can call any more"
    for device, was, now in zip(devices, before, after, strict=True):
        freed = format_bytes(max(was - now, 0))
        print(f"{device}: {freed} freed, {format_bytes(now)} still allocated; released {many}.")
    if not devices:
        print(f"Released {many}. How much memory that freed is unknown: the allocator keeps no statistics.")
    return sum(before) - sum(after) if devices else None


class _StandIn:
    """An entry's gradient function while the entry is lent to graphs."""

    def __init__(self, name: str, graphs: list[Any], registry: dict[str, Any]) -> None:
        self.graphs = [weakref.ref(graph) for graph in graphs]
        self._name, self._registry = name, registry

    def lent(self) -> dict[str, Any] | None:
        graphs = (reference() for reference in self.graphs)
        lent = (getattr(graph, _LENT, {}).get(self._name) for graph in graphs if graph is not None)
        return next(filter(None, lent), None)

    def __call__(self, operation: Any, *gradients: Any) -> Any:
        # Another thread may have looked the stand-in up before the entry went back.
        entry = self.lent() or self._registry[self._name]
        return entry["type"](operation, *gradients)


def _collect() -> int:
    """Collect garbage as if the registry of gradients kept no graph alive; the number of graphs that are gone."""
    from tensorflow.python.framework import ops

    registry: dict[str, Any] = getattr(ops.gradient_registry, "_registry", {})
    stand_ins = _lend(registry)
    graphs = {reference for one in stand_ins.values() for reference in one.graphs}
    try:
        gc.collect()
    finally:
        _return(registry, stand_ins)
    return sum(reference() is None for reference in graphs)


def _lend(registry: dict[str, Any]) -> dict[str, _StandIn]:
    entries = {name: entry for name, entry in list(registry.items()) if _is_custom(entry)}
    named: dict[str, list[Any]] = {}
    kept: set[str] = set()
    for item in objects_of(_kinds()) if entries else ():
        if hasattr(item, "get_operations"):
            for name in _names_in_graph(item):
                named.setdefault(name, []).append(item)
        else:
            kept.update(_names_without_graph(item))
    stand_ins = {}
    for name, entry in entries.items():
        if name in named and name not in kept:
            for graph in named[name]:
                if not hasattr(graph, _LENT):
                    setattr(graph, _LENT, {})
                getattr(graph, _LENT)[name] = entry
            stand_ins[name] = _StandIn(name, named[name], registry)
            registry[name] = {**entry, "type": stand_ins[name]}
    return stand_ins


def _kinds() -> set[type]:
    import tensorflow as tf
    from tensorflow.python.eager.polymorphic_function.atomic_function import AtomicFunction

    return subclasses(tf.Graph) | subclasses(AtomicFunction)


def _return(registry: dict[str, Any], stand_ins: dict[str, _StandIn]) -> None:
    for name, stand_in in stand_ins.items():
        entry = stand_in.lent()
        if entry is None:
            del registry[name]
        else:
            registry[name] = entry
    for stand_in in stand_ins.values():
        for reference in stand_in.graphs:
            graph = reference()
            if graph is not None and hasattr(graph, _LENT):
                delattr(graph, _LENT)


def _is_custom(entry: dict[str, Any]) -> bool:
    function = entry.get("type")
    return (getattr(function, "__module__", None), getattr(function, "__qualname__", None)) == _CUSTOM


def _names_in_graph(graph: Any) -> Iterator[str]:
    for operation in graph.get_operations():
        if operation.type == _CUSTOM_OP:
            try:
                name = operation.get_attr("_gradient_op_type")
            except ValueError:  # an operation without custom gradient
                continue
            yield name.decode()


def _names_without_graph(function: Any) -> Iterator[str]:
    """Names in a function whose graph TensorFlow would make from its definition when a gradient is taken."""
    if getattr(function, "_cached_graph", None) is None:
        for node in function.definition.node_def:
            if "_gradient_op_type" in node.attr:
                yield node.attr["_gradient_op_type"].s.decode()
