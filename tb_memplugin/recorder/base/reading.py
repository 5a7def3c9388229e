"""Reads the program's objects so that an odd one costs itself only.

Its class may define `__getattr__`, `__eq__`, `__len__` or properties that raise or build something.
So attributes are read from the object's own `__dict__` where Keras or TensorFlow keep them there,
objects are compared by identity, and what must be asked is asked in `asked`, which notes the class
of an object that does not answer. Whatever else takes notes while the program runs is `quiet`."""

import collections
import contextlib
import functools
import itertools
import logging
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar

logger = logging.getLogger("tb_memplugin")

MAX_CLASSES = 100  # most classes of odd objects that are named
_T = TypeVar("_T")
_P = ParamSpec("_P")
unread: dict[str, None] = {}
"""Names of the classes of the objects that could not be read."""


_Question: TypeAlias = Callable[..., Any]
_Note: TypeAlias = "tuple[Any, _Question, str] | None"
_making: tuple[int, list[_Note]] | None = None
"""The thread on which `Kept` makes a value, and what that depends on: an object and what was asked
about it, None for what may have another answer next time."""


def _note(one: _Note) -> None:
    making = _making  # which may end at any moment for another thread
    if making is not None and making[0] == threading.get_ident():
        making[1].append(one)


def note_code() -> None:
    """Note that the value that `Kept` makes depends on what the program's code answers."""
    _note(None)


def attributes(item: Any) -> dict[str, Any]:
    """The object's `__dict__`; an empty one for objects without."""
    try:
        found = object.__getattribute__(item, "__dict__")
    except Exception:
        return {}
    if _making is not None:
        _note((item, _value_ids, ""))
    return found if type(found) is dict else {}


def _value_ids(item: Any, _: str) -> list[int]:
    return list(map(id, attributes(item).values()))


def own(item: Any, name: str, default: Any = None) -> Any:
    """An attribute in the object's `__dict__`, without running code of its class."""
    return attributes(item).get(name, default)


def attribute(item: Any, name: str, default: Any = None) -> Any:
    """An attribute in the object's `__dict__`, or else what its class makes of it; None if that
    raises."""
    found = attributes(item)
    if name in found:
        return found[name]
    if _making is not None:
        _note((item, _answer_id, name))
    return asked(item, getattr, name, default)


def _answer_id(item: Any, name: str) -> int:
    return id(asked(item, getattr, name, None))


def is_a(item: Any, *kinds: type) -> bool:
    """As `isinstance`, which asks an object of another class for its `__class__`."""
    return is_subclass(type(item), kinds)


def is_subclass(kind: type, kinds: tuple[type, ...]) -> bool:
    return any(one in kinds for one in type.__dict__["__mro__"].__get__(kind))


def unwrapped(value: Any) -> Any:
    """The list, tuple or dict in what TensorFlow puts in its place when it is assigned to an
    attribute."""
    if type(value).__module__ != "tensorflow.python.trackable.data_structures":
        return value
    return (
        own(value, "_storage", value) if is_a(value, list) else getattr(value, "__wrapped__", value)
    )


_ITEMS: dict[type, Callable[[Any], Any]] = {
    list: list.__iter__,
    tuple: tuple.__iter__,
    dict: dict.values,
    collections.deque: collections.deque.__iter__,
}
_CONTAINERS = tuple(_ITEMS)


def contained(value: Any, most: int | None = None) -> list[Any] | None:
    """The first items of a list, a tuple or a deque, or values of a dict, whatever its class makes
    of them; None for other objects."""
    kind = type(value)
    items = _ITEMS.get(kind) if type(kind) is type else None
    if items is None:
        value = unwrapped(value)
        if not issubclass(type(value), _CONTAINERS):
            return None
        items = next(_ITEMS[one] for one in _CONTAINERS if issubclass(type(value), one))
    return list(itertools.islice(items(value), most))


def own_list(item: Any, name: str) -> list[Any]:
    """The items of a list or a tuple in the object's `__dict__`; none if it is anything else."""
    value = own(item, name)
    if value is not None and _making is not None:
        _note((item, _item_ids, name))
    if value is None or type(value) is list:  # as most are
        return [] if value is None else value.copy()
    value = unwrapped(value)
    return [] if is_a(value, dict) else contained(value) or []


def _item_ids(item: Any, name: str) -> list[int]:
    return list(map(id, own_list(item, name)))


def closure(function: types.FunctionType) -> dict[str, Any]:
    """The variables of the functions around a function that it uses, as far as they are
    assigned."""
    values = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        with contextlib.suppress(ValueError):  # an empty cell
            values[name] = cell.cell_contents
    return values


