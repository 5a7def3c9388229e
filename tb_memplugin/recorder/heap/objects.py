"""Python's objects: lists them by class, finds those that only the garbage collector can free, frees what TensorFlow
keeps of them.

`unreachable` decides as Python's garbage collector does: an object that is referred to from outside of a set of
objects, by its reference count, is reachable, and so is all that it refers to. What is left of the set is garbage; with
a smaller set, less is. Nothing is collected and no code of an object runs. About 2.5 s for a million objects.

`release_unused`: each time TensorFlow traces a function with a custom gradient, such as `ReplicaContext.all_reduce` in
Keras's optimizers, it registers the gradient in the process's registry and never removes it. The registered function
refers to the traced graph, which captured the handles of all its variables: they stay allocated when the program's last
reference is gone. Only operations that name an entry of the registry need it. So each entry is lent to the graphs with
such operations, a stand-in in the registry finds it there, and the garbage collector decides what nobody can reach."""

import collections
import contextlib
import gc
import logging
import operator
import sys
import types
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, compress, repeat, starmap
from typing import Any

from tb_memplugin.recorder.base import weakly
from tb_memplugin.recorder.devices import choose_devices, memory_info
from tb_memplugin.schema import format_bytes

logger = logging.getLogger("tb_memplugin")

YOUNG = (0, 1)  # generations of the garbage collector that hold objects made recently
MAX_CAUGHT = 100_000  # most objects that are remembered until they are taken; the oldest go first
MAX_OBJECTS = 200_000  # most objects of a set; that of a small Keras model that was trained has about 8,000
MAX_REFERRERS = 100  # most objects that refer to some others that are looked at
MAX_CONTAINERS = 3  # most containers between an object and the one that is named as its owner
_CONTAINERS = (dict, list, tuple, set, types.CellType)
_CUSTOM = ("tensorflow.python.ops.custom_gradient", "_graph_mode_decorator.<locals>.internal_grad_fn")
"""Module and name of the functions that TensorFlow registers for custom gradients while it traces."""
_CUSTOM_OP, _ATTRIBUTE = "IdentityN", "_gradient_op_type"  # the operation that names them, and where
_LENT = "_tb_memplugin_lent_gradients"


def objects_of(kinds: Collection[type], generation: int | None = None) -> list[Any]:
    """Objects of exactly these classes (no subclasses) that Python's garbage collector tracks.

    The collector also lists tuples that another thread is filling at this moment. `tuple(generator)` raises SystemError
    if something else refers to its tuple, so no thread may run from the listing until the tuples are dropped: no Python
    code, nor anything that can run Python code. That excludes `id`, which calls the audit hooks, the classes' own
    `__hash__`, `__eq__` and `__class__`, and every new object that the collector tracks: it may start a collection, and
    with it finalizers. Therefore one call of C code lists the objects, leaves out the tuples, and drops the list. What
    follows in the same call, choosing the classes, may start a collection before Python 3.12: `object.__hash__` is
    passed its argument in a tuple. Raises ValueError if `kinds` contains `tuple`."""
    if tuple in kinds:
        raise ValueError("objects_of cannot list tuples: another thread may be filling one. Pass other classes.")
    wanted = frozenset(map(object.__hash__, kinds))
    tracked: list[Any] = []
    others: list[Any] = []
    found = _without_tuples(tracked, map(gc.get_objects, (generation,)))
    is_wanted = map(wanted.__contains__, map(object.__hash__, map(type, others)))
    try:
        return list(compress(_filled(others, (found,)), is_wanted))
    finally:  # there was no memory for the result
        tracked.clear()
        others.clear()


def _without_tuples(tracked: list[Any], sources: Iterable[Iterable[Any]]) -> Iterator[Any]:
    return compress(_filled(tracked, sources), map(operator.is_not, map(type, tracked), repeat(tuple)))


def _filled(items: list[Any], sources: Iterable[Iterable[Any]]) -> Iterator[Any]:
    """Fill a list from sources, yield its items, and empty it; all in C, and without making an object meanwhile."""
    fill: Iterator[Any] = filter(None, map(items.extend, sources))  # `extend` returns None, which `filter` drops
    empty: Iterator[Any] = iter(items.clear, None)  # ends after one call, which returns None
    return chain(fill, iter(items), empty)


def subclasses(kind: type) -> set[type]:
    return {kind}.union(*map(subclasses, kind.__subclasses__()))


class Promotions:
    """Remembers weakly the objects of some classes that leave the young generations between `start` and `stop`.
    `next_number` returns a number that is one higher at each call, and one more for each object made in between.
    `misses` counts the times at which objects may have grown old uncaught, `start` included."""

    def __init__(self, kinds: Callable[[], Collection[type]], next_number: Callable[[], int]) -> None:
        self.misses, self._kinds, self._next_number = 0, kinds, next_number
        self._number: int | None = None  # before the list was made
        self._caught: collections.deque[weakref.ref[Any]] = collections.deque(maxlen=MAX_CAUGHT)
        self._callback: weakref.finalize[..., Any] | None = None  # removes it

    def start(self) -> None:
        if self._callback is None:
            self.misses += 1
            callback = weakly(self._collection)
            gc.callbacks.append(callback)
            self._callback = weakref.finalize(self, _remove_callback, callback)

    def stop(self) -> None:
        remove, self._callback = self._callback, None
        if remove is not None:
            remove()

    def take(self) -> list[Any]:
        caught = [self._caught.popleft()() for _ in range(len(self._caught))]
        return [item for item in caught if item is not None]

    def _collection(self, phase: str, info: dict[str, int]) -> None:
        """Catch the young objects before a collection that makes objects old, on the thread that caused it."""
        if info["generation"] < YOUNG[-1]:
            return
        try:
            if phase == "start":
                self._number = self._next_number()
                kinds = self._kinds()
                for generation in YOUNG:
                    self._caught.extend(map(weakref.ref, objects_of(kinds, generation)))
                self.misses += len(self._caught) == self._caught.maxlen
            else:
                number, self._number = self._number, None
                self.misses += number is None or self._next_number() != number + 1
        except Exception:
            self._number = None
            logger.debug("objects that grow old could not be noted", exc_info=True)


