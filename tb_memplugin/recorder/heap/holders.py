"""Finds and describes what keeps tensors alive: a variable, an attribute, or a list or dict and its
owner.

Python can list the referrers of an object, but scans every object of the process for it (about 50
ms for the 550,000 objects of a program with a Keras model), once per level. So the search goes the
other way, within a time limit: breadth first from the program's own modules and running functions
down to the tensors. The NumPy arrays and iterators that the program keeps, which no garbage
collector knows, are found on the same way.

A holder is a phrase such as "list in attribute `outputs` of Evaluator", a retaining path the
references from a root: ``module __main__ › history (list) › [12] (dict) › "loss"``."""

import collections
import contextlib
import functools
import gc
import itertools
import os
import re
import sys
import time
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from tb_memplugin.recorder.base import attributes, closure, is_subclass
from tb_memplugin.recorder.heap.frames import INSTALLED, PREFIXES, running_functions
from tb_memplugin.schema import OMITTED, SEPARATOR, CounterKind

_T = TypeVar("_T")
SEARCH_SECONDS = 0.05
"""Processor time that one search may take of the training's thread, whatever else the machine does
meanwhile."""
# most references from a module or a function to a tensor; an attribute may count as two
MAX_DEPTH = 8
# most holders of arrays, or iterators, that are told, those of the most bytes or iterators
MAX_HOLDERS = 3
MAX_NAME_CHARACTERS = 400  # longer names are cut: keys may be texts of any length
MAX_PATH_CHARACTERS = 2_000  # of a longer path, objects in its middle are left out
REFERENCES_BETWEEN_CLOCKS = 1024
_MAX_INTEGER_KEY = 10**9
_PLAIN_KEY = re.compile(r"\w[\w.:-]*(/[\w.:-]+)*")
"""Keys that may be stored: others, such as absolute paths and addresses of persons, are data of the
program."""
_CONTAINERS = (list, tuple, dict, collections.deque)
_ITERATORS = frozenset(
    {"OwnedIterator", "OwnedMultiDeviceIterator", "NumpyIterator", "_NumpyIterator"}
)
_PLAIN = frozenset(
    {str, bytes, int, float, bool, complex, type(None), property, staticmethod, classmethod}
)
_LEAVES = (types.ModuleType, types.CodeType, types.BuiltinFunctionType, types.FrameType)
_LIBRARIES = frozenset(
    {"tensorflow", "numpy", "google", "ml_dtypes", "jax", "h5py", "tb_memplugin"}
)
"""Packages with objects that are not searched."""
_OF_KERAS = (
    *("keras.src.callbacks", "keras.src.models", "keras.src.layers", "keras.src.utils.tracking"),
    "keras.src.trainers.compile_utils",
    *(
        "tf_keras.src.callbacks",
        "tf_keras.src.engine",
        "tf_keras.src.models",
        "tf_keras.src.layers",
    ),
)
"""Modules of Keras with objects that may hold the program's tensors."""
_SEARCHED = (
    *(*_OF_KERAS, "keras.src.trainers", "keras.src.backend.tensorflow.trainer"),
    *("tensorflow.python.data", "tensorflow.python.distribute.input_lib"),
    "tensorflow.python.trackable.data_structures",
    *(
        "tensorflow.python.eager.polymorphic_function.polymorphic_function",
        "tensorflow.core.function.polymorphism",
    ),
    "tensorflow.python.eager.polymorphic_function.concrete_function",
)
"""Modules of Keras and TensorFlow with objects that may lead to tensors, data sets and traced
functions."""
_PYTHON = os.path.dirname(os.__file__) + os.sep


class Node(NamedTuple):
    """An object on the way from a root, whose value is the dict of its variables, to a tensor."""

    value: Any
    parent: "Node | None"
    root: str = ""  # describes a root
    place: int = 0  # among the references of the parent
    depth: int = 0  # references from the root


def find_holders(
    tensors: Sequence[Any],
    seconds: float = SEARCH_SECONDS,
    clock: Callable[[], float] = time.thread_time,
) -> dict[int, tuple[str, str]]:
    """Id of a tensor to its holder and its retaining path; tensors without a known holder are
    missing. Prefers an attribute or a container to a variable."""
    ids = {id(tensor) for tensor in tensors}
    holders, variables = dict[int, tuple[str, str]](), dict[int, tuple[str, str]]()
    described: Node | None = None  # tensors of one container are found in a row
    for node, place, child in _in_time(references({*ids, id(tensors)}), seconds, clock):
        if len(holders) == len(ids):
            break
        key, found = id(child), variables if node.parent is None else holders
        if key in ids and key not in holders and key not in found:
            if node is not described:
                described, parts, keys = node, _parts(node), _keys(node.value)
            path = _joined([*parts, _reference(node, keys, place, child)])
            found[key] = _holder(node, child), path
    return {**variables, **holders}


