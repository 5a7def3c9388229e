"""Objects that only the garbage collector can free."""

import gc
import pathlib
import re
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from tb_memplugin.recorder.heap import unreachable

ROOT = pathlib.Path(__file__).parents[4]


def test_no_module_lists_the_objects_of_other_threads_or_steers_the_collector() -> None:
    used = re.compile(r"\bgc\.(get_(objects|referrers)|set_threshold|callbacks|disable|freeze)\b")
    assert [
        path for path in (ROOT / "tb_memplugin").rglob("*.py") if used.search(path.read_text())
    ] == []


class Item:
    """An object that may refer to others."""

    def __init__(self, *others: Any) -> None:
        self.others = list(others)


@pytest.fixture
def no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def in_cycle(*others: Any) -> Item:
    item = Item(*others)
    item.others.append(item)
    return item


@pytest.mark.usefixtures("no_collection")
def test_a_cycle_and_what_only_it_refers_to_is_garbage_but_nothing_that_a_variable_leads_to() -> (
    None
):
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


def test_garbage_that_refers_to_an_object_is_found_where_it_is_looked_for(
    no_collection: None,
) -> None:
    def used_by_a_class() -> weakref.ref[Any]:
        item = Item()
        # A class is in cycles by itself, as Keras's of `compiled_metrics`.
        type(
            "Metric",
            (),
            {"__qualname__": "used_by_a_class.<locals>.Metric", "update": lambda self: item},
        )
        return weakref.ref(item)

    reference = used_by_a_class()
    assert unreachable([reference()]) >= {id(reference())}


@pytest.mark.usefixtures("no_collection")
def test_nobody_elses_code_runs() -> None:
    ran: list[str] = []

    class Strange:
        __eq__ = __hash__ = __del__ = lambda self, *others: ran.append("a method")  # type: ignore[assignment]

    strange = Strange()
    strange.me = strange  # type: ignore[attr-defined]
    reference, key = weakref.ref(strange), id(strange)
    del strange
    found = unreachable([reference()])
    assert key in found and ran == []
