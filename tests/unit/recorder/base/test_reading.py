"""What is read of odd objects, and values of objects by their identity."""

import gc
import threading
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tb_memplugin.recorder.base import (
    ByIdentity,
    Kept,
    asked,
    attribute,
    contained,
    leaves,
    own,
    own_list,
    quiet,
    reading,
)


class OddError(BaseException):
    """What no ``except Exception`` catches."""


class Odd:
    """Raises whatever it is asked."""

    def __init__(self) -> None:
        self.plain = 1

    def _raise(self, *arguments: Any) -> Any:
        raise OddError

    __eq__ = __len__ = __bool__ = __getattr__ = _raise  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


@pytest.fixture(autouse=True)
def no_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "unread", {})


def test_an_odd_object_costs_itself_only_and_is_named_once() -> None:
    odd = Odd()
    assert own(odd, "plain") == attribute(odd, "plain") == 1 and own(odd, "other", 2) == 2
    assert reading.unread == {}
    assert [attribute(odd, "other"), asked(odd, len)] == [None, None]
    assert list(reading.unread) == ["Odd"]
    assert attribute(SimpleNamespace(), "other", 3) == 3 and own(object(), "other") is None
    assert quiet(odd._raise)() is None
    with pytest.raises(KeyboardInterrupt):
        asked(odd, lambda odd: (_ for _ in ()).throw(KeyboardInterrupt))


class OddList(list[Any]):
    def __iter__(self) -> Any:
        raise OddError


def test_containers_are_read_whatever_their_class_makes_of_them() -> None:
    odd = OddList([1, {"a": 2, "b": (3,)}, [], 4])
    assert list(leaves(odd, 100)) == [1, 2, 3, 4] and contained(odd, 1) == [1]
    assert list(leaves(odd, 5)) == [1, 2]  # three of the five are containers
    assert contained("text") is None


def test_values_are_of_one_object_and_go_with_it() -> None:
    values, first, second = ByIdentity[str](), Odd(), Odd()
    values[first] = "first"
    assert values.setdefault(second, "second") == "second" == values.setdefault(second, "other")
    assert first in values and Odd() not in values and values.get(Odd(), "none") == "none"
    assert [value for _, value in values.items()] == ["first", "second"]
    values.pop(first)
    values[object()] = "without weak references"
    assert [one is second for one in values] == [True]
    # AND neither an object nor the values are kept by a cycle
    reference, table = weakref.ref(second), weakref.ref(values)
    gc.disable()
    try:
        del second
        assert reference() is None and len(values) == 0
        values[first] = "first"
        del values
        assert table() is None
    finally:
        gc.enable()


class Part:
    fixed = 0

    def __init__(self) -> None:
        self.name, self.parts, self.wrapped = "a", list[Any](), OddList([1])

    @property
    def asked(self) -> int:
        return self.fixed


CHANGES: dict[str, Callable[[Part], object]] = {
    "an attribute": lambda part: setattr(part, "name", "b"),
    "a new attribute": lambda part: setattr(part, "other", 1),
    "a list": lambda part: part.parts.append(part),
    "a list's item": lambda part: part.parts.__setitem__(0, Part()),
    "a list of another class": lambda part: part.wrapped.append(2),
    "an attribute that is no list any more": lambda part: setattr(part, "parts", ()),
    "what the class answers": lambda part: setattr(Part, "fixed", 1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_value_is_kept_until_what_it_was_read_from_changes(
    monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    monkeypatch.setattr(Part, "fixed", 0)
    part, made = Part(), list[int]()
    part.parts.append(Part())

    def make() -> int:
        lists = [*own_list(part, "parts"), *own_list(part, "wrapped")]
        made.append(len(lists))
        assert attribute(part, "asked") == Part.fixed and own(part, "missing") is None
        return len(made)

    kept = Kept[int]()
    assert [kept.get("key", make) for _ in range(3)] == [1, 1, 1]
    CHANGES[change](part)
    assert [kept.get("key", make) for _ in range(2)] == [2, 2]
    assert [kept.get("other key", make) for _ in range(2)] == [3, 3]


def test_a_kept_value_keeps_no_object_and_depends_on_no_code_of_the_program() -> None:
    parts, kept = [Part()], Kept[str]()
    assert kept.get(1, lambda: str(own(parts[0], "name"))) == "a"
    reference = weakref.ref(parts[0])
    parts.clear()
    assert reference() is None and kept.get(1, lambda: "anew") == "anew"
    # AND what raised may answer next time
    odd, times = Odd(), list[int]()
    for _ in range(2):
        kept.get(2, lambda: str(times.append(1) or asked(odd, len)))
    assert len(times) == 2


def test_a_kept_value_does_not_depend_on_what_another_thread_reads() -> None:
    mine, others, kept, made = Part(), Part(), Kept[Any](), list[int]()

    def make() -> Any:
        made.append(1)
        thread = threading.Thread(target=own, args=(others, "name"))
        thread.start()
        thread.join()
        return own(mine, "name")

    kept.get("key", make)
    others.name = "b"
    kept.get("key", make)
    assert len(made) == 1
    mine.name = "b"
    assert kept.get("key", make) == "b" and len(made) == 2