def leaves(values: Any, most: int) -> Iterator[Any]:
    """The objects in nested containers, in order; looks at no more than the most, containers
    included."""
    pending = [values]
    for _ in range(most):
        if not pending:
            return
        value = pending.pop()
        items = contained(value, most)
        if items is None:
            yield value
        else:
            pending += reversed(items)


def asked(item: Any, question: Callable[..., _T], *arguments: Any) -> _T | None:
    """What a function makes of an object and of further arguments; None if that raises, whatever it
    is."""
    try:
        return question(item, *arguments)
    except KeyboardInterrupt:
        raise
    except BaseException:
        name = type(item).__name__
        logger.debug("an object of type %s could not be read", name, exc_info=True)
        if len(unread) < MAX_CLASSES:
            unread[name] = None
        note_code()
        return None


def quiet(note: Callable[_P, _T]) -> Callable[_P, _T | None]:
    """The function, but where it would raise, it returns None: the program goes on."""

    @functools.wraps(note)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T | None:
        try:
            return note(*args, **kwargs)
        except KeyboardInterrupt:
            raise
        except BaseException:
            logger.debug("%s raised", note.__qualname__, exc_info=True)
            return None

    return call


class _Noted(weakref.ref[Any]):
    __slots__ = ("key", "value")
    key: int  # the object's id
    value: Any


class ByIdentity(Generic[_T]):
    """Values of objects that exist; the objects are compared by identity, and not kept. Ignores
    objects without weak references."""

    def __init__(self) -> None:
        self._noted: dict[int, _Noted] = {}
        # not `self`: a reference cycle would keep all of it until a garbage collection
        weakly = weakref.ref(self)

        def gone(noted: _Noted) -> None:
            table = weakly()
            if table is not None and table._noted.get(noted.key) is noted:
                del table._noted[noted.key]

        self._gone = gone

    def get(self, item: Any, default: Any = None) -> Any:
        noted = self._noted.get(id(item))
        return noted.value if noted is not None and noted() is item else default

    def __contains__(self, item: Any) -> bool:
        return self.get(item, self) is not self

    def __setitem__(self, item: Any, value: _T) -> None:
        noted = self._noted.get(id(item))
        if noted is None or noted() is not item:
            try:
                noted = _Noted(item, self._gone)
            except TypeError:
                logger.debug("an object of type %s has no weak references", type(item).__name__)
                return
            noted.key = id(item)
            self._noted[noted.key] = noted
        noted.value = value

    def setdefault(self, item: Any, value: _T) -> Any:
        if item not in self:
            self[item] = value
        return self.get(item, value)

    def add(self, item: Any) -> None:
        self[item] = True  # type: ignore[assignment]

    def pop(self, item: Any) -> None:
        if item in self:
            del self._noted[id(item)]

    def items(self) -> list[tuple[Any, _T]]:
        pairs = [(noted(), noted.value) for noted in list(self._noted.values())]
        return [pair for pair in pairs if pair[0] is not None]

    def __iter__(self) -> Iterator[Any]:
        return iter([item for item, _ in self.items()])

    def __len__(self) -> int:
        return len(self._noted)


class Kept(Generic[_T]):
    """A value that was made of objects of the program. It is kept while what `reading` read of them
    is the same: their attributes by identity, and the items of their lists. Keeps none of them
    alive. For one thread."""

    def __init__(self) -> None:
        self._key: Any = None
        # what was asked about objects, with the answers; None if it cannot be asked again
        self._read: list[tuple[Any, _Question, str, Any]] | None = None

    def get(self, key: Any, make: Callable[[], _T]) -> _T:
        """The value, made anew if the key is another one."""
        if self._read is None or key != self._key or not _unchanged(self._read):
            global _making
            notes: list[_Note] = []
            self._read, _making = None, (threading.get_ident(), notes)
            try:
                self.value = make()
            finally:
                _making = None
            self._key, self._read = key, _answers(notes)
        return self.value


def _unchanged(read: list[tuple[Any, _Question, str, Any]]) -> bool:
    for reference, question, name, answer in read:
        item = reference()
        if item is None or question(item, name) != answer:
            return False
    return True


def _answers(notes: list[_Note]) -> list[tuple[Any, _Question, str, Any]] | None:
    known = [note for note in notes if note is not None]
    if len(known) < len(notes):
        return None
    different = {(id(item), question, name): item for item, question, name in known}
    try:
        return [
            (weakref.ref(item), question, name, question(item, name))
            for (_, question, name), item in different.items()
        ]
    except TypeError:  # an object without weak references
        return None
