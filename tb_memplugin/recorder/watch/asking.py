"""Reads the program's objects so that an odd one costs itself only.

Its class may define `__getattr__`, `__eq__`, `__len__` or properties that raise or build something.
So attributes are read from the object's own `__dict__` where Keras or TensorFlow keep them there,
objects are compared by identity, and what must be asked is asked in `asked`, which notes the class
of an object that does not answer."""

import logging
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

logger = logging.getLogger("tb_memplugin")

MAX_CLASSES = 100  # most classes of odd objects that are named
_T = TypeVar("_T")
unread: dict[str, None] = {}
"""Names of the classes of the objects that could not be read."""


def own(item: Any, name: str, default: Any = None) -> Any:
    """An attribute in the object's `__dict__`, without running code of its class."""
    try:
        attributes = object.__getattribute__(item, "__dict__")
    except Exception:
        return default
    return dict.get(attributes, name, default) if type(attributes) is dict else default


def unwrapped(value: Any) -> Any:
    """The list, tuple or dict in what TensorFlow puts in its place when it is assigned to an
    attribute."""
    if type(value).__module__ != "tensorflow.python.trackable.data_structures":
        return value
    return (
        own(value, "_storage", value) if is_a(value, list) else getattr(value, "__wrapped__", value)
    )


def own_list(item: Any, name: str) -> list[Any]:
    """The items of a list or a tuple in the object's `__dict__`; none if it is anything else."""
    value = unwrapped(own(item, name))
    return (
        list(list.__iter__(value))
        if is_a(value, list)
        else list(value)
        if type(value) is tuple
        else []
    )


def is_a(item: Any, kind: type) -> bool:
    """As `isinstance`, which asks an object of another class for its `__class__`."""
    return kind in type(item).__mro__


def asked(item: Any, question: Callable[[], _T], default: _T) -> _T:
    try:
        return question()
    except KeyboardInterrupt:
        raise
    except BaseException:  # of whatever class the program raises
        name = type(item).__name__
        logger.debug("an object of type %s could not be read", name, exc_info=True)
        if len(unread) < MAX_CLASSES:
            unread[name] = None
        return default


class ByIdentity(Generic[_T]):
    """Values of objects that exist; the objects are compared by identity, and not kept. Ignores
    objects without weak references."""

    def __init__(self) -> None:
        self._values: dict[int, tuple[Callable[[], Any], _T]] = {}

    def get(self, item: Any, default: Any = None) -> Any:
        reference, value = self._values.get(id(item), (None, default))
        return value if reference is not None and reference() is item else default

    def __contains__(self, item: Any) -> bool:
        return self.get(item, self) is not self

    def __setitem__(self, item: Any, value: _T) -> None:
        values, key = self._values, id(item)

        def gone(reference: Any) -> None:
            if key in values and values[key][0] is reference:
                del values[key]

        try:
            values[key] = weakref.ref(item, gone), value
        except TypeError:
            logger.debug("an object of type %s has no weak references", type(item).__name__)

    def setdefault(self, item: Any, value: _T) -> Any:
        if item not in self:
            self[item] = value
        return self.get(item, value)

    def add(self, item: Any) -> None:
        self[item] = True  # type: ignore[assignment]

    def pop(self, item: Any, default: Any = None) -> Any:
        value = self.get(item, default)
        self._values.pop(id(item), None)
        return value

    def __iter__(self) -> Iterator[Any]:
        return iter(
            [
                item
                for reference, _ in list(self._values.values())
                if (item := reference()) is not None
            ]
        )

    def __len__(self) -> int:
        return len(self._values)

    def clear(self) -> None:
        self._values.clear()
