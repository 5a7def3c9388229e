"""Finds what keeps tensors alive: a variable, an attribute, or a list or dict and its owner.

Python can list the referrers of an object, but scans every object of the process for it (about 50 ms for the 550,000
objects of a program with a Keras model), once per level. So the search goes the other way, within a time limit: breadth
first from the program's own modules and running functions down to the tensors. The NumPy arrays and iterators that the
program keeps, which no garbage collector knows, are found on the same way.
"""

import collections
import functools
import gc
import os
import sys
import time
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tb_memplugin.recorder.heap.python_objects import KnownTensor
from tb_memplugin.recorder.heap.reachability import cycles_of
from tb_memplugin.recorder.heap.retaining_path import Node, RetainingPaths, closure, describe
from tb_memplugin.recorder.watch import PREFIXES, running_functions
from tb_memplugin.schema import TensorFact

HOLDER_SHARE = 0.01
"""Least share of a device's bytes in use that held tensors must have for a search, unless they grew; and least share of
the held tensors that those of one shape must have: a search for a few scalars would take as long."""
MAX_IN_CYCLES = 20
"""Most tensors without a known holder that are looked for in reference cycles at a time, the largest ones."""
SEARCH_SECONDS = 0.05
"""Processor time that one search may take of the training's thread, whatever else the machine does meanwhile."""
MAX_DEPTH = 8
"""Most references from a module or a function to a tensor; an attribute may count as two."""
MAX_HOLDERS = 3
"""Most holders of arrays, or iterators, that are told, those of the most bytes or iterators."""
REFERENCES_BETWEEN_CLOCKS = 1024
_ITERATORS = frozenset({"OwnedIterator", "OwnedMultiDeviceIterator", "NumpyIterator", "_NumpyIterator"})
_LEAVES = (types.ModuleType, types.CodeType, types.BuiltinFunctionType, types.FrameType)
_LIBRARIES = frozenset({"tensorflow", "numpy", "google", "ml_dtypes", "jax", "h5py", "tb_memplugin"})
"""Packages with objects that are not searched."""
_OF_KERAS = (
    *("keras.src.callbacks", "keras.src.models", "keras.src.layers", "keras.src.utils.tracking"),
    *("tf_keras.src.callbacks", "tf_keras.src.engine", "tf_keras.src.models", "tf_keras.src.layers"),
)
"""Modules of Keras with objects that may hold the program's tensors."""
_PYTHON = os.path.dirname(os.__file__) + os.sep
_INSTALLED = ("site-packages", "dist-packages")

Device = str
Entry = tuple[Device, TensorFact, KnownTensor]


class HolderSearch:
    def __init__(self) -> None:
        self._held_before: Mapping[Device, int] = {}

    def search(self, entries: Iterable[Entry], in_use: Mapping[Device, int], window: int) -> None:
        """Set `held_by` and `retaining_path` of the held tensors if they grew or are many and the holder is unknown.

        A search that fails is repeated when the number of the window has doubled.
        """
        held = [entry for entry in entries if entry[1].category == "held_tensors"]
        by_device: Counter[Device] = Counter()
        by_shape: Counter[object] = Counter()
        for device, fact, _ in held:
            by_device[device] += fact.requested_bytes
            by_shape[device, fact.shape, fact.dtype] += fact.requested_bytes
        devices = {
            device
            for device, size in by_device.items()
            if size > self._held_before.get(device, 0) or size > HOLDER_SHARE * in_use.get(device, 0)
        }
        self._held_before = by_device
        due = [
            known
            for device, fact, known in sorted(held, key=lambda entry: -entry[1].requested_bytes)
            if device in devices
            and known.held_by is None
            and by_shape[device, fact.shape, fact.dtype] >= HOLDER_SHARE * by_device[device]
            and known.next_search <= window
        ]
        tensors = _alive(due)
        holders = find_holders(tensors) if tensors else {}
        tensors.clear()
        for known in due:
            known.held_by, known.retaining_path = holders.get(id(known.reference()), (None, None))
            known.next_search = 2 * window
        others = _alive([known for known in due if known.held_by is None][:MAX_IN_CYCLES])
        cycles = cycles_of(others) if others else {}
        for known in due:
            name = cycles.get(id(known.reference()))
            known.held_by = known.held_by if name is None else f"a reference cycle of {name} (gc.collect() frees it)"


def _alive(known: Iterable[KnownTensor]) -> list[Any]:
    """The tensors that exist. The list is the only new reference to them."""
    return [tensor for one in known if (tensor := one.reference()) is not None]