def _in_time(
    items: Iterable[_T], seconds: float, clock: Callable[[], float] = time.thread_time
) -> Iterator[_T]:
    """The items that come within some time."""
    end = clock() + seconds
    for number, item in enumerate(items):
        if number % REFERENCES_BETWEEN_CLOCKS == 0 and clock() > end:
            return
        yield item


def reachable(
    kinds: tuple[type, ...],
    ends: tuple[type, ...],
    roots: Iterable[Any] = (),
    seconds: float = SEARCH_SECONDS,
) -> list[Any]:
    """Objects of these classes and their subclasses that the program can reach from its modules,
    this thread's running functions and `roots`, as far as the time allows. Looks at nothing that
    objects of `ends` refer to."""
    end = time.thread_time() + seconds
    # by id of a class, which is kept so that no other one gets its id
    known: dict[int, tuple[type, bool, bool, bool]] = {}
    found: list[Any] = []
    visited: set[int] = set()
    level: list[Any] = [value for node in _roots() for value in node.value.values()] + list(roots)
    while level and time.thread_time() < end:
        plain: list[Any] = []
        special: list[Any] = []
        for number, value in enumerate(level):
            if number % REFERENCES_BETWEEN_CLOCKS == 0 and time.thread_time() > end:
                break
            kind = type(value)
            if (looked := known.get(id(kind))) is None:
                is_special = is_subclass(kind, (type, types.FunctionType))
                leads_on = _leads_on(kind) and not is_subclass(kind, ends)
                looked = kind, is_subclass(kind, kinds), leads_on, is_special
                known[id(kind)] = looked
            _, is_wanted, leads_on, is_special = looked
            if not (is_wanted or leads_on) or id(value) in visited:
                continue
            visited.add(id(value))
            if is_wanted:
                found.append(value)
            if leads_on and gc.is_tracked(value):
                (special if is_special else plain).append(value)
        level = gc.get_referents(*plain)
        for value in special:
            if type(value) is types.FunctionType or _is_program(_module_name(value)):
                level += _children(value)
    return found


def _module_name(kind: type) -> str:
    name = type.__dict__["__dict__"].__get__(kind).get("__module__")
    return name if type(name) is str else "builtins"


def _leads_on(kind: type) -> bool:
    """Whether objects of a class may refer to the program's tensors."""
    name = _module_name(kind)
    # signatures, and what attributes lead to as well
    if (
        kind in _PLAIN
        or is_subclass(kind, _LEAVES)
        or name == "inspect"
        or kind.__name__ == "Tracker"
    ):
        return False
    return name.startswith(_SEARCHED) or _is_searched(name)


class Kept(NamedTuple):
    """What an object keeps: a number of objects of one kind, of `size` bytes; None for iterators,
    whose buffers have an unknown size."""

    kind: CounterKind
    holder: str
    number: int
    size: int | None


def kept_objects(
    kind_of: Callable[[type], CounterKind | None] = lambda kind: None,
    size_of: Callable[[Any], int | None] = lambda item: None,
    seconds: float = SEARCH_SECONDS,
) -> list[Kept]:
    """NumPy arrays, tf.data iterators and objects of the classes of which `kind_of` gives a kind,
    by holder; what is not found within the processor time is left out. `size_of` gives the bytes of
    the latter, None for those that do not count."""
    array_type: Any = getattr(sys.modules.get("numpy"), "ndarray", None)
    # by id of a class, which is kept so that no other one gets its id
    kinds: dict[int, tuple[type, CounterKind | None]] = {}
    found: CounterKind | None
    seen: set[int] = set()
    sizes: dict[CounterKind, Counter[int | str]] = {}  # by id of the holder, or its name
    numbers = Counter[tuple[CounterKind, int | str]]()
    holders: dict[int | str, tuple[Node, Any]] = {}
    for node, _, child in _in_time(references(set(), untracked=True), seconds):
        of_class = type(child)
        if id(of_class) not in kinds:
            is_array = array_type is not None and is_subclass(of_class, (array_type,))
            is_iterator = of_class.__name__ in _ITERATORS
            found = "kept_arrays" if is_array else "kept_iterators" if is_iterator else None
            kinds[id(of_class)] = of_class, found or kind_of(of_class)
        kind = kinds[id(of_class)][1]
        if kind is None or id(child) in seen:
            continue
        seen.add(id(child))
        if kind == "kept_arrays":
            # whatever a class of the program makes of it; a view has no memory of its own
            is_view = array_type.base.__get__(child) is not None
            size = 0 if is_view else array_type.nbytes.__get__(child)
        else:
            size = 1 if kind == "kept_iterators" else size_of(child)
        if size is None:
            continue
        # objects of a class in one container are one holder
        key = id(node.value) if _container(_owner(node)) is None else _holder(node, child)
        holders.setdefault(key, (node, child))
        numbers[kind, key] += 1
        if size:
            sizes.setdefault(kind, Counter())[key] += size
    return [
        Kept(
            kind,
            _holder(*holders[key]),
            numbers[kind, key],
            None if kind == "kept_iterators" else size,
        )
        for kind, by_holder in sizes.items()
        for key, size in by_holder.most_common(MAX_HOLDERS)
    ]


