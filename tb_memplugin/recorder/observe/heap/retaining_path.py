"""Describes the references from a root to a tensor: ``module __main__ › history (list) › [12] (dict) › "loss"``."""

import collections
import re
import types
from typing import Any

from tb_memplugin.model.retaining_paths import OMITTED, SEPARATOR
from tb_memplugin.recorder.observe.heap.holder_names import Node, attributes, closure, is_attribute_dict

MAX_NAME_CHARACTERS = 400
"""Longer names are cut: keys may be texts of any length."""
MAX_PATH_CHARACTERS = 2_000
"""Of a longer path, objects in its middle are left out."""
_PLAIN_KEY = re.compile(r"\w[\w.:-]*(/[\w.:-]+)*")
"""Keys that may be stored: others, such as absolute paths and addresses of persons, are data of the program."""
_MAX_INTEGER_KEY = 10**9


class RetainingPaths:
    """Describes paths to tensors; to those in one container, which a search finds in a row, faster than one by one."""

    def __init__(self) -> None:
        self._node: Node | None = None
        self._parts: list[str] = []
        self._keys: list[Any] = []

    def to(self, node: Node, place: int, tensor: Any) -> str:
        """Describe the objects from the root to a node, each with the reference to it and its class, then the tensor.

        Args:
            node: The object that refers to the tensor.
            place: Position of the tensor among the references of the node.
            tensor: The tensor.
        """
        if node is not self._node:
            self._node, self._parts, self._keys = node, _parts(node), _keys(node.value)
        return _joined([*self._parts, _reference(node, self._keys, place, tensor)])


def _parts(node: Node) -> list[str]:
    """The root, and the objects from it to a node."""
    parts: list[str] = []
    while node.parent is not None:
        if not is_attribute_dict(node, node.parent):
            reference = _reference(node.parent, _keys(node.parent.value), node.place, node.value)
            parts.append(f"{reference} ({_class_name(node.value)})")
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


def _class_name(value: Any) -> str:
    return "class" if isinstance(value, type) else _cut(type(value).__name__)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_NAME_CHARACTERS else f"{text[: MAX_NAME_CHARACTERS - 1]}…"
