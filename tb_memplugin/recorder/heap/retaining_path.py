"""Describes what holds a tensor: "list in attribute `outputs` of Evaluator", and the references to it from a root:
``module __main__ › history (list) › [12] (dict) › "loss"``."""

import collections
import itertools
import re
import types
from collections.abc import Mapping
from typing import Any, NamedTuple

from tb_memplugin.schema import OMITTED, SEPARATOR

MAX_NAME_CHARACTERS = 400
"""Longer names are cut: keys may be texts of any length."""
MAX_PATH_CHARACTERS = 2_000
"""Of a longer path, objects in its middle are left out."""
_PLAIN_KEY = re.compile(r"\w[\w.:-]*(/[\w.:-]+)*")
"""Keys that may be stored: others, such as absolute paths and addresses of persons, are data of the program."""
_MAX_INTEGER_KEY = 10**9
_CONTAINERS = (list, tuple, dict, collections.deque)


class Node(NamedTuple):
    """An object on the way from a root, whose value is the dict of its variables, to a tensor. `root` describes a root,
    `place` is the position among the references of the parent, `depth` the number of references from the root."""

    value: Any
    parent: "Node | None"
    root: str = ""
    place: int = 0
    depth: int = 0


def describe(node: Node, child: Any) -> str:
    """Describe an object that refers to a tensor, and the attribute or variable through which it is reached.

    Of a root, the variable that is the tensor.
    """
    if node.parent is None:
        return f"variable {_owner_name(node, child)}"
    path = _path(node)
    kind = _kind(path[0].value)
    if kind is None:
        return _owner_name(path[0], child)
    at = next(at for at, one in enumerate(path) if one.parent is None or _kind(one.value) is None)
    owner, inside = path[at], path[at - 1].value
    name = _owner_name(owner, inside)
    if owner.parent is not None:
        return f"{kind} in {name}"
    return f"{kind} {name}" if at == 1 else f"{kind} in {_kind(inside)} {name}"


def _path(node: Node) -> list[Node]:
    """A node and its parents up to the root, without the attribute dicts of objects."""
    path = [node]
    while path[-1].parent is not None:
        path.append(path[-1].parent)
    inner = [one for one, parent in itertools.pairwise(path) if not is_attribute_dict(one, parent)]
    return [*inner, path[-1]]


def is_attribute_dict(node: Node, parent: Node) -> bool:
    """Whether a node is the ``__dict__`` of its parent, whose attributes it contains."""
    if parent.parent is None or not isinstance(node.value, dict) or _kind(parent.value) is not None:
        return False
    return getattr(parent.value, "__dict__", None) is node.value


def _owner_name(owner: Node, child: Any) -> str:
    """Describe a variable, or an object and its attribute, that is `child`."""
    if owner.parent is None:
        return f"{_name_of(owner.value, child)} in {owner.root}"
    value = owner.value
    if isinstance(value, types.FunctionType):
        return f"variable {_name_of(closure(value), child) or 'of the defaults'} of {value.__name__}()"
    kind = f"class {value.__name__}" if isinstance(value, type) else type(value).__name__
    name = _name_of(attributes(value), child)
    return f"attribute {name} of {kind}" if name else f"an object of type {kind}"


def _kind(value: Any) -> str | None:
    """``list``, ``dict`` and the like; None for other objects."""
    return next((kind.__name__ for kind in _CONTAINERS if isinstance(value, kind)), None)


def _name_of(variables: Mapping[Any, Any], value: Any) -> str:
    return next((f"`{name}`" for name, one in variables.items() if one is value), "")


def closure(function: types.FunctionType) -> dict[str, Any]:
    values = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            values[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return values


def attributes(value: Any) -> dict[str, Any]:
    """Attributes of an object, without running code of its class."""
    try:
        attributes = dict(object.__getattribute__(value, "__dict__"))
    except AttributeError:
        attributes = {}
    for kind in type(value).__mro__:
        for name, member in vars(kind).items():
            if isinstance(member, types.MemberDescriptorType):
                try:
                    attributes.setdefault(name, member.__get__(value))
                except AttributeError:  # a slot without a value
                    continue
    return attributes


class RetainingPaths:
    """Describes paths to tensors; to those in one container, which a search finds in a row, faster than one by one."""

    def __init__(self) -> None:
        self._node: Node | None = None
        self._parts: list[str] = []
        self._keys: list[Any] = []

    def to(self, node: Node, place: int, tensor: Any) -> str:
        """Describe the objects from the root to a node, each with the reference to it and its class, then the tensor.

        The tensor has this place among the references of the node.
        """
        if node is not self._node:
            self._node, self._parts, self._keys = node, _parts(node), _keys(node.value)
        return _joined([*self._parts, _reference(node, self._keys, place, tensor)])


def _parts(node: Node) -> list[str]:
    parts: list[str] = []
    while node.parent is not None:
        if not is_attribute_dict(node, node.parent):
            reference = _reference(node.parent, _keys(node.parent.value), node.place, node.value)
            kind = "class" if isinstance(node.value, type) else _cut(type(node.value).__name__)
            parts.append(f"{reference} ({kind})")
        node = node.parent
    return [_cut(node.root), *reversed(parts)]


def _keys(value: Any) -> list[Any]:
    """The names or keys of a dict or a class, in order. Finding them by their values would run code of the values."""
    return list(value) if isinstance(value, dict) else list(vars(value)) if isinstance(value, type) else []


def _joined(parts: list[str]) -> str:
    """The path; if it is too long, with "…" for objects in the middle."""
    first, rest, path = parts[:2], parts[2:], SEPARATOR.join(parts)
    while len(path) > MAX_PATH_CHARACTERS and len(rest) > 1:
        rest = rest[1:]
        path = SEPARATOR.join([*first, OMITTED, *rest])
    return path


def _reference(owner: Node, keys: list[Any], place: int, child: Any) -> str:
    """The variable, attribute, index or key by which an object refers to another."""
    value = owner.value
    if isinstance(value, (dict, type)):
        key = keys[place] if place < len(keys) else None  # another thread may have shrunk it
        is_name = owner.parent is None or isinstance(value, type) or is_attribute_dict(owner, owner.parent)
        return _name(key) if is_name else _key(key)
    if isinstance(value, (list, tuple, collections.deque)):
        return f"[{place}]"
    variables = closure(value) if isinstance(value, types.FunctionType) else attributes(value)
    return _name(next((name for name, one in variables.items() if one is child), None))


def _name(name: Any) -> str:
    return _cut(name) if type(name) is str and _PLAIN_KEY.fullmatch(name) else OMITTED


def _key(key: Any) -> str:
    if type(key) is str and _PLAIN_KEY.fullmatch(key):
        return f'"{_cut(key)}"'
    if type(key) in (int, bool) and -_MAX_INTEGER_KEY < key < _MAX_INTEGER_KEY:
        return f"[{key}]"
    return f"[{OMITTED}]"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_NAME_CHARACTERS else f"{text[: MAX_NAME_CHARACTERS - 1]}…"