def _owner(node: Node) -> Node:
    """The object itself, or the one whose ``__dict__`` it is."""
    parent = node.parent
    return node if parent is None or not _is_attribute_dict(node, parent) else parent


def _container(node: Node) -> Node | None:
    """The program's list, tuple, deque or dict that contains an object which is none; None
    without."""
    parent = node.parent
    if parent is None or parent.parent is None or _kind(node.value) is not None:
        return None
    if _kind(parent.value) is None or _owner(parent) is not parent:
        return None
    owner = parent
    while owner.parent is not None and _kind(owner.value) is not None:
        owner = _owner(owner.parent)
    is_library = owner.parent is not None and not _is_program(_module_name(type(owner.value)))
    return None if is_library else parent


def references(ends: set[int], untracked: bool = False) -> Iterator[tuple[Node, int, Any]]:
    """(object, position of a reference, object that it refers to), breadth first. Nothing is looked
    for beyond objects with the ids of `ends`. Dicts and tuples of objects that the garbage
    collector does not track, such as NumPy arrays, are looked into if `untracked`."""
    visited = set(ends)
    pending = collections.deque(_roots())
    while pending:
        node = pending.popleft()
        for place, child in enumerate(_children(node.value)):
            yield node, place, child
            if node.depth >= MAX_DEPTH or id(child) in visited:
                continue
            if _may_hold(child) or (untracked and type(child) in (dict, tuple)):
                visited.add(id(child))
                pending.append(Node(child, node, "", place, node.depth + 1))


def _roots() -> Iterator[Node]:
    """The program's own modules, then this thread's running functions."""
    for name in list(sys.modules):
        if name != "__mp_main__" and _is_program(name):
            yield Node(dict(getattr(sys.modules.get(name), "__dict__", {})), None, f"module {name}")
    for frame, values in running_functions():
        code = frame.f_code
        yield Node(values, None, f"{code.co_name}() in {os.path.basename(code.co_filename)}")


@functools.lru_cache(maxsize=8192)
def _is_program(name: str) -> bool:
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
    return file.startswith(_PYTHON) or any(folder in file for folder in INSTALLED)


@functools.lru_cache(maxsize=4096)
def _is_searched(name: str) -> bool:
    package = name.partition(".")[0]
    return package not in _LIBRARIES and (
        f"{package}." not in PREFIXES or name.startswith(_OF_KERAS)
    )


def _is(value: Any, kinds: Any) -> bool:
    """As `isinstance`, which asks an object of another class for its `__class__`."""
    return issubclass(type(value), kinds)


def _children(value: Any) -> Sequence[Any]:
    """Objects that an object refers to; for a function, its closure and defaults, but not its
    module."""
    for kind in (list, tuple, collections.deque):
        if _is(value, kind):  # whatever a class of the program makes of its items
            return list(kind.__iter__(value))
    if _is(value, (dict, type)):
        return list(dict.values(value) if _is(value, dict) else vars(value).values())
    if _is(value, types.FunctionType):
        defaults = value.__defaults__ or (), (value.__kwdefaults__ or {}).values()
        return [*closure(value).values(), *itertools.chain(*defaults)]
    return gc.get_referents(value)


def _may_hold(value: Any) -> bool:
    if not gc.is_tracked(value) or _is(value, _LEAVES):
        return False
    if _is(value, type):
        return _is_program(_module_name(value))
    return _is_searched(_module_name(type(value)))


