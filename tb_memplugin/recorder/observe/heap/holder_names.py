"""Describes the object that holds a tensor: "list in attribute `outputs` of Evaluator"."""

import collections
import itertools
import types
from collections.abc import Mapping
from typing import Any, NamedTuple

_CONTAINERS = (list, tuple, dict, collections.deque)


class Node(NamedTuple):
    """An object on the way from a root to a tensor.

    Attributes:
        value: The object; for a root, the dict of its variables.
        parent: The node that refers to it, None for a root.
        root: For a root, its description.
        place: Position among the references of the parent.
        depth: Number of references from the root.
    """

    value: Any
    parent: "Node | None"
    root: str = ""
    place: int = 0
    depth: int = 0


def describe_variable(root: Node, tensor: Any) -> str:
    """Describe the variable of a root that is the tensor."""
    return f"variable {_name_of(root.value, tensor)} in {root.root}"


def describe_holder(node: Node, tensor: Any) -> str:
    """Describe an object that refers to a tensor, and the attribute or variable through which it is reached."""
    path = _path(node)
    kind = None if path[0].parent is None else _kind(path[0].value)
    if kind is None:
        return _owner_name(path[0], tensor)
    at = next(at for at, one in enumerate(path) if one.parent is None or _kind(one.value) is None)
    owner, child = path[at], path[at - 1].value
    name = _owner_name(owner, child)
    if owner.parent is not None:
        return f"{kind} in {name}"
    return f"{kind} {name}" if at == 1 else f"{kind} in {_kind(child)} {name}"


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
    """Variables that a function closes over."""
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