def find_holders(
    tensors: Sequence[Any], seconds: float = SEARCH_SECONDS, clock: Callable[[], float] = time.thread_time
) -> dict[int, tuple[str, str]]:
    """Id of a tensor to what keeps it alive; tensors without a known holder are missing.

    That is the holder, such as "list `history` in module __main__", and the references from a module or a running
    function to the tensor, as `RetainingPaths` describes them. Prefers an attribute or a container to a variable.
    """
    end = clock() + seconds
    ids = {id(tensor) for tensor in tensors}
    holders: dict[int, tuple[str, str]] = {}
    variables: dict[int, tuple[str, str]] = {}
    paths = RetainingPaths()
    for count, (node, place, child) in enumerate(references({*ids, id(tensors)})):
        if len(holders) == len(ids) or (count % REFERENCES_BETWEEN_CLOCKS == 0 and clock() > end):
            break
        key, found = id(child), variables if node.parent is None else holders
        if key in ids and key not in holders and key not in found:
            found[key] = describe(node, child), paths.to(node, place, child)
    return {**variables, **holders}


class Kept(NamedTuple):
    """What an object keeps: `size` bytes of NumPy arrays, or iterators, whose buffers have an unknown size (None)."""

    holder: str
    number: int
    size: int | None


def kept_objects(seconds: float = SEARCH_SECONDS) -> tuple[list[Kept], list[Kept]]:
    """NumPy arrays, and tf.data iterators, by holder; what is not found within the processor time is left out."""
    array_type = getattr(sys.modules.get("numpy"), "ndarray", None)
    if array_type is None:
        return [], []
    end = time.thread_time() + seconds
    seen: set[int] = set()
    sizes: Counter[int] = Counter()
    arrays: Counter[int] = Counter()
    iterators: Counter[int] = Counter()
    holders: dict[int, tuple[Node, Any]] = {}
    for number, (node, _, child) in enumerate(references(set(), untracked=True)):
        if number % REFERENCES_BETWEEN_CLOCKS == 0 and time.thread_time() > end:
            break
        is_array = isinstance(child, array_type)
        if not (is_array or type(child).__name__ in _ITERATORS) or id(child) in seen:
            continue
        seen.add(id(child))
        key = id(node.value)
        holders.setdefault(key, (node, child))
        (arrays if is_array else iterators)[key] += 1
        if is_array and child.base is None:  # a view has no memory of its own
            sizes[key] += child.nbytes
    return (
        [Kept(describe(*holders[key]), arrays[key], size) for key, size in sizes.most_common(MAX_HOLDERS)],
        [Kept(describe(*holders[key]), count, None) for key, count in iterators.most_common(MAX_HOLDERS)],
    )


def references(ends: set[int], untracked: bool = False) -> Iterator[tuple[Node, int, Any]]:
    """(object, position of a reference, object that it refers to), breadth first.

    Nothing is looked for beyond objects with the ids of `ends`. Dicts and tuples of objects that the garbage collector
    does not track, such as NumPy arrays, are looked into if `untracked`.
    """
    visited = set(ends)
    pending: collections.deque[Node] = collections.deque(_roots())
    while pending:
        node = pending.popleft()
        for place, child in enumerate(_children(node.value)):
            yield node, place, child
            if (
                node.depth < MAX_DEPTH
                and id(child) not in visited
                and (_may_hold(child) or (untracked and type(child) in (dict, tuple)))
            ):
                visited.add(id(child))
                pending.append(Node(child, node, "", place, node.depth + 1))


def _roots() -> Iterator[Node]:
    """The program's own modules, then this thread's running functions."""
    for name in list(sys.modules):
        if name != "__mp_main__" and _is_program(name):
            yield Node(dict(getattr(sys.modules.get(name), "__dict__", {})), None, f"module {name}")
    for frame, variables in running_functions():
        code = frame.f_code
        yield Node(variables, None, f"{code.co_name}() in {os.path.basename(code.co_filename)}")


def _is_program(name: str) -> bool:
    """Whether neither a module nor its package is installed or part of Python."""
    package = name.partition(".")[0]
    return not _is_installed(package) and (package == name or not _is_installed(name))


@functools.lru_cache(maxsize=4096)
def _is_installed(name: str) -> bool:
    if name == "__main__" or name in _LIBRARIES:
        return name != "__main__"
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file:  # a namespace package: its modules decide
        return not hasattr(module, "__path__")
    return file.startswith(_PYTHON) or any(folder in file for folder in _INSTALLED)


@functools.lru_cache(maxsize=4096)
def _is_searched(name: str) -> bool:
    """Whether objects of the classes of a module may refer to tensors of the program."""
    package = name.partition(".")[0]
    return package not in _LIBRARIES and (f"{package}." not in PREFIXES or name.startswith(_OF_KERAS))


def _children(value: Any) -> Sequence[Any]:
    """Objects that an object refers to; for a function, its closure and defaults, but not its module."""
    if isinstance(value, dict):
        return list(value.values())
    if isinstance(value, (list, tuple)):
        return value
    if isinstance(value, collections.deque):
        return list(value)
    if isinstance(value, type):
        return list(vars(value).values())
    if isinstance(value, types.FunctionType):
        return [*closure(value).values(), *(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    return gc.get_referents(value)


def _may_hold(value: Any) -> bool:
    if not gc.is_tracked(value) or isinstance(value, _LEAVES):
        return False
    if isinstance(value, type):
        return _is_program(str(value.__module__))
    return _is_searched(str(type(value).__module__))