def _holder(node: Node, child: Any) -> str:
    if node.parent is None:
        return f"variable {_owner_name(node, child)}"
    path = [node]
    while path[-1].parent is not None:
        path.append(path[-1].parent)
    path = [
        *(one for one, parent in itertools.pairwise(path) if not _is_attribute_dict(one, parent)),
        path[-1],
    ]
    kind = _kind(path[0].value)
    if kind is None:
        name, container = _owner_name(path[0], child), _container(path[0])
        return name if container is None else f"{name} in {_holder(container, path[0].value)}"
    at = next(at for at, one in enumerate(path) if one.parent is None or _kind(one.value) is None)
    owner, inside = path[at], path[at - 1].value
    between = "in " if owner.parent is not None else "" if at == 1 else f"in {_kind(inside)} "
    return f"{kind} {between}{_owner_name(owner, inside)}"


def _is_attribute_dict(node: Node, parent: Node) -> bool:
    """Whether a node is the ``__dict__`` of its parent, whose attributes it contains."""
    if parent.parent is None or not _is(node.value, dict) or _kind(parent.value) is not None:
        return False
    return getattr(parent.value, "__dict__", None) is node.value


def _owner_name(owner: Node, child: Any) -> str:
    value = owner.value
    if owner.parent is None:
        return f"`{_found(value, child)}` in {owner.root}"
    name = _found(_variables(value), child)
    if _is(value, types.FunctionType):
        return f"variable {f'`{name}`' if name else 'of the defaults'} of {value.__name__}()"
    kind = f"class {value.__name__}" if _is(value, type) else type(value).__name__
    return f"attribute `{name}` of {kind}" if name else f"an object of type {kind}"


def _kind(value: Any) -> str | None:
    return next((kind.__name__ for kind in _CONTAINERS if _is(value, kind)), None)


def _found(variables: Mapping[Any, Any], value: Any) -> Any:
    return next((name for name, one in variables.items() if one is value), None)


def _attributes(value: Any) -> dict[str, Any]:
    """Attributes of an object, also in slots, without running code of its class."""
    found = dict(vars(value) if _is(value, type) else attributes(value))
    for kind in type(value).__mro__:
        for name, member in vars(kind).items():
            if _is(member, types.MemberDescriptorType):
                with contextlib.suppress(AttributeError):  # a slot without a value
                    found.setdefault(name, member.__get__(value))
    return found


def _parts(node: Node) -> list[str]:
    parts: list[str] = []
    while node.parent is not None:
        if not _is_attribute_dict(node, node.parent):
            reference = _reference(node.parent, _keys(node.parent.value), node.place, node.value)
            kind = "class" if _is(node.value, type) else _cut(type(node.value).__name__)
            parts.append(f"{reference} ({kind})")
        node = node.parent
    return [_cut(node.root), *reversed(parts)]


def _keys(value: Any) -> list[Any]:
    """The names or keys of a dict or a class, in order. Finding them by their values would run code
    of the values."""
    if _is(value, dict):
        return list(dict.keys(value))
    return list(vars(value)) if _is(value, type) else []


def _joined(parts: list[str]) -> str:
    """The path; if it is too long, with "…" for objects in the middle."""
    path = SEPARATOR.join(parts)
    for at in range(3, len(parts)):
        if len(path) > MAX_PATH_CHARACTERS:
            path = SEPARATOR.join([*parts[:2], OMITTED, *parts[at:]])
    return path


def _reference(owner: Node, keys: list[Any], place: int, child: Any) -> str:
    value, is_name = owner.value, True
    key: Any = None
    if _is(value, (list, tuple, collections.deque)):
        return f"[{place}]"
    if _is(value, (dict, type)):
        if place < len(keys):  # another thread may have shrunk it
            key = keys[place]
        is_name = (
            owner.parent is None or _is(value, type) or _is_attribute_dict(owner, owner.parent)
        )
    else:
        key = _found(_variables(value), child)
    if type(key) is str and _PLAIN_KEY.fullmatch(key):
        return _cut(key) if is_name else f'"{_cut(key)}"'
    is_number = not is_name and type(key) in (int, bool) and abs(key) < _MAX_INTEGER_KEY
    shown = key if is_number else OMITTED
    return OMITTED if is_name else f"[{shown}]"


def _variables(value: Any) -> dict[str, Any]:
    """The variables that a function uses, or the attributes of another object."""
    return closure(value) if _is(value, types.FunctionType) else _attributes(value)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_NAME_CHARACTERS else f"{text[: MAX_NAME_CHARACTERS - 1]}…"