def _remove_callback(callback: Any) -> None:
    with contextlib.suppress(ValueError):  # the program emptied the list
        gc.callbacks.remove(callback)


def unreachable(objects: list[Any], levels: int = 2) -> set[int]:
    """Ids of objects that only Python's garbage collector can free, among these and what they refer to. The list is
    emptied, since a list that refers to an object keeps it alive; the caller must hold no other reference. Objects that
    refer to those which seem reachable are looked for `levels` times in all of the process, 0.1 s for a million."""
    return _search(objects, levels)[1]


def cycles_of(objects: list[Any], levels: int = 2) -> dict[int, str]:
    """Id of each object that `unreachable` would find to the class of what refers to it."""
    wanted = set(map(id, objects))
    members, garbage = _search(objects, levels)
    owners: dict[int, Any] = {}
    for key in garbage - wanted:
        for child in gc.get_referents(members[key]):
            owners.setdefault(id(child), members[key])
    names: dict[int, str] = {}
    for key in wanted & garbage & owners.keys():
        owner = owners[key]
        for _ in range(MAX_CONTAINERS):
            owner = owners.get(id(owner), owner) if isinstance(owner, _CONTAINERS) else owner
        names[key] = type(owner).__name__
    return names


def _search(objects: list[Any], levels: int) -> tuple[dict[int, Any], set[int]]:
    # Classes made inside of functions are garbage cycles of their own when they are dropped. Keras makes one for each
    # model, whose methods refer to the model.
    members: dict[int, Any] = {}
    _extend(members, [*objects, *filter(_is_local, object.__subclasses__())])
    wanted = set(map(id, objects))
    objects.clear()
    garbage = _garbage(members)
    for _ in range(levels):
        found = _referrers([members[key] for key in wanted - garbage], members)
        if not found:
            break
        _extend(members, found)
        wanted.update(map(id, found))
        found.clear()
        garbage = _garbage(members)
    return members, garbage


def _extend(members: dict[int, Any], objects: list[Any]) -> None:
    """Add objects and what they refer to, but not what always exists: modules, their variables and classes."""
    fresh = _by_id(objects)
    while fresh:
        members.update(fresh)
        if len(members) > MAX_OBJECTS:
            return
        by_id = _by_id(gc.get_referents(*fresh.values()))
        fresh = {key: by_id[key] for key in by_id.keys() - members.keys() if _may_be_garbage(by_id[key])}


def _by_id(objects: list[Any]) -> dict[int, Any]:
    return dict(zip(map(id, objects), objects, strict=True))


def _may_be_garbage(value: Any) -> bool:
    kind = type(value)
    if kind is dict:
        return gc.is_tracked(value) and "__builtins__" not in value  # the variables of a module
    return gc.is_tracked(value) and kind is not types.ModuleType and (not issubclass(kind, type) or _is_local(value))


def _is_local(kind: type) -> bool:
    return "<locals>" in type.__dict__["__qualname__"].__get__(kind)


def _garbage(members: dict[int, Any]) -> set[int]:
    """Ids of the members that no reference from outside leads to. Other threads may run meanwhile, so counts are taken
    before and after the references between members: the larger one counts."""
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


def _referrers(objects: list[Any], members: dict[int, Any]) -> list[Any]:
    known = {id(objects), id(members), *members}
    del objects[MAX_REFERRERS:]
    tracked: list[Any] = []
    try:
        found = list(_without_tuples(tracked, starmap(gc.get_referrers, (tuple(objects),)))) if objects else []
    finally:
        tracked.clear()
    others = [value for value in found if id(value) not in known]
    return [value for value in others if type(value) is not types.FrameType and _may_be_garbage(value)][:MAX_REFERRERS]


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
        none."""
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
    def __init__(self, name: str, entry: dict[str, Any], graphs: list[Any], registry: dict[str, Any]) -> None:
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
    """Collect garbage as if the registry of gradients kept no graph alive; the number of graphs that are gone."""
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
    import tensorflow as tf
    from tensorflow.python.eager.polymorphic_function.atomic_function import AtomicFunction

    entries = {
        name: entry
        for name, entry in list(registry.items())
        if tuple(getattr(entry.get("type"), part, None) for part in ("__module__", "__qualname__")) == _CUSTOM
    }
    named: dict[str, list[Any]] = {}
    kept: set[str] = set()
    for item in objects_of(subclasses(tf.Graph) | subclasses(AtomicFunction)) if entries else ():
        if not hasattr(item, "get_operations"):
            if getattr(item, "_cached_graph", None) is None:  # made from the definition when a gradient is taken
                attributes = (node.attr for node in item.definition.node_def)
                kept.update(one[_ATTRIBUTE].s.decode() for one in attributes if _ATTRIBUTE in one)
            continue
        for operation in item.get_operations():
            if operation.type == _CUSTOM_OP:
                with contextlib.suppress(ValueError):  # an operation without custom gradient
                    named.setdefault(operation.get_attr(_ATTRIBUTE).decode(), []).append(item)
    return [
        _StandIn(name, entry, named[name], registry)
        for name, entry in entries.items()
        if name in named and name not in kept
    ]
