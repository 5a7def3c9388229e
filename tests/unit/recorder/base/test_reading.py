"""What is read of odd objects, and values of objects by their identity."""

import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from tb_memplugin.recorder.base import (
    ByIdentity,
    asked,
    attribute,
    contained,
    leaves,
    own,
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
