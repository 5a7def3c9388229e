"""What only Python's garbage collector can free."""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from tb_memplugin.recorder.heap import reachability
from tb_memplugin.recorder.heap.reachability import cycles_of, unreachable


class Item:
    """An object that may refer to others."""

    def __init__(self, *others: Any) -> None:
        self.others = list(others)


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def in_cycle(*others: Any) -> Item:
    item = Item(*others)
    item.others.append(item)
    return item


def test_an_object_in_a_cycle_is_garbage_and_so_is_what_only_it_refers_to() -> None:
    inner = Item()
    item = in_cycle(inner, [inner])
    keys = {id(item), id(inner)}
    reference = weakref.ref(item)
    del item, inner
    found = unreachable([reference()])
    assert keys <= found
    # AND nothing was collected, but the collector agrees
    assert reference() is not None
    gc.collect()
    assert reference() is None


def test_what_a_variable_or_something_else_leads_to_is_no_garbage() -> None:
    item = in_cycle()
    outer = Item(item)
    objects = [item, outer]
    assert not {id(item), id(outer)} & unreachable(objects)
    assert objects == []  # the list would keep them alive
    # AND neither is what is kept of an owner that is garbage
    handle = Item()
    owner = in_cycle(handle)
    keep, keys, reference = [handle], (id(owner), id(handle)), weakref.ref(owner)
    del owner, handle
    found = unreachable([reference()])
    assert [key in found for key in keys] == [True, False] and keep


def used_by_a_class() -> weakref.ref[Any]:
    item = Item()
    # A class is in cycles by itself, as Keras's of `compiled_metrics`.
    type("Metric", (), {"__qualname__": "used_by_a_class.<locals>.Metric", "update": lambda self: item})
    return weakref.ref(item)


def used_in_a_cycle() -> weakref.ref[Any]:
    item = Item()
    in_cycle(item)
    return weakref.ref(item)


def test_garbage_that_refers_to_an_object_is_found_where_it_is_looked_for() -> None:
    reference = used_by_a_class()
    assert unreachable([reference()]) >= {id(reference())}
    other = used_in_a_cycle()
    found = [id(other()) in unreachable([other()], levels) for levels in (0, 2)]
    assert found == [False, True]


def test_with_fewer_objects_less_is_called_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    item = in_cycle(*(in_cycle() for _ in range(20)))
    for one in item.others[:-1]:
        one.others.append(item)
    reference, keys = weakref.ref(item), {id(item), id(item.others[0])}
    del item, one
    with monkeypatch.context() as patched:
        patched.setattr(reachability, "MAX_OBJECTS", 2)
        found = unreachable([reference()], levels=0)
    assert not keys & found
    found = unreachable([reference()])
    assert keys <= found


def test_nobody_elses_code_runs() -> None:
    ran: list[str] = []

    class Strange:
        __eq__ = __hash__ = __del__ = lambda self, *others: ran.append("a method")  # type: ignore[assignment]

    strange = Strange()
    strange.me = strange  # type: ignore[attr-defined]
    reference, key = weakref.ref(strange), id(strange)
    del strange
    found = unreachable([reference()], levels=1)
    assert key in found and ran == []


def test_the_class_that_refers_to_an_object_in_a_cycle_is_named() -> None:
    plain, contained, kept, alone = Item(), Item(), Item(), Item()
    in_cycle(plain)
    in_cycle({"a": [contained]})
    references = [weakref.ref(one) for one in (plain, contained, kept, alone)]
    keys = [id(one) for one in (plain, contained, kept)]
    del plain, contained, alone
    found = cycles_of([one for reference in references if (one := reference()) is not None], 4)
    assert found == {keys[0]: "Item", keys[1]: "Item"} and kept
